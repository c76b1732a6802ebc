"""Periodic work that needs no task while it waits, and tasks that end with their owner.

Both survive unexpected errors. Thousands of nodes wait in the event loop's own heap of timers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from kubewright.base import unexpected

_FAILURES: Final = 16
"""The number of failures after which the pause stops growing."""


class Periodic:
    """Runs `work`, then waits for `wait()` seconds, and so on.

        made ── start() ──> waiting ⇄ working ── stop() ──> stopped

    A round for which `idle()` is true needs no task and is over at once. `stop` may be called at
    any time and more than once. An unexpected error in any of the three functions is reported under `name`, and the rounds
    go on after a growing pause.
    """

    def __init__(
        self, name: str, work: Callable[[], Awaitable[None]], *, wait: Callable[[], float], idle: Callable[[], bool] = lambda: False
    ) -> None:
        self._name = name
        self._work = work
        self._wait = wait
        self._idle = idle
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._running = False
        self._again = False
        self._failures = 0

    def start(self, after: float = 0.0) -> None:
        """Start; the first round is after `after` seconds."""
        self._running = True
        self._schedule(after)

    def soon(self) -> None:
        """Run a round now, or another one right after the current one, because something has changed.

        Does nothing before `start`. The pause after a round that failed unexpectedly is not shortened.
        """
        if self._task is not None:
            self._again = True
        elif self._running and not self._failures:
            self._schedule(0.0)

    async def stop(self) -> None:
        """Stop, in the middle of a round if necessary."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _schedule(self, after: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(after, self._fire)

    def _fire(self) -> None:
        self._timer = None
        try:
            idle = self._idle()
        except Exception as error:
            self._next(error)
            return
        if idle:
            self._next()
        else:
            self._task = asyncio.get_running_loop().create_task(self._round())

    async def _round(self) -> None:
        failed: Exception | None = None
        try:
            await self._work()
        except Exception as error:
            failed = error
        finally:
            self._task = None
            if self._running:
                self._next(failed)

    def _next(self, failed: Exception | None = None) -> None:
        """Schedule the next round, later than usual if the last one failed unexpectedly."""
        again, self._again = self._again, False
        wait = 0.0
        try:
            wait = 0.0 if again and failed is None else self._wait()
        except Exception as error:
            failed = failed or error
        if failed is None:
            self._failures = 0
        else:
            wait = max(wait, unexpected.BACKOFF.pause(min(self._failures, _FAILURES)))
            self._failures += 1
            unexpected.report(self._name, failed, again=wait)
        self._schedule(wait)


class Tasks:
    """Tasks that belong to one owner and end with it."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Run something in the background, and start it again after an unexpected error."""
        task = asyncio.get_running_loop().create_task(unexpected.keep_running(name, work, expected=()), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def stop(self) -> None:
        """Cancel all and wait for their end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
