"""Work that is begun in the background before its result is needed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundTask(Generic[T]):
    """Runs a function once: in a thread from `begin` on, otherwise when its result is requested.

    It uses `threading` alone: importing a pool takes longer than a whole reset of an empty machine.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._done: list[T] = []
        self._failed: list[Exception] = []
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the work in the background, unless it was started."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def result(self) -> T:
        """Wait for the function and return its result, or raise its exception."""
        self.begin()
        assert self._thread is not None
        self._thread.join()
        for error in self._failed:
            raise error
        return self._done[0]

    def _run(self) -> None:
        try:
            self._done.append(self._work())
        except Exception as error:  # raised when the result is requested
            self._failed.append(error)
