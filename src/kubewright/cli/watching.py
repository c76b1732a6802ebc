"""Looks at a cluster while another thread brings it up, and reports what changes: for the live display only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Self

from kubewright.base.clock import Clock
from kubewright.base.events import Reporter, State

EVERY: Final = 0.2
"""Seconds between two looks: a person sees no less, and the daemon does not notice."""

Look = Callable[[], Mapping[str, str]]
"""Returns the present state of each thing by its name; empty while there is nothing to see. Must not raise."""


class Watch:
    """A context manager that looks again and again, in a thread of its own, and emits a `State` for everything that changed."""

    def __init__(self, look: Look, *, reporter: Reporter, clock: Clock, every: float = EVERY) -> None:
        self._look = look
        self._reporter = reporter
        self._clock = clock
        self._every = every
        self._start = clock.monotonic()
        self._seen: dict[str, str] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def look(self) -> None:
        """Look once."""
        for subject, state in self._look().items():
            if self._seen.get(subject) != state:
                self._seen[subject] = state
                self._reporter.emit(State(subject=subject, state=state, elapsed=self._clock.monotonic() - self._start))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join(1.0)  # it may wait for a daemon that hangs: nobody waits for it

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            self.look()
