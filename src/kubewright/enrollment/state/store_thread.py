"""A hub's store for its event loop: one thread performs all work on it, in order, so that no request waits for a disk on the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from kubewright.enrollment.state.store import HubStore

T = TypeVar("T")


class StoreThread:
    """Runs work on a store in its thread. `close` completes pending work, and closes the store."""

    def __init__(self, store: HubStore, *, require: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._require = require
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")

    async def ask(self, work: Callable[[HubStore], T]) -> T:
        """Run a function with the store, and return its result.

        Raises its exceptions, and errors that prevent this process from using the store.
        """
        self._require()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, self._store)

    def close(self) -> None:
        """Close the store. Idempotent."""
        self._thread.shutdown()
        self._store.close()
