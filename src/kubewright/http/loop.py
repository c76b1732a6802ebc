"""The event loop of daemons: uvloop. Alone in its file, so that a daemon can begin before it loads an HTTP library."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


def run(main: Callable[[], Coroutine[Any, Any, T]], /) -> T:
    """Run a daemon's main coroutine on a uvloop event loop and return what it returns."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())
