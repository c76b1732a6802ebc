"""Reporters: events as kubeadm's text lines, as JSON lines, or as short lines for a log; `live` has the display for terminals."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from typing import Final, TextIO

from kubewright.base import events
from kubewright.base.durations import format_seconds
from kubewright.base.masking import mask
from kubewright.base.quoting import each_text, printable
from kubewright.cli.parser import as_called

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kubewright.cli.wait_line import WaitLine


class KubeadmText:
    """kubeadm's `[topic] text` lines on stdout, each at once, also through a pipe; warnings and what is waited for on stderr.

    Timings and changes are not shown, as there.
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
                self._err.write(as_called(f"warning: {event.text}\n"))
            elif isinstance(event, events.Checked):
                self._err.write(as_called(f"\t[WARNING {event.check}]: {event.text}\n"))

    def _waits(self) -> WaitLine:
        if self._wait is None:
            from kubewright.cli.wait_line import WaitLine  # most commands never wait

            self._wait = WaitLine(self._err)
        return self._wait


class JsonLines:
    """One JSON object per event, on stderr: stdout is for the result."""

    def __init__(self, *, err: TextIO | None = None) -> None:
        self._err = err or sys.stderr
        self._lock = threading.Lock()

    def emit(self, event: events.Event, /) -> None:
        import json

        line = json.dumps(_told(events.as_map(event)), default=str)
        with self._lock:
            self._err.write(line + "\n")
            self._err.flush()


def masked(value: object) -> object:
    """Return a JSON value with its texts masked one by one: in the whole line a mask could swallow a quote."""
    return each_text(value, mask)


def _told(value: object) -> object:
    return each_text(value, lambda text: printable(mask(as_called(text))))


class PlainLines:
    """For a stderr that is not a terminal: what is waited for, progress once in a while, warnings."""

    PROGRESS_EVERY = 10.0

    def __init__(self, *, err: TextIO | None = None) -> None:
        from kubewright.base.clock import SystemClock

        self._err = err or sys.stderr
        self._clock = SystemClock()
        self._told: dict[str, float] = {}
        self._lock = threading.Lock()

    def emit(self, event: events.Event, /) -> None:
        line = self._line(event)
        if line:
            with self._lock:
                self._err.write(mask(as_called(line)) + "\n")
                self._err.flush()

    def _line(self, event: events.Event) -> str:
        if isinstance(event, events.Warned):
            return f"warning: {event.text}"
        if isinstance(event, events.Waiting) and self._due(event.what):
            return f"waiting for {event.what} ({format_seconds(event.elapsed)}): {' '.join(event.reason.split())}"
        if isinstance(event, events.Progress) and self._due(event.task):
            return progress_text(event)
        if isinstance(event, events.State):
            return f"{format_seconds(event.elapsed):>7}  {state_text(event)}"
        return ""

    def _due(self, key: str) -> bool:
        now = self._clock.monotonic()
        if now - self._told.get(key, -self.PROGRESS_EVERY) < self.PROGRESS_EVERY:
            return False
        self._told[key] = now
        return True


MILESTONES: Final[Mapping[str, str]] = {
    "apiReady": "API server ready",
    "controlPlanesReady": "all control planes ready",
    "nodesReady": "all nodes ready",
}
"""What the milestones of `up` are called."""
REACHED: Final = "reached"
"""The state of a milestone."""


def state_text(event: events.State) -> str:
    """Say what has come to be."""
    name = MILESTONES.get(event.subject, event.subject)
    return name if event.state == REACHED else f"{name}: {event.state}"


def progress_text(event: events.Progress) -> str:
    """Say how far a task is: with a percentage where the total is known."""
    share = f" {100 * event.done / event.total:.0f} %" if event.total else ""
    amount = f" {_amount(event.done, event.unit)}" + (f" of {_amount(event.total, event.unit)}" if event.total else "")
    return f"{event.task}{share}{amount if event.unit else ''}{': ' + event.text if event.text else ''}"


def _amount(value: float, unit: str) -> str:
    if unit == "bytes":
        return f"{value / 1e6:.1f} MB"
    return f"{value:.0f} {unit}"
