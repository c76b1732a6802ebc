"""What others chose, such as names of files, cannot move the cursor of who reads our output."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys

import pytest

from kubewright.base import events
from kubewright.base.clock import FakeClock
from kubewright.cli import streams
from kubewright.cli.live import LiveDisplay
from kubewright.cli.reporters import KubeadmText
from kubewright.cli.streams import Printable

EVIL = "\x1b[2J\x1b]0;title\x07\r\x9b8m"
SHOWN = r"\u001b[2J\u001b]0;title\u0007\u000d\u009b8m"


class Terminal(io.StringIO):
    """A terminal in memory."""

    def isatty(self):
        return True


def kubewright(*words: str, **more: object) -> subprocess.CompletedProcess[bytes]:
    program = [sys.executable, "-m", "kubewright", *words]
    return subprocess.run(program, check=False, timeout=60, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more})


def test_an_error_shows_the_name_of_a_file_without_control_characters(tmp_path):
    done = kubewright("config", "validate", "--config", str(tmp_path / EVIL))
    assert done.returncode == 1
    assert SHOWN in done.stderr.decode()
    assert [byte for byte in b"\x1b\x07\r\x9b" if byte in done.stderr.replace(b"\xc2\x9b", b"\x9b")] == []


def test_a_result_is_printable_on_a_terminal_and_as_it_is_in_a_pipe(tmp_path):
    words = "local", "list", "--state-dir", str(tmp_path / EVIL)
    piped = kubewright(*words).stdout.decode()
    assert EVIL in piped
    reader, writer = pty.openpty()
    try:
        assert kubewright(*words, stdout=writer).returncode == 0
        told = os.read(reader, 65536).decode()
    finally:
        os.close(reader)
        os.close(writer)
    assert EVIL not in told
    assert told.replace("\r\n", "\n") == piped.replace(EVIL, SHOWN)


def test_our_own_colours_and_the_line_that_is_drawn_again_go_through(monkeypatch):
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


def test_the_live_display_shows_no_control_characters_of_others():
    terminal = Terminal()
    told = Printable(terminal)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", "xterm")
        patch.setattr(sys, "stderr", told)
        with LiveDisplay("up", clock=FakeClock()) as display:
            display.emit(events.Waiting(what=EVIL, reason="x", elapsed=1.0))
            display.emit(events.Warned(text=EVIL))
            display.emit(events.Progress(task=EVIL, done=1, total=2))
            display.emit(events.State(subject=EVIL, state=EVIL, elapsed=1.0))
    shown = terminal.getvalue()
    assert "\x07" not in shown
    assert "\x1b[2J" not in shown
    assert "\x9b" not in shown
    assert r"\u0007" in shown


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
