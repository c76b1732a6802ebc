"""The nodes of one process: starting, adding, removing and stopping them together."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final

from kubewright.agent.certificates.bootstrap import Bootstrap
from kubewright.agent.certificates.identity import is_usable
from kubewright.agent.certificates.store import FileCredentialStore
from kubewright.agent.dependencies import Seams, Timings
from kubewright.agent.lasting_node import LastingNode
from kubewright.agent.node import NodeAgent
from kubewright.agent.status.facts import NodeFacts
from kubewright.base.errors import UsageError
from kubewright.base.messages import quoted
from kubewright.host.filesystem.files import Files

JOINS: Final = 16
"""Nodes that join at once. More do not join faster, because the API server is the bottleneck."""

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)


class Fleet:
    """Simulated nodes that share one event loop.

        created ── add() ──> running (add and remove freely) ── stop() ──> stopped

    Each node keeps its certificate in its own directory below `directory`, so that a fleet that is started again does
    not join again. The caller is responsible for the Node objects of removed nodes: a node may not delete itself.
    """

    def __init__(
        self,
        directory: Path,
        *,
        facts: Callable[[str], NodeFacts],
        seams: Seams | None = None,
        timings: Timings | None = None,
        joins: int = JOINS,
    ) -> None:
        """Keep the arguments; nothing happens before `add`.

        `facts` returns the facts of a node's machine, given its name.
        """
        self._directory = directory
        self._facts = facts
        self._seams = seams or Seams()
        self._timings = timings or Timings.prompt()
        self._gate = asyncio.Semaphore(joins)
        self._running: dict[str, LastingNode] = {}
        self._stopped = False

    async def without_certificates(self, *names: str) -> list[str]:
        """Return those of the names that have no usable certificate: only they need a token to join."""
        found = []
        for name in names:
            if not is_usable(self._store(name), name, now=self._seams.clock.now()):
                found.append(name)
            await asyncio.sleep(0)  # each name takes milliseconds, and all of them would block the loop for seconds
        return found

    async def add(self, *names: str, bootstrap: Bootstrap | None = None) -> None:
        """Start these nodes; those already running are left alone. Returns without waiting for them.

        `bootstrap` is for those that have no usable certificate, now or after a long pause; nodes that have not joined
        are restarted with it, because their earlier token may have expired.
        Raises UsageError for an invalid node name; nothing is started then.
        """
        for name in names:
            _require_name(name)
        if bootstrap is not None:
            outside = set(self.outside())
            await self._end([name for name in names if name in outside])
        for name in names:
            if name not in self._running and not self._stopped:
                self._running[name] = LastingNode(partial(self._agent, name, bootstrap))
                await asyncio.sleep(0)

    async def remove(self, *names: str) -> None:
        """Stop these nodes and delete their certificates.

        For those that do not run, only their directories are deleted.
        """
        for name in names:
            _require_name(name)
        await self._end([name for name in names if name in self._running])
        for name in names:
            await asyncio.to_thread(self._forget, name)

    async def restart(self, *names: str) -> None:
        """Stop nodes and start them again with their certificates: they register again.

        Those that do not run are left alone.
        """
        found = [name for name in names if name in self._running]
        await self._end(found)
        await self.add(*found)

    def agents(self) -> list[NodeAgent]:
        """Return the running agents."""
        return [node.agent for node in self._running.values()]

    def outside(self) -> list[str]:
        """Return the nodes that were added and have no certificate yet."""
        return [name for name, node in self._running.items() if node.agent.is_outside]

    async def stop(self) -> None:
        """Stop all nodes; their certificates stay. Idempotent."""
        self._stopped = True
        await self._end(list(self._running))

    def _store(self, name: str) -> FileCredentialStore:
        _require_name(name)
        return FileCredentialStore.below(self._directory / name, clock=self._seams.clock, durable=False)

    def _agent(self, name: str, bootstrap: Bootstrap | None) -> NodeAgent:
        return NodeAgent(
            self._facts(name),
            store=self._store(name),
            seams=self._seams,
            bootstrap=bootstrap,
            timings=self._timings,
            gate=self._gate,
        )

    async def _end(self, names: list[str]) -> None:
        await asyncio.gather(*(self._running.pop(name).end() for name in names))

    def _forget(self, name: str) -> None:
        path = PurePosixPath(self._directory / name)
        Files(durable=False).remove(path, below=[PurePosixPath(self._directory)])


def _require_name(name: str) -> None:
    if not _NAME.fullmatch(name) or ".." in name:
        raise UsageError(f"{quoted(name)} cannot be the name of a node", remedy="use lower-case letters, digits, '-' and '.', as in DNS")
