"""What a thread of an `up` sees of the world: a clock that ends with the rest of the run, a reporter that says which machine it is about."""

from __future__ import annotations

import threading
from datetime import datetime

from kubewright.base.clock import Clock
from kubewright.base.errors import Interrupted
from kubewright.base.events import Changed, Event, Line, PhaseFinished, PhaseSkipped, PhaseStarted, Reporter
from kubewright.base.records import replace


class EndingClock:
    """A clock that lets nobody sleep on once all is called off: that ends every wait and every repetition."""

    def __init__(self, inner: Clock, called_off: threading.Event) -> None:
        self._inner = inner
        self._called_off = called_off

    def now(self) -> datetime:
        return self._inner.now()

    def monotonic(self) -> float:
        return self._inner.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep as the other clock does. Raises Interrupted once all is called off."""
        if not self._called_off.is_set():
            self._inner.sleep(seconds)
        if self._called_off.is_set():
            raise Interrupted("another part of the run ended it", remedy="run the same command again: it finishes what was begun")


class NamedReporter:
    """Tells on what happens on one of several machines. Changes are told when they are collected."""

    def __init__(self, name: str, inner: Reporter) -> None:
        self._name = name
        self._inner = inner

    def emit(self, event: Event, /) -> None:
        if isinstance(event, Changed):
            return
        if isinstance(event, PhaseStarted | PhaseFinished | PhaseSkipped):
            event = replace(event, phase=f"{self._name}/{event.phase}")
        elif isinstance(event, Line):
            event = replace(event, text=f"{self._name}: {event.text}")
        self._inner.emit(event)
