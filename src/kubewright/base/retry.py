"""Trying again: how long to wait between attempts is a value, the waiting goes through the clock."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TypeVar

from kubewright.base.clock import Clock
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Pauses that grow: `first` seconds, then `factor` times the one before, at most `limit`, each longer by up to `jitter` times itself."""

    first: float = 0.05
    factor: float = 1.5
    limit: float = 0.5
    jitter: float = 0.0

    def pauses(self, random: Random | None = None) -> Iterator[float]:
        """Yield the pauses in seconds, without end. Without a `random` there is no jitter."""
        pause = min(self.first, self.limit)
        while True:
            yield pause * (1 + self.jitter * random.uniform()) if random is not None and self.jitter else pause
            pause = min(pause * self.factor, self.limit)

    def pause(self, attempt: int) -> float:
        """Return the pause after an attempt, counted from 0, without jitter."""
        return next(itertools.islice(self.pauses(), attempt, None))


def steady(seconds: float) -> Backoff:
    """Return a back-off whose pauses are all the same."""
    return Backoff(first=seconds, factor=1.0, limit=seconds)


def retry(
    call: Callable[[], T],
    *,
    clock: Clock,
    on: type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool],
    within: float = float("inf"),
    attempts: int | None = None,
    backoff: Backoff | None = None,
    random: Random | None = None,
    failed: Callable[[Exception, int], None] | None = None,
) -> T:
    """Call until it succeeds, and return its result.

    `on` says which errors are worth another attempt: classes, or a function of the error. Gives up after `within` seconds or so many `attempts`,
    whichever comes first, and then lets the last error through as it is. `failed` hears of each failed attempt (from 1) that is followed by another.
    """
    start = clock.monotonic()
    for attempt, pause in enumerate((backoff or Backoff()).pauses(random), start=1):
        try:
            return call()
        except Exception as error:
            left = within - (clock.monotonic() - start)
            if not _worth_it(on, error) or left <= 0 or attempt == attempts:
                raise
            if failed is not None:
                failed(error, attempt)
            clock.sleep(min(pause, left))
    raise AssertionError("pauses do not end")


def _worth_it(on: type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool], error: Exception) -> bool:
    return isinstance(error, on) if isinstance(on, (type, tuple)) else on(error)
