"""Common parts of the commands that run daemons: they run until a signal arrives, and report their state to the service manager."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final

from kubewright.base import unexpected
from kubewright.host.notify import Notifier

_log = logging.getLogger(__name__)

_LOOK: Final = 0.05
_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)


async def until_stopped(
    work: Callable[[], Awaitable[None]],
    *,
    alongside: Callable[[], Coroutine[None, None, None]],
    stopping: Callable[[], None],
    reload: Callable[[], None] | None = None,
) -> None:
    """Run `work` until a signal arrives, and `alongside` concurrently.

    Exceptions of the work are raised. SIGHUP calls `reload`, if given.
    """
    running = asyncio.get_running_loop()
    task = asyncio.ensure_future(work())
    other = asyncio.create_task(unexpected.keep_running("reports of a daemon", alongside, expected=()), name="reports of a daemon")
    stopped = False

    def stop(number: signal.Signals) -> None:
        nonlocal stopped
        stopped = True
        _log.info("stopping, after %s", number.name)
        stopping()
        task.cancel()

    for number in _STOPPING:
        running.add_signal_handler(number, stop, number)
    if reload is not None:
        running.add_signal_handler(signal.SIGHUP, reload)
    try:
        await task
    except asyncio.CancelledError:
        if not stopped:
            raise
    finally:
        other.cancel()
        await asyncio.wait((other,))


async def report_status(notifier: Notifier, *, ready: Callable[[], bool], status: Callable[[], str]) -> None:
    """Report the completed start to the service manager, and then keep-alive messages and each new status, from the loop that does the work."""
    while not ready():
        await asyncio.sleep(_LOOK)
    reported = status()
    notifier.ready(reported)
    while True:
        if (found := status()) != reported:
            reported = found
            notifier.status(reported)
        if notifier.watchdog is not None:
            notifier.alive()
        await asyncio.sleep(min(notifier.watchdog or 1.0, 1.0))
