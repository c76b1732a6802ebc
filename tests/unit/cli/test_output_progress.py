"""What is shown while a command works: a live display on terminals, plain lines elsewhere, JSON lines for programs; never on stdout."""

from __future__ import annotations

import io
import json
import sys

import pytest
from rich.console import Console

from kubewright.base import events
from kubewright.base.clock import FakeClock
from kubewright.base.events import RecordingReporter
from kubewright.cli.printers.live import LiveDisplay
from kubewright.cli.printers.progress import StatePoller, progress
from kubewright.cli.printers.reporters import JsonLines, KubeadmText, PlainLines, progress_text

STATES = (
    events.State(subject="apiReady", state="reached", elapsed=2.7),
    events.State(subject="etcd", state="Ready", elapsed=0.4),
    events.State(subject="nodes", state="2 of 4 ready", elapsed=3.0),
)


def picture(*told: events.Event, width: int = 60, **options: object) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, highlight=False, _environ={"TERM": "xterm"}, **options)
    display = LiveDisplay("cluster demo", clock=FakeClock(), console=console)
    for event in told:
        display.emit(event)
    console.print(display.picture())
    return out.getvalue()


def test_the_display_shows_components_and_nodes_above_milestones():
    lines = picture(*STATES, no_color=True).replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "").splitlines()
    assert lines[0].split() == [lines[0][0], "cluster", "demo", "0.00s"]
    assert [line.split() for line in lines[2:]] == [
        ["etcd", "Ready", "0.40s"],
        ["nodes", "2", "of", "4", "ready", "3.0s"],
        ["API", "server", "ready", "reached", "2.7s"],
    ]


@pytest.mark.parametrize("width", [40, 60, 100])
def test_no_line_is_longer_than_the_terminal_is_wide_and_a_long_reason_takes_one_line(width):
    reason = events.Waiting(what="all nodes to be ready", reason="word " * 100 + "\nsecond line", elapsed=2.0)
    lines = picture(reason, no_color=True).splitlines()
    assert len(lines) == 2
    out = picture(reason, *STATES, width=width, color_system=None, no_color=True)
    assert len(out.splitlines()) == 5
    assert [line for line in out.splitlines() if len(line) > width] == []


def test_the_display_is_coloured_unless_disabled():
    assert "\x1b[32m" in picture(*STATES, color_system="standard")
    assert "\x1b[32m" not in picture(*STATES, color_system="standard", no_color=True)


def test_the_display_masks_secrets():
    told = events.Waiting(what="the token abcdef.0123456789abcdef", reason="not yet", elapsed=1.0)
    assert "0123456789abcdef" not in picture(told)


def test_a_task_with_a_known_size_has_a_bar_and_one_without_a_line():
    shown = picture(events.Progress(task="kube-apiserver", done=30, total=120), no_color=True)
    assert "kube-apiserver" in shown
    assert "25 %" in shown
    assert "linking etcd" in picture(events.Progress(task="etcd", done=0, text="linking etcd"))


def test_warnings_stay_after_the_display_ends():
    out = io.StringIO()
    with LiveDisplay("one", clock=FakeClock(), console=Console(file=out, width=60, force_terminal=True)) as display:
        display.emit(events.Warned(text="the disk is nearly full"))
    assert out.getvalue().rstrip().endswith("warning: the disk is nearly full\x1b[0m")


def plain(*told: events.Event) -> str:
    err = io.StringIO()
    reporter = PlainLines(err=err)
    for event in told:
        reporter.emit(event)
    return err.getvalue()


def test_plain_lines_are_short_and_rarely_repeated():
    waiting = events.Waiting(what="the API server", reason="not yet:\nsome hook", elapsed=1.2)
    assert plain(waiting, waiting, *STATES, events.PhaseStarted(phase="certs"), events.Warned(text="odd")) == (
        "waiting for the API server (1.2s): not yet: some hook\n"
        "   2.7s  API server ready\n"
        "  0.40s  etcd: Ready\n"
        "   3.0s  nodes: 2 of 4 ready\n"
        "warning: odd\n"
    )


class Terminal(io.StringIO):
    """A stream that reports that it is a terminal."""

    def isatty(self):
        return True


def waits(err, *elapsed: float, what="the API server", reason="etcd ended\nwith code 1"):
    out = io.StringIO()
    reporter = KubeadmText(out=out, err=err)
    for seconds in elapsed:
        reporter.emit(events.Waiting(what=what, reason=reason, elapsed=seconds))
    reporter.emit(events.Waited(what=what, seconds=1.0))
    reporter.emit(events.Line(topic="addons", text="done"))
    assert out.getvalue() == "[addons] done\n"
    return err.getvalue()


