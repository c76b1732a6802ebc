"""Time as a seam: only this module asks the operating system for the time.

Synchronous code sleeps through `Clock.sleep`. Asynchronous code awaits `asyncio.sleep` and reads `loop.time()`: there
the event loop is the seam, and tests replace it with one that has virtual time.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def now(self) -> datetime:
        """Return the wall-clock time in UTC, with its time zone."""
        ...

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary moment; they never decrease."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Sleep for this many seconds."""
        ...


class SystemClock:
    """The clock of the operating system."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float, /) -> None:
        time.sleep(seconds)


class FakeClock:
    """A clock that moves only when it is advanced, or when its `sleep` is called."""

    def __init__(self, start: datetime = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed = 0.0

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        return self._elapsed

    def sleep(self, seconds: float, /) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Advance the clock by this many seconds."""
        self._elapsed += seconds


def rfc3339(moment: datetime) -> str:
    """Format a time as the Kubernetes API does: UTC, whole seconds, `Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(moment: datetime) -> str:
    """Format a time as the API's MicroTime: UTC, exactly six fractional digits, `Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
