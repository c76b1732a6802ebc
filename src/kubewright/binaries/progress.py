"""Progress reports of long tasks, frequent enough for a live display and rare enough for a log."""

from __future__ import annotations

from typing import Final

from kubewright.base.clock import Clock
from kubewright.base.events import Progress, Reporter

INTERVAL: Final = 0.2
"""Seconds between two events of one task."""


class Meter:
    """Counts one task and emits `Progress` at most five times a second, and once when it ends."""

    def __init__(self, task: str, *, unit: str, reporter: Reporter, clock: Clock, total: float | None = None) -> None:
        self._task = task
        self._unit = unit
        self._reporter = reporter
        self._clock = clock
        self._reported = clock.monotonic() - INTERVAL
        self.done = 0.0
        self.total = total

    def at(self, done: float, *, text: str = "") -> None:
        """Set the completed amount."""
        self.done = done
        now = self._clock.monotonic()
        if now - self._reported >= INTERVAL:
            self._reported = now
            self._emit(text)

    def step(self) -> None:
        """Count one more."""
        self.at(self.done + 1)

    def finish(self) -> None:
        """Report that everything is done."""
        self.total = self.done if self.total is None else self.total
        self.done = self.total
        self._emit("")

    def _emit(self, text: str) -> None:
        self._reporter.emit(Progress(task=self._task, done=self.done, total=self.total, unit=self._unit, text=text))
