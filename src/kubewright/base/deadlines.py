"""Deadlines around a piece of work: operations with a timeout ask here how much time is left.

A wait sets its deadline (`holding`) without knowing what its checks do. Sockets (`http.deadlines`), programs
(`host.programs.commands`) and calls of the container runtime (`host.cri`) keep all current deadlines of their thread.
A new thread begins without deadlines, unless its work is `carried` there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Final, ParamSpec, TypeVar

from kubewright.base.clock import Clock, SystemClock

P = ParamSpec("P")
T = TypeVar("T")

_CLOCK: Final = SystemClock()


class Deadline:
    """A moment by which work must be finished, `seconds` from now. None or infinity means that there is no limit."""

    def __init__(self, seconds: float | None, *, clock: Clock = _CLOCK) -> None:
        self._clock = clock
        self._end = None if seconds is None or seconds == float("inf") else clock.monotonic() + seconds

    def left(self) -> float | None:
        """Return the remaining seconds, None without a limit. Raises TimeoutError if none remain."""
        if self._end is None:
            return None
        left = self._end - self._clock.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline has passed")
        return left


_RUNNING: Final[ContextVar[tuple[Deadline, ...]]] = ContextVar("deadlines", default=())


@contextmanager
def holding(*deadlines: Deadline) -> Iterator[None]:
    """Apply deadlines in this block, in addition to the current ones."""
    before = _RUNNING.set((*_RUNNING.get(), *deadlines))
    try:
        yield
    finally:
        _RUNNING.reset(before)


def left(silence: float | None = None) -> float | None:
    """Return how many seconds the next step may take, at most `silence`.

    Raises TimeoutError if a deadline has passed.
    """
    bounds = [bound for bound in (silence, *(deadline.left() for deadline in _RUNNING.get())) if bound is not None]
    return min(bounds) if bounds else None


def at_most(seconds: float) -> float:
    """Return the seconds, limited by the current deadlines: 0 if one has passed."""
    try:
        return left(seconds) or 0.0
    except TimeoutError:
        return 0.0


def carried(work: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function so that the current deadlines also apply in other threads."""
    here = copy_context()

    def call(*arguments: P.args, **more: P.kwargs) -> T:
        return here.copy().run(work, *arguments, **more)  # two threads cannot enter the same context

    return call
