"""What a person sees while the cluster of a test run starts: nothing, unless its programs have to be fetched or built first."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from kubewright.base import events
from kubewright.base.clock import Clock, SystemClock

if TYPE_CHECKING:
    import pytest

EVERY: Final = 10.0
"""Seconds between two lines about one task."""


class TerminalLines:
    """A reporter that writes progress and warnings past pytest's capturing; silent in workers, which have no terminal."""

    def __init__(self, config: pytest.Config, *, clock: Clock | None = None) -> None:
        self._terminal = config.pluginmanager.getplugin("terminalreporter")
        self._capture = config.pluginmanager.getplugin("capturemanager")
        self._clock = clock or SystemClock()
        self._told: dict[str, float] = {}
        self._lock = threading.Lock()

    def emit(self, event: events.Event, /) -> None:
        if isinstance(event, events.Warned):
            self._write(f"warning: {event.text}")
        elif isinstance(event, events.Progress) and self._due(event.task):
            share = f" {100 * event.done / event.total:.0f} %" if event.total else ""
            self._write(f"{event.task}{share}")

    def _due(self, task: str) -> bool:
        now = self._clock.monotonic()
        with self._lock:
            if now - self._told.get(task, -EVERY) < EVERY:
                return False
            self._told[task] = now
            return True

    def _write(self, text: str) -> None:
        if self._terminal is None:
            return
        with self._lock:
            if self._capture is None:
                self._terminal.write_line(f"kubewright: {text}")
                return
            with self._capture.global_and_fixture_disabled():
                self._terminal.ensure_newline()
                self._terminal.write_line(f"kubewright: {text}")