def test_lines_reach_a_pipe_at_once():
    pipe = io.BytesIO()
    out = io.TextIOWrapper(pipe, encoding="utf-8")
    KubeadmText(out=out).emit(events.Line(topic="certs", text="Generated"))
    assert pipe.getvalue() == b"[certs] Generated\n"


def test_long_waits_are_logged_occasionally():
    told = waits(io.StringIO(), 1, 4.9, 5, 6, 14.9, 15, 16)
    assert told == "waiting for the API server (5.0s): etcd ended with code 1\nwaiting for the API server (15.0s): etcd ended with code 1\n"


def test_a_second_wait_of_the_same_name_is_reported_too():
    assert waits(io.StringIO(), 30, 6).count("\n") == 2


def test_a_terminal_shows_one_line_that_disappears_after_the_wait():
    told = waits(Terminal(), 1, 2, reason="x" * 200)
    first, second, rest = told.split("\x1b[1A\x1b[2K")
    assert rest == ""
    assert first.startswith("waiting for the API server (1.0s): xxx")
    assert second.startswith("waiting for the API server (2.0s): xxx")
    assert [len(line) for line in (first, second)] == [80, 80]


def test_a_wait_that_fails_leaves_its_last_reason():
    err = Terminal()
    KubeadmText(out=io.StringIO(), err=err).emit(events.Waiting(what="it", reason="not yet", elapsed=1.0))
    assert err.getvalue() == "waiting for it (1.0s): not yet\n"


def test_json_lines_are_one_object_each():
    err = io.StringIO()
    reporter = JsonLines(err=err)
    for event in (*STATES, events.Warned(text="token abcdef.0123456789abcdef")):
        reporter.emit(event)
    lines = [json.loads(line) for line in err.getvalue().splitlines()]
    assert len(lines) == 4
    assert "0123456789abcdef" not in err.getvalue()


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (events.Progress(task="etcd", done=5e6, total=20e6, unit="bytes"), "etcd 25 % 5.0 MB of 20.0 MB"),
        (events.Progress(task="etcd", done=5e6, unit="bytes"), "etcd 5.0 MB"),
        (
            events.Progress(task="kubectl", done=3, total=4, unit="packages", text="linking"),
            "kubectl 75 % 3 packages of 4 packages: linking",
        ),
        (events.Progress(task="kubectl", done=3), "kubectl"),
    ],
)
def test_progress_shows_the_fraction_of_a_task(event, text):
    assert progress_text(event) == text


class Err(io.StringIO):
    def __init__(self, *, tty: bool) -> None:
        super().__init__()
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


@pytest.mark.parametrize(
    ("form", "tty", "term", "kind"),
    [
        ("text", True, "xterm", LiveDisplay),
        ("text", True, "dumb", PlainLines),
        ("text", False, "xterm", PlainLines),
        ("json", True, "xterm", JsonLines),
        ("yaml", False, "xterm", JsonLines),
    ],
)
def test_the_reporter_depends_on_terminal_and_flags(form, tty, term, kind, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", Err(tty=tty))
    monkeypatch.setenv("TERM", term)
    looks = []
    with progress("one", form=form, look=lambda: looks.append(1) or {}) as reporter:
        assert isinstance(reporter, kind)
        reporter.emit(STATES[0])
    assert capsys.readouterr().out == ""
    assert not looks or kind is LiveDisplay


def test_a_watch_reports_what_changed_and_nothing_else():
    clock, seen = FakeClock(), RecordingReporter()
    answers = iter([{}, {"etcd": "Running"}, {"etcd": "Running", "nodes": "0 of 2 ready"}, {"etcd": "Ready", "nodes": "0 of 2 ready"}])
    watch = StatePoller(lambda: next(answers), reporter=seen, clock=clock)
    for _ in range(4):
        clock.advance(0.5)
        watch.look()
    assert seen.events == [
        events.State(subject="etcd", state="Running", elapsed=1.0),
        events.State(subject="nodes", state="0 of 2 ready", elapsed=1.5),
        events.State(subject="etcd", state="Ready", elapsed=2.0),
    ]


def test_a_watch_ends_with_its_block():
    watch = StatePoller(lambda: {"etcd": "Ready"}, reporter=RecordingReporter(), clock=FakeClock(), every=0.001)
    with watch:
        pass
    assert not watch._thread.is_alive()
