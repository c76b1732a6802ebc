"""The reporter of a command that takes time: JSON lines, the live display on a terminal, or plain lines."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

from kubewright.base.clock import Clock, SystemClock
from kubewright.base.events import Reporter, State
from kubewright.cli.printers.reporters import JsonLines, PlainLines, has_log, logged

POLL_EVERY: Final = 0.2
"""Seconds between two reads: people notice no difference, and the load on the daemon is negligible."""

ReadStates = Callable[[], Mapping[str, str]]
"""Returns the current states by name; empty while there are none. Must not raise."""


class StatePoller:
    """A context manager that polls in a separate thread, and emits a `State` for every change."""

    def __init__(self, look: ReadStates, *, reporter: Reporter, clock: Clock, every: float = POLL_EVERY) -> None:
        self._look = look
        self._reporter = reporter
        self._clock = clock
        self._every = every
        self._start = clock.monotonic()
        self._seen: dict[str, str] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def look(self) -> None:
        """Read the states once, and report those that changed."""
        for subject, state in self._look().items():
            if self._seen.get(subject) != state:
                self._seen[subject] = state
                self._reporter.emit(State(subject=subject, state=state, elapsed=self._clock.monotonic() - self._start))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join(1.0)  # it may be waiting for a daemon that hangs: do not wait for it

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            self.look()


@contextmanager
def progress(title: str, *, form: str, look: ReadStates | None = None) -> Iterator[Reporter]:
    """Yield the reporter for a command that takes time. All of them write to stderr; stdout is for the result.

    `look` is for the live display only: its states are shown together with the events.
    """
    if form != "text":
        yield logged(JsonLines())
    elif not has_log() and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        from kubewright.cli.printers.live import LiveDisplay

        clock = SystemClock()
        with LiveDisplay(title, clock=clock) as display:
            if look is None:
                yield display
                return
            with StatePoller(look, reporter=display, clock=clock):
                yield display
    else:
        yield logged(PlainLines())
