"""Nodes of several zones whose signs of life are sent or held back: registration, status and leases of the agent, with one client for all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final

from agent_cluster import AgentCluster

from kubewright.agent import leases
from kubewright.agent.dependencies import Seams, Timings
from kubewright.agent.leases import LeaseController
from kubewright.agent.node_status import NodeStatusManager
from kubewright.agent.status.facts import NodeFacts, simulated_machine
from kubewright.agent.status.setters import find
from kubewright.base.clock import Clock, SystemClock, rfc3339_micro
from kubewright.base.level import KUBERNETES
from kubewright.base.records import replace
from kubewright.kube.client import AsyncKubeClient
from kubewright.kube.core import Object
from kubewright.kube.resources import LEASE, NODE

ZONE: Final = "topology.kubernetes.io/zone"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
TIMINGS: Final = replace(Timings(), registration_first=0.0, lease_duration=4, status_report=0.0)
"""No wait before registration; a status with each round; after four seconds of silence a node reads its Node again."""

Nodes = Mapping[str, Object]
"""The Nodes of the cluster by name."""


class BackwardClock(SystemClock):
    """A clock that is set back by a minute each time it is read."""

    def __init__(self) -> None:
        self._now = super().now()

    def now(self) -> datetime:
        self._now -= timedelta(minutes=1)
        return self._now


class ZoneNode:
    """One node that sends something only when called. Its sign of life is its lease."""

    def __init__(self, api: AsyncKubeClient, name: str, zone: str, *, clock: Clock | None = None) -> None:
        facts = NodeFacts(
            name=name,
            profile=simulated_machine(kubelet_version=KUBERNETES).named(name),
            addresses=("10.0.0.1",),
            labels=((ZONE, zone),),
            needs_pod_range=False,
        )
        self.api, self.name, self.zone, self.clock = api, name, zone, clock or SystemClock()
        self.status = NodeStatusManager(lambda: api, facts, timings=TIMINGS, seams=Seams(clock=self.clock), changed=lambda: None)
        self.lease = LeaseController(lambda: api, name, timings=TIMINGS, clock=self.clock, accepted=self.status.heartbeat_accepted)

    async def come(self) -> None:
        await self.status.register()
        await self.status.round()

    async def live(self) -> None:
        await self.lease.round()

    async def missed(self) -> None:
        """Send the status again, as an agent does in each period: a lease alone does not make a Node ready again."""
        await self.status.round()


class StatusOnly(ZoneNode):
    """A node without a lease."""

    async def live(self) -> None:
        await self.status.round()


class BackwardLease(ZoneNode):
    """A node that renews its lease to an earlier moment each time, which no agent does."""

    async def live(self) -> None:
        lease = self.lease._lease
        if lease is None:
            await self.lease.round()
            return
        lease["spec"]["renewTime"] = rfc3339_micro(self.clock.now())
        self.lease._lease = await self.api.update(lease)

    async def missed(self) -> None:
        """Stay missed."""


class Zones:
    """Nodes, and how the API server shows them."""

    def __init__(self, api: AsyncKubeClient, nodes: Iterable[ZoneNode]) -> None:
        self.api = api
        self.nodes = {node.name: node for node in nodes}
        self.silent: set[str] = set()
        self._signs = asyncio.Lock()

    async def come(self) -> None:
        await asyncio.gather(*(node.come() for node in self.nodes.values()))

    async def live(self) -> None:
        """Let all nodes that are not silent send a sign of life."""
        async with self._signs:
            await asyncio.gather(*(node.live() for name, node in self.nodes.items() if name not in self.silent))

    async def fall_silent(self, names: Collection[str]) -> None:
        """Stop the signs of some nodes, all at the same moment."""
        await self.live()
        self.silent |= set(names)  # nothing was awaited in between

    async def until(self, holds: Callable[[Nodes], bool], what: str, *, within: float) -> Nodes:
        """Wait until the Nodes are as they should be; returns them. On a busy machine, nodes that are not silent may be missed."""
        try:
            async with asyncio.timeout(within):
                while not holds(found := await self.shown()):
                    missed = with_status(found, "Unknown") & self.nodes.keys() - self.silent
                    await asyncio.gather(*(self.nodes[name].missed() for name in missed))
                    await asyncio.sleep(0.2)
        except TimeoutError:
            silent = sum("NoExecute" in effects(node) for node in found.values())
            raise AssertionError(f"waited {within:.0f} s in vain for {what}; {silent} are evicted") from None
        return found

    async def shown(self) -> Nodes:
        return {node["metadata"]["name"]: node for node in await self.api.list(NODE)}

    async def renewed_at(self, name: str) -> datetime:
        lease = await self.api.get(LEASE, name, leases.NAMESPACE)
        return datetime.fromisoformat(lease["spec"]["renewTime"])


def ready(node: Object) -> Object:
    """Return the condition Ready, empty if there is none."""
    return find(node["status"].get("conditions") or (), "Ready") or {}


def statuses(nodes: Nodes, names: Iterable[str]) -> set[str]:
    return {ready(nodes[name]).get("status", "") for name in names}


def with_status(nodes: Nodes, status: str) -> set[str]:
    """Return the names of the Nodes whose condition Ready has a status."""
    return {name for name, node in nodes.items() if ready(node).get("status") == status}


def effects(node: Object) -> set[str]:
    """Return the effects of the taints that say that a Node is unreachable."""
    return {taint["effect"] for taint in node["spec"].get("taints") or () if taint["key"] == UNREACHABLE}


def evicted(nodes: Nodes, zone: str) -> int:
    """Count the Nodes of a zone whose pods are evicted."""
    return sum("NoExecute" in effects(node) for node in nodes.values() if node["metadata"]["labels"].get(ZONE) == zone)


def names(zone: str, count: int) -> list[str]:
    """Return the names of the first nodes of a zone."""
    return [f"{zone}-{number}" for number in range(count)]


@asynccontextmanager
async def zones(cluster: AgentCluster, make: Callable[[AsyncKubeClient], Iterable[ZoneNode]], *, every: float) -> AsyncIterator[Zones]:
    """Nodes that have registered and are alive."""
    api = AsyncKubeClient(cluster.access(), field_manager="kubelet", timeout=600)
    made = Zones(api, make(api))

    async def lives() -> None:
        while True:
            await made.live()
            await asyncio.sleep(every)

    task = None
    try:
        await made.come()
        task = asyncio.create_task(lives())
        yield made
    finally:
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await api.close()
