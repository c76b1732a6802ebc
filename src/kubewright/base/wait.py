"""Waiting for a condition, with the reason while it lasts and a diagnosis if it fails; and retrying calls.

Pauses are values; the clock does the sleeping.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TypeVar

from kubewright.base import deadlines
from kubewright.base.clock import Clock
from kubewright.base.deadlines import Deadline, holding
from kubewright.base.durations import format_seconds
from kubewright.base.errors import WaitTimeout
from kubewright.base.events import Reporter, Waited, Waiting
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass

T = TypeVar("T")

Condition = Callable[[], str | None]
"""Returns None once the condition holds, otherwise the reason why it does not. An error that it raises ends the wait."""
Remedy = str | Callable[[], str]
"""The hint for a failed wait. A function is called after the diagnosis, and may use its findings."""
Failed = Callable[[Exception, int], None]
"""Called after a failed attempt with its error and its number, from 1 on."""
REPORT_AFTER = 1.0
"""Seconds between two `Waiting` events: often enough for a live display, rare enough for a log."""
LOOK_AT_LEAST = 1.0
"""Seconds that each look or attempt gets, even at the end of a wait, so that a slow answer still counts. A wait may take that much longer."""


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Growing pauses: `first` seconds, then `factor` times the one before, at most `limit`; jitter adds up to `jitter` times the pause."""

    first: float = 0.05
    factor: float = 1.5
    limit: float = 0.5
    jitter: float = 0.0

    def pauses(self, random: Random | None = None) -> Iterator[float]:
        """Yield the pauses in seconds, endlessly. Without `random` there is no jitter."""
        pause = min(self.first, self.limit)
        while True:
            yield pause * (1 + self.jitter * random.uniform()) if random is not None and self.jitter else pause
            pause = min(pause * self.factor, self.limit)

    def pause(self, attempt: int) -> float:
        """Return the pause after an attempt, counted from 0, without jitter."""
        return next(itertools.islice(self.pauses(), attempt, None))


def steady(seconds: float) -> Backoff:
    """Return a back-off with equal pauses."""
    return Backoff(first=seconds, factor=1.0, limit=seconds)


def look_until(end: float, *, clock: Clock) -> AbstractContextManager[None]:
    """Limit one look or attempt of a wait that ends at `end` (a time of the clock): until then, or for `LOOK_AT_LEAST` seconds."""
    return holding(Deadline(max(end - clock.monotonic(), LOOK_AT_LEAST), clock=clock))


def retry(
    call: Callable[[], T],
    *,
    clock: Clock,
    on: type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool],
    within: float = float("inf"),
    attempts: int | None = None,
    backoff: Backoff | None = None,
    failed: Failed | None = None,
) -> T:
    """Call until it succeeds, and return its result.

    `on` says which errors are worth another attempt: classes, or a function of the error. After `within` seconds or
    `attempts` attempts, whichever comes first, the last error is raised unchanged. An attempt that hangs ends at that
    time too, or `LOOK_AT_LEAST` seconds after its start. `failed` is called after each failed attempt (counted from
    1) that is followed by another.
    """
    end = clock.monotonic() + deadlines.at_most(within)
    for attempt, pause in enumerate((backoff or Backoff()).pauses(), start=1):
        try:
            with look_until(end, clock=clock):
                return call()
        except Exception as error:
            left = end - clock.monotonic()
            if not _worth_it(on, error) or left <= 0 or attempt == attempts:
                raise
            if failed is not None:
                failed(error, attempt)
            clock.sleep(min(pause, left))
    raise AssertionError("pauses do not end")


def reporting(what: str, *, clock: Clock, reporter: Reporter) -> Failed:
    """Return a `failed` for `retry` that reports the last error as the reason for waiting, at most once a second."""
    start = reported = clock.monotonic()

    def report(error: Exception, _: int) -> None:
        nonlocal reported
        now = clock.monotonic()
        if now - reported >= REPORT_AFTER:
            reported = now
            reporter.emit(Waiting(what=what, reason=str(error), elapsed=now - start))

    return report


def _worth_it(on: type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool], error: Exception) -> bool:
    return isinstance(error, on) if isinstance(on, (type, tuple)) else on(error)


@dataclass(frozen=True, kw_only=True)
class Wait:
    """One wait: the condition, the limit, and the texts for progress and errors. The fields are the arguments of `Waiter.until`."""

    condition: Condition
    within: float
    saying: str
    every: float
    at_most: float
    diagnose: Callable[[], str] | None
    remedy: Remedy


class Waiter(ABC):
    """How a phase waits. In a plan it does not wait, because nothing was started."""

    def until(
        self,
        condition: Condition,
        /,
        *,
        within: float,
        saying: str,
        every: float = 0.05,
        at_most: float = 0.5,
        diagnose: Callable[[], str] | None = None,
        remedy: Remedy = "",
    ) -> Waited:
        """Wait until the condition holds.

        `within` is the limit in seconds. Looks are `every` seconds apart at first; the pause grows by half each time,
        up to `at_most`. A look that hangs ends at the limit too, or `LOOK_AT_LEAST` seconds after its start. Raises
        WaitTimeout with the elapsed time, the last reason and the diagnosis, if there is one.
        """
        return self.wait(
            Wait(condition=condition, within=within, saying=saying, every=every, at_most=at_most, diagnose=diagnose, remedy=remedy)
        )

    @abstractmethod
    def wait(self, asked: Wait, /) -> Waited:
        """Wait as `until` describes."""


class PollingWaiter(Waiter):
    """Really waits, and reports at most once a second."""

    def __init__(self, *, clock: Clock, reporter: Reporter) -> None:
        self._clock = clock
        self._reporter = reporter

    def wait(self, asked: Wait, /) -> Waited:
        start = reported = self._clock.monotonic()
        end, pause = start + deadlines.at_most(asked.within), asked.every
        while True:
            with look_until(end, clock=self._clock):
                reason = asked.condition()
            now = self._clock.monotonic()
            if reason is None:
                done = Waited(what=asked.saying, seconds=now - start)
                self._reporter.emit(done)
                return done
            if now >= end:
                detail = "\n".join(part for part in (reason, asked.diagnose() if asked.diagnose else "") if part)
                raise WaitTimeout(
                    f"gave up waiting for {asked.saying} after {format_seconds(now - start)}",
                    detail=detail,
                    remedy=asked.remedy if isinstance(asked.remedy, str) else asked.remedy(),
                )
            if now - reported >= REPORT_AFTER:
                reported = now
                self._reporter.emit(Waiting(what=asked.saying, reason=reason, elapsed=now - start))
            self._clock.sleep(min(pause, end - now))
            pause = min(pause * 1.5, asked.at_most)


class InstantWaiter(Waiter):
    """Returns at once without looking, for plans, in which nothing was started. `report` is called with the description of each wait."""

    def __init__(self, report: Callable[[str], None] | None = None) -> None:
        self._report = report

    def wait(self, asked: Wait, /) -> Waited:
        if self._report is not None:
            self._report(asked.saying)
        return Waited(what=asked.saying, seconds=0.0)
