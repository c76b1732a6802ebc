"""Reporters: events as kubeadm's text lines, as JSON lines, as short lines, and in the log.

`live` has the display for terminals.

At -v 4, the log contains the decisions of a run: phases, changes and waits; at -v 8, also diffs, with secrets masked as
in a plan.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TextIO

from kubewright.base import events
from kubewright.base.clock import SystemClock
from kubewright.base.durations import format_seconds
from kubewright.base.masking import mask
from kubewright.base.messages import each_text, indented, printable
from kubewright.cli.parsing.parser import as_called
from kubewright.cli.printers.streams import raw

if TYPE_CHECKING:
    import logging
    from collections.abc import Collection


WAIT_TOLD_AFTER: Final = 5.0
"""Seconds of waiting before it is logged: most waits are over by then."""
WAIT_TOLD_EVERY: Final = 10.0
"""Seconds between two log lines about the same wait."""
_UP_AND_CLEAR: Final = "\x1b[1A\x1b[2K"
_WIDTH: Final = 80


class WaitLine:
    """Shows waits on a stream. Before other output is written to the terminal, `clear` must be called."""

    def __init__(self, err: TextIO) -> None:
        self._err = err
        self._terminal = err.isatty() and os.environ.get("TERM") != "dumb"
        self._drawn = False
        self._reported: dict[str, float] = {}

    def show(self, waiting: events.Waiting) -> None:
        """Show a wait and its reason."""
        text = f"waiting for {waiting.what} ({format_seconds(waiting.elapsed)}): {' '.join(waiting.reason.split())}"
        if self._terminal:
            self.clear()
            self._err.write(f"{_cut(mask(text), self._width())}\n")
            self._drawn = True
        elif self._due(waiting):
            self._err.write(f"{mask(text)}\n")
        self._err.flush()

    def clear(self) -> None:
        """Remove the line from the terminal. If it is not removed, it stays as the last known state."""
        if self._drawn:
            raw(self._err).write(_UP_AND_CLEAR)
            self._err.flush()
            self._drawn = False

    def _due(self, waiting: events.Waiting) -> bool:
        last = self._reported.get(waiting.what)
        if waiting.elapsed < WAIT_TOLD_AFTER or (last is not None and 0 <= waiting.elapsed - last < WAIT_TOLD_EVERY):
            return False
        self._reported[waiting.what] = waiting.elapsed
        return True

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._err.fileno()).columns
        except (OSError, ValueError):  # not really a terminal
            return _WIDTH


def _cut(text: str, width: int) -> str:
    return text if len(text) < width else f"{text[: max(1, width - 2)]}…"


class KubeadmText:
    """kubeadm's `[topic] text` lines on stdout, each flushed immediately, also to a pipe; warnings and waits on stderr.

    Timings and changes are not shown, as in kubeadm.
    """

    def __init__(self, *, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._wait: WaitLine | None = None
        self._lock = threading.Lock()

    def emit(self, event: events.Event, /) -> None:
        with self._lock:
            if isinstance(event, events.Waiting):
                self._waits().show(event)
            elif self._wait is not None:
                self._wait.clear()
            if isinstance(event, events.Line):
                self._out.write(as_called(f"[{event.topic}] {event.text}\n" if event.topic else f"{event.text}\n"))
                self._out.flush()
            elif isinstance(event, events.Warned):
                self._err.write(mask(as_called(f"warning: {indented(event.text)}\n")))
            elif isinstance(event, events.Checked):
                self._err.write(as_called(f"\t[WARNING {event.check}]: {indented(event.text)}\n"))

    def _waits(self) -> WaitLine:
        if self._wait is None:
            self._wait = WaitLine(self._err)
        return self._wait


class JsonLines:
    """One JSON object per event, on stderr: stdout is for the result."""

    def __init__(self, *, err: TextIO | None = None) -> None:
        self._err = err or sys.stderr
        self._lock = threading.Lock()

    def emit(self, event: events.Event, /) -> None:
        import json

        line = json.dumps(_reported(events.as_map(event)), default=str)
        with self._lock:
            self._err.write(line + "\n")
            self._err.flush()


def masked(value: object) -> object:
    """Return a JSON value with each of its texts masked: in the whole line, a mask could swallow a quote."""
    return each_text(value, mask)


def _reported(value: object) -> object:
    return each_text(value, lambda text: printable(mask(as_called(text))))


class PlainLines:
    """For a stderr that is not a terminal: waits, occasional progress, warnings."""

    PROGRESS_EVERY = 10.0

    def __init__(self, *, err: TextIO | None = None) -> None:
        self._err = err or sys.stderr
        self._clock = SystemClock()
        self._reported: dict[str, float] = {}
        self._lock = threading.Lock()

    def emit(self, event: events.Event, /) -> None:
        line = self._line(event)
        if line:
            with self._lock:
                self._err.write(mask(as_called(line)) + "\n")
                self._err.flush()

    def _line(self, event: events.Event) -> str:
        if isinstance(event, events.Warned):
            return f"warning: {indented(event.text)}"
        if isinstance(event, events.Waiting) and self._due(event.what):
            return f"waiting for {event.what} ({format_seconds(event.elapsed)}): {' '.join(event.reason.split())}"
        if isinstance(event, events.Progress) and self._due(event.task):
            return progress_text(event)
        if isinstance(event, events.State):
            return f"{format_seconds(event.elapsed):>7}  {state_text(event)}"
        return ""

    def _due(self, key: str) -> bool:
        now = self._clock.monotonic()
        if now - self._reported.get(key, -self.PROGRESS_EVERY) < self.PROGRESS_EVERY:
            return False
        self._reported[key] = now
        return True


MILESTONES: Final[Mapping[str, str]] = {
    "apiReady": "API server ready",
    "controlPlanesReady": "all control planes ready",
    "nodesReady": "all nodes ready",
}
"""The texts for the milestones of `up`."""
REACHED: Final = "reached"
"""The state of a milestone."""


def state_text(event: events.State) -> str:
    """Return the text for a new state."""
    name = MILESTONES.get(event.subject, event.subject)
    return name if event.state == REACHED else f"{name}: {event.state}"


def progress_text(event: events.Progress) -> str:
    """Return the text for the progress of a task: with a percentage if the total is known."""
    share = f" {100 * event.done / event.total:.0f} %" if event.total else ""
    amount = f" {_amount(event.done, event.unit)}" + (f" of {_amount(event.total, event.unit)}" if event.total else "")
    return f"{event.task}{share}{amount if event.unit else ''}{': ' + event.text if event.text else ''}"


def _amount(value: float, unit: str) -> str:
    if unit == "bytes":
        return f"{value / 1e6:.1f} MB"
    return f"{value:.0f} {unit}"


class MachineText:
    """Prints events as kubeadm does.

    Phases skipped for one of the reasons in `silent` are not reported; None: for any.
    """

    def __init__(self, *, silent: Collection[str] | None = ()) -> None:
        self._lines = KubeadmText()
        self._silent = silent

    def emit(self, event: events.Event, /) -> None:
        match event:
            case events.Line(topic="", text=text):
                sys.stdout.write(as_called(f"\n{text}\n"))
            case events.PhaseSkipped(phase=name, reason=reason):
                if self._silent is not None and reason not in self._silent:
                    topic, _, rest = name.partition("/")
                    self._lines.emit(events.Line(topic=topic, text=f"Skipping {rest or 'phase'}: {reason}"))
            case _:
                self._lines.emit(event)


class ChangeLines:
    """Prints one line for each change; all other events as kubeadm does."""

    def __init__(self) -> None:
        self._lines = KubeadmText()

    def emit(self, event: events.Event, /) -> None:
        if isinstance(event, events.Changed):
            if event.change:
                reason = f" ({event.change.reason})" if event.change.reason else ""
                sys.stdout.write(f"{event.change.action.value} {event.change.target}{reason}\n")
        else:
            self._lines.emit(event)


DECISIONS = 4
DIFFERENCES = 8


def has_log() -> bool:
    """Return whether a log was requested. It would interfere with a live display."""
    return _log_at(1) is not None


def logged(reporter: events.Reporter) -> events.Reporter:
    """Return a reporter that also logs its events; the same one if nothing would be logged."""
    log = _log_at(DECISIONS)
    return reporter if log is None else _Logged(reporter, log)


def _log_at(verbosity: int) -> logging.Logger | None:
    """Return the log if it shows events at a verbosity.

    Without -v, nothing is set up, and `logging` is not imported.
    """
    if "kubewright.base.logs" not in sys.modules:
        return None
    import logging

    from kubewright.base.logs import level_of

    log = logging.getLogger(__name__)
    return log if log.isEnabledFor(level_of(verbosity)) else None


class _Logged:
    """Writes events to the log, then forwards them."""

    def __init__(self, reporter: events.Reporter, log: logging.Logger) -> None:
        self._reporter = reporter
        self._log = log

    def emit(self, event: events.Event, /) -> None:
        from kubewright.base.logs import verbose

        text = _log_text(event)
        if text:
            verbose(self._log, DECISIONS, "%s", text)
        if isinstance(event, events.Changed) and event.change.diff:
            verbose(self._log, DIFFERENCES, "difference of %s:\n%s", event.change.target, event.change.diff)
        self._reporter.emit(event)


def _log_text(event: events.Event) -> str:
    match event:
        case events.PhaseStarted(phase=phase):
            return f"phase {phase} begins"
        case events.PhaseFinished(phase=phase, seconds=seconds):
            return f"phase {phase} took {format_seconds(seconds)}"
        case events.PhaseSkipped(phase=phase, reason=reason):
            return f"phase {phase} is left out: {reason}"
        case events.Changed(change=change):
            return f"{change.target}: {change.action.value}{f' ({change.reason})' if change.reason else ''}"
        case events.Waiting(what=what, reason=reason, elapsed=elapsed):
            return f"waiting for {what} ({format_seconds(elapsed)}): {' '.join(reason.split())}"
        case events.Waited(what=what, seconds=seconds):
            return f"waited for {what}: {format_seconds(seconds)}"
        case events.State(subject=subject, state=state):
            return f"{subject}: {state}"
    return ""
