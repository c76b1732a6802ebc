"""A node that outlives its agent, for processes that run many agents: a failed agent is replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kubewright.agent.node import NodeAgent
from kubewright.base import unexpected


class LastingNode:
    """Keeps an agent for a node until `end` is called: after an error, a new agent takes over the Node with the stored credentials."""

    def __init__(self, make: Callable[[], NodeAgent]) -> None:
        """Make and start the first agent."""
        self._make: Callable[[], NodeAgent] = make
        self._fresh = True
        self.agent = make()
        run = unexpected.keep_running("a node agent", self._run, expected=())
        self._task = asyncio.get_running_loop().create_task(run, name=f"node {self.agent.name}")

    async def end(self) -> None:
        """Stop the agent. Idempotent."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        if not self._fresh:
            self.agent = self._make()
        self._fresh = False
        await self.agent.run()
