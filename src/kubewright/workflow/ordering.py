"""Events in the order of a workflow's tree, though its phases run in another one."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from kubewright.base.events import Event, PhaseFinished, PhaseSkipped, PhaseStarted, Reporter


class InTreeOrder:
    """Hands events on as if phases had run in the order of `names`; those of a phase that runs ahead of others wait for its place.

    `required` are the phases that will certainly run: nothing of a later phase is told before they have ended. `close` hands on what
    still waits: to be called at the end of a run, also of one that fails.
    """

    def __init__(self, inner: Reporter, names: Sequence[str], *, required: frozenset[str]) -> None:
        self._inner = inner
        self._place = {name: place for place, name in enumerate(names)}
        self._open = [place for place, name in enumerate(names) if name in required]
        self._held: dict[int, list[Event]] = {}
        self._current: int | None = None
        self._lock = threading.Lock()

    def emit(self, event: Event, /) -> None:
        with self._lock:
            if isinstance(event, PhaseStarted | PhaseFinished | PhaseSkipped):
                self._tell(self._place.get(event.phase), event)
                self._turn(self._place.get(event.phase), running=isinstance(event, PhaseStarted))
            else:
                self._tell(self._current, event)

    def close(self) -> None:
        """Hand on everything that waits."""
        with self._lock:
            self._open, self._current = [], None
            self._hand_on()

    def _tell(self, place: int | None, event: Event) -> None:
        if place is None or not self._waits(place):
            self._inner.emit(event)
        else:
            self._held.setdefault(place, []).append(event)

    def _turn(self, place: int | None, *, running: bool) -> None:
        """Note which phase runs; the one before has then ended, as has one that says so."""
        ended = {self._current} if running else {place}
        self._current = place if running else None if place == self._current else self._current
        self._open = [one for one in self._open if one not in ended]
        self._hand_on()

    def _waits(self, place: int) -> bool:
        return bool(self._open) and self._open[0] < place

    def _hand_on(self) -> None:
        for place in sorted(self._held):
            if self._waits(place):
                return
            for event in self._held.pop(place):
                self._inner.emit(event)
