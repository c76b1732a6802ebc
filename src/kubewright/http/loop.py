"""The event loop of daemons: uvloop. Alone in its file, so that a daemon can begin before it loads an HTTP library."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvloop

from kubewright.base import unexpected

T = TypeVar("T")


def run(main: Callable[[], Coroutine[Any, Any, T]], /) -> T:
    """Run a daemon's main coroutine on a uvloop event loop and return what it returns.

    Errors in callbacks, and in tasks that nothing awaits, are logged and counted as unexpected errors. The process may open as many files as its
    hard limit allows: service managers set a soft limit of 1,024, which the connections of a few ports, or of many nodes, can exhaust.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.get_loop().set_exception_handler(_report)
        return runner.run(main())


async def readable(file: int | socket.socket) -> None:
    """Wait until a file has something to read, a socket has a client or lost its peer, or the process of a pidfd has ended."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(file, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(file)


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if error is not None:
        unexpected.report("the event loop", error)
    else:
        loop.default_exception_handler(context)
