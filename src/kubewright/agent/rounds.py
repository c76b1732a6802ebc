"""Work that comes round again and again, without a task in between: thousands of nodes wait in the event loop's own heap of timers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any


class Rounds:
    """Runs `work`, then waits for `wait()` seconds, and so on.

        made ── start() ──> waiting ⇄ working ── stop() ──> stopped

    A round for which `idle()` is true needs no task and is over at once. `stop` may be called at
    any time and more than once. An error out of `work` goes to the loop's exception handler and the rounds go on: one node's trouble is
    not the others'.
    """

    def __init__(self, work: Callable[[], Awaitable[None]], *, wait: Callable[[], float], idle: Callable[[], bool] = lambda: False) -> None:
        self._work = work
        self._wait = wait
        self._idle = idle
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._running = False
        self._again = False

    def start(self, after: float = 0.0) -> None:
        """Begin, the first round after so many seconds."""
        self._running = True
        self._schedule(after)

    def soon(self) -> None:
        """Have a round now, or another one right after the one that is under way: something has changed. Nothing before `start`."""
        if self._task is not None:
            self._again = True
        elif self._running:
            self._schedule(0.0)

    async def stop(self) -> None:
        """End, in the middle of a round if need be."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def _schedule(self, after: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(after, self._fire)

    def _fire(self) -> None:
        self._timer = None
        if self._idle():
            self._schedule(self._wait())
        else:
            self._task = asyncio.get_running_loop().create_task(self._round())

    async def _round(self) -> None:
        try:
            await self._work()
        except Exception as error:  # the next round is not to be lost; the handler shows what happened
            report(error, "a round of a node agent failed")
        finally:
            self._task = None
            if self._running:
                again, self._again = self._again, False
                self._schedule(0.0 if again else self._wait())


class Tasks:
    """Tasks that belong to one owner: none is forgotten, and all end with it."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something beside everything else; its errors go to the loop's exception handler."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def stop(self) -> None:
        """Cancel all and wait for their end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            report(error, "a task of a node agent failed")


def report(error: BaseException, message: str) -> None:
    """Hand an unexpected error to the event loop's handler."""
    asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})
