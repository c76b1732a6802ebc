"""Waiting for a condition, with a reason while it lasts and a diagnosis when it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kubewright.base.clock import Clock
from kubewright.base.durations import format_seconds
from kubewright.base.errors import WaitTimeout
from kubewright.base.events import Reporter, Waited, Waiting

Condition = Callable[[], str | None]
"""Returns None once it holds, else the reason why it does not. Errors that it raises end the wait."""

REPORT_AFTER = 1.0
"""Seconds between two `Waiting` events: often enough for a live display, rare enough for a log."""


class Waiter(Protocol):
    """How a phase waits. In a plan the answer is immediate, because nothing was started."""

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
        remedy: str = "",
    ) -> Waited:
        """Look until the condition holds.

        `within` is the limit in seconds; looks are `every` seconds apart at first, growing by a half each time up to `at_most`.
        Raises WaitTimeout with the last reason and, where given, the diagnosis.
        """
        ...


class PollingWaiter:
    """Waits for real, reporting at most once a second."""

    def __init__(self, *, clock: Clock, reporter: Reporter) -> None:
        self._clock = clock
        self._reporter = reporter

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
        remedy: str = "",
    ) -> Waited:
        start = self._clock.monotonic()
        pause, told = every, start
        while True:
            reason = condition()
            now = self._clock.monotonic()
            if reason is None:
                done = Waited(what=saying, seconds=now - start)
                self._reporter.emit(done)
                return done
            if now - start >= within:
                raise WaitTimeout(
                    f"gave up waiting for {saying} after {format_seconds(within)}",
                    detail="\n".join(part for part in (reason, diagnose() if diagnose else "") if part),
                    remedy=remedy,
                )
            if now - told >= REPORT_AFTER:
                told = now
                self._reporter.emit(Waiting(what=saying, reason=reason, elapsed=now - start))
            self._clock.sleep(min(pause, max(0.0, start + within - now)))
            pause = min(pause * 1.5, at_most)


class InstantWaiter:
    """Answers at once, without looking: for plans, where what is waited for was never started."""

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
        remedy: str = "",
    ) -> Waited:
        return Waited(what=saying, seconds=0.0)
