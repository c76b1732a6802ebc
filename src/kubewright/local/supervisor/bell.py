"""Waking everybody who waits for a change, without a queue per listener: what matters is the state now, not each step to it."""

from __future__ import annotations

import asyncio


class Bell:
    """Counts rings. Whoever remembers the last count it saw never misses one."""

    def __init__(self) -> None:
        self.count = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def ring(self) -> None:
        """Wake everybody."""
        self.count += 1
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def heard(self, seen: int) -> int:
        """Return the count as soon as it is not `seen`."""
        if self.count == seen:
            future = asyncio.get_running_loop().create_future()
            self._waiting.add(future)
            try:
                await future
            finally:
                self._waiting.discard(future)
        return self.count
