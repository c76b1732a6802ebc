"""Text that others chose, such as file names, cannot move the cursor of the user's terminal."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

import pytest

from kubewright.base import events, yaml
from kubewright.base.change import Action, Change
from kubewright.base.checks import CheckResult, Finding
from kubewright.base.clock import FakeClock
from kubewright.base.errors import KubewrightError
from kubewright.base.messages import without_controls
from kubewright.cli.handlers import etcd_snapshots, preflight
from kubewright.cli.handlers.agent import run as agent
from kubewright.cli.parsing import inputs
from kubewright.cli.printers import choosing, output, streams
from kubewright.cli.printers.failure import write_error
from kubewright.cli.printers.live import LiveDisplay
from kubewright.cli.printers.reporters import KubeadmText
from kubewright.cli.printers.streams import Printable
from kubewright.etcd.api import Member
from kubewright.etcd.snapshots import Snapshot
from kubewright.lifecycle.etcd.verifying import Verified
from kubewright.workflow.runner import Plan

EVIL = "\x1b[2J\x1b]0;title\x07\r\x9b8m"
SHOWN = r"\u001b[2J\u001b]0;title\u0007\u000d\u009b8m"


class Terminal(io.StringIO):
    """A terminal in memory."""

    def isatty(self):
        return True


def kubewright(*words: str, **more: object) -> subprocess.CompletedProcess[bytes]:
    program = [sys.executable, "-m", "kubewright", *words]
    return subprocess.run(program, check=False, timeout=600, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more})


FORGED = "a\nforged   row\n---\nb\r\x1b[2J\x9b2J\u2028\x85"
ONE_LINE = r"a\nforged   row\n---\nb\r\u001b[2J\u009b2J\u2028\x85"


@pytest.mark.parametrize(
    "lay_out", [lambda cell: output.table([{"a": cell}], columns=[("a", "A")]), lambda cell: output.kubeadm_table([["A"], [cell]])]
)
def test_foreign_text_stays_in_its_cell(lay_out):
    assert lay_out(FORGED).splitlines() == ["A", ONE_LINE.replace(r"\x85", r"\u0085")]


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_foreign_text_ends_no_document_or_list(form, capsys):
    output.write_result([{"name": "good"}, {FORGED: FORGED}], form=form)
    told = capsys.readouterr().out
    found = [document.value for document in yaml.load_all(told)]
    assert len(found) == 1
    assert found[0][0] == {"name": "good"}
    assert (
        [(key, value) for key, value in found[0][1].items()] == [(FORGED.replace("\x9b", r"\u009b"),) * 2]
        if form == "yaml"
        else [(FORGED, FORGED)]
    )
    assert [line for line in told.splitlines() if line.startswith(("forged", "---", "b"))] == []
    assert choosing.choose(form)([{"description": FORGED}]).count("description") == 1


def test_warnings_and_errors_of_several_lines_are_indented(capsys):
    inputs.warn(["one: a\nwarning: forged"])
    write_error(KubewrightError("a\nerror: forged", detail="b\nhint: forged", remedy="c\nhint: forged"), verbosity=0)
    KubeadmText(err=sys.stderr).emit(events.Warned(text="d\nwarning: forged"))
    KubeadmText(err=sys.stderr).emit(events.Checked(check="X", text="e\nwarning: forged"))
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 12
    assert [line.strip() for line in told if line.startswith(" ")] == [
        "warning: forged",
        "error: forged",
        "b",
        *["hint: forged"] * 2,
        *["warning: forged"] * 2,
    ]


AGENT: Mapping[str, Any] = {
    "node": "n1",
    "phase": "Waiting",
    "running": True,
    "pid": 1,
    "started": "now",
    "trouble": FORGED,
    "notReady": FORGED,
    "certificate": {"expires": "", "rotates": ""},
    "waiting": {"request": "csr-1", "explanation": FORGED, "since": "now"},
    "statusReported": "now",
    "leaseRenewed": "now",
    "failedSetters": {FORGED: FORGED},
    "missingTaints": [FORGED],
}
VERIFIED = Verified(
    snapshot=Snapshot(sha256="ab", size=1), description={"sha256": "ab", "etcdVersion": FORGED, "clusterID": FORGED}, contents=None
)
SHOWN_LINES: Mapping[str, tuple[Callable[[], str], int]] = {
    "agent status": (lambda: "".join(f"{line}\n" for line in agent.status_lines(AGENT)), 9),
    "a plan": (lambda: Plan(changes=[Change(target=FORGED, action=Action.CREATE, reason=FORGED)]).text().partition("\n\n")[0], 1),
    "a member of etcd": (lambda: Member(id=1, name=FORGED, peer_urls=(FORGED,)).shown, 1),
    "a snapshot": (lambda: "\n".join(etcd_snapshots._lines(PurePosixPath(f"/{FORGED}"), VERIFIED)), 4),
    "a check": (lambda: preflight._text(CheckResult(name="X", findings=(Finding(text="a", remedy=FORGED),), ignored=False)), 5),
}
"""What prints a text of others, and how many lines it prints."""


@pytest.mark.parametrize("row", SHOWN_LINES)
def test_a_text_of_others_starts_no_line(row):
    call, count = SHOWN_LINES[row]
    told = without_controls(call())
    assert len(told.splitlines()) == count, told
    assert [line for line in told.splitlines() if line.startswith(("forged", "---", "b"))] == []


def test_an_error_shows_the_name_of_a_file_without_control_characters(tmp_path):
    done = kubewright("config", "validate", "--config", str(tmp_path / EVIL))
    assert done.returncode == 1
    assert SHOWN in done.stderr.decode()
    assert [byte for byte in b"\x1b\x07\r\x9b" if byte in done.stderr.replace(b"\xc2\x9b", b"\x9b")] == []


def test_a_result_is_printable_on_a_terminal_and_unchanged_in_a_pipe(tmp_path):
    words = "local", "list", "--state-dir", str(tmp_path / EVIL)
    piped = kubewright(*words).stdout.decode()
    assert EVIL in piped
    reader, writer = pty.openpty()
    try:
        assert kubewright(*words, stdout=writer).returncode == 0
        os.close(writer)
        raw = b""
        with suppress(OSError):  # its end, once nobody has the other side open
            while piece := os.read(reader, 65536):
                raw += piece
    finally:
        os.close(reader)
    told = raw.decode()
    assert EVIL not in told
    assert told.replace("\r\n", "\n") == piped.replace(EVIL, SHOWN)


def test_our_own_colours_and_redrawn_lines_are_kept(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    out = Printable(terminal)
    out.write("\x1b[32mReady\x1b[0m")
    lines = KubeadmText(out=out, err=out)
    lines.emit(events.Waiting(what=EVIL, reason="x", elapsed=1.0))
    lines.emit(events.Line(topic="init", text=EVIL))
    told = terminal.getvalue()
    assert told.startswith("\x1b[32mReady\x1b[0m")
    assert told.count("\x1b[1A\x1b[2K") == 1
    assert told.count("\x1b") == 4
    assert told.endswith(f"[init] {SHOWN}\n")


def test_the_live_display_shows_no_foreign_control_characters():
    terminal = Terminal()
    told = Printable(terminal)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", "xterm")
        patch.setattr(sys, "stderr", told)
        with LiveDisplay("up", clock=FakeClock()) as display:
            display.emit(events.Waiting(what=EVIL, reason="x", elapsed=1.0))
            display.emit(events.Warned(text=f"{EVIL}\nwarning: forged"))
            display.emit(events.Progress(task=EVIL, done=1, total=2))
            display.emit(events.State(subject=EVIL, state=EVIL, elapsed=1.0))
    shown = terminal.getvalue()
    assert "\x07" not in shown
    assert "\x1b[2J" not in shown
    assert "\x9b" not in shown
    assert r"\u0007" in shown
    assert "\nwarning: forged" not in shown


@pytest.mark.parametrize(("terminal", "shown"), [(True, f"caf{chr(233)} {SHOWN}\n"), (False, f"caf{chr(233)} {EVIL}\n")])
def test_a_log_is_printable_on_a_terminal_and_as_it_is_in_a_pipe(monkeypatch, terminal, shown):
    raw = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", Printable(raw) if terminal else raw)
    content = f"caf{chr(233)} {EVIL}\n".encode()
    streams.copy_log([content[:4], content[4:]])
    assert raw.buffer.getvalue().decode() == shown


def test_streams_are_made_printable_once(monkeypatch):
    terminal, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", errors)
    streams.secure()
    streams.secure()
    assert sys.stdout is terminal
    assert streams.raw(sys.stderr) is errors
    sys.stderr.writelines(["a\x1b\n", "b\r\n", "\udce9"])
    sys.stderr.flush()
    assert errors.buffer.getvalue() == b"a\\u001b\nb\r\n\\xe9"
