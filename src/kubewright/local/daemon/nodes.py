"""The nodes of a local cluster: those of its control plane machines, and a fleet of simulated workers, on the daemon's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from kubewright.agent.certificates.bootstrap import TokenBootstrap
from kubewright.agent.dependencies import Seams, Timings
from kubewright.agent.node import NodeAgent
from kubewright.agent.status.facts import MachineProfile, NodeFacts, simulated_machine
from kubewright.agent.view import NodeView
from kubewright.base.clock import Clock, rfc3339
from kubewright.base.unexpected import keep_running
from kubewright.fleet.nodes import Fleet
from kubewright.local.daemon.machine_node import MachineNode, architecture
from kubewright.local.daemon.machines import MachineSupervisors
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord, LocalMachineRecord
from kubewright.pki.pins import Pin
from kubewright.tokens import parse as parse_token


class LocalNodes:
    """All agents of one cluster.

    created ── start() ──> the nodes of the machines run, and the workers that joined before
            ── begin(), end(), join(), leave() ──> ...
            ── stop() ──> stopped
    """

    def __init__(self, paths: ClusterPaths, cluster: ClusterRecord, machines: MachineSupervisors, *, clock: Clock) -> None:
        self._paths = paths
        self._cluster = cluster
        self._machines = machines
        self._clock = clock
        self._bootstraps: list[TokenBootstrap] = []
        self._fleet = Fleet(paths.nodes, facts=self._worker_facts, seams=Seams(clock=clock), timings=Timings.prompt())
        self._nodes: dict[str, MachineNode] = {}
        self._begun = False
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start without waiting for anything. A further machine that has not joined waits for `begin`."""
        for machine in self._machines.supervised():
            if machine == self._machines.first or self._has_joined(machine):
                await self.begin(machine)
        self._tasks = [asyncio.create_task(keep_running("nodes", self._resume, expected=()), name="nodes")]

    async def begin(self, machine: LocalMachineRecord) -> None:
        """Start the node of a machine as soon as its API server listens; one that was started is left alone."""
        if machine.name not in self._nodes:
            self._nodes[machine.name] = node = self._node(machine)
            node.start()

    async def end(self, names: Sequence[str]) -> None:
        """Stop the nodes of some machines."""
        await asyncio.gather(*(self._nodes.pop(name).stop() for name in names if name in self._nodes))

    async def join(self, names: Sequence[str], *, server: str, token: str, pins: Sequence[str]) -> None:
        """Join nodes with a bootstrap token; those that have joined are left alone."""
        bootstrap = TokenBootstrap(server, parse_token(token), pins=[Pin.parse(pin) for pin in pins], clock=self._clock)
        self._bootstraps.append(bootstrap)
        await self._fleet.add(*names, bootstrap=bootstrap)

    async def leave(self, names: Sequence[str]) -> None:
        """Stop workers and delete their certificates."""
        await self._fleet.remove(*names)

    async def restart(self, names: Sequence[str]) -> None:
        """Make nodes register again whose Node objects were deleted."""
        await asyncio.gather(*(self._nodes[name].restart() for name in names if name in self._nodes))
        await self._fleet.restart(*names)

    async def stop(self) -> None:
        """Stop all agents. Idempotent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(node.stop() for node in self._nodes.values()))
        await self._fleet.stop()
        await asyncio.gather(*(bootstrap.close() for bootstrap in self._bootstraps))

    def snapshot(self) -> dict[str, Any]:
        """Return the state of the nodes for `local status`. `machines` are those of the control plane machines.

        `outside` are the workers that have not joined.
        """
        views = [agent.view() for agent in self._agents()]
        found = {**self._summary(), "names": [view.name for view in views], "list": [_node(view) for view in views]}
        return {**found, "machines": sorted(self._nodes), "outside": self._fleet.outside()}

    async def settled(self, *, within: float) -> dict[str, Any]:
        """Wait up to `within` seconds for all nodes to be ready, and return how many are; `up` calls it repeatedly."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                for agent in self._agents():
                    await agent.ready.wait()
        return self._summary()

    def _summary(self) -> dict[str, Any]:
        agents = self._agents()
        trouble = next((node.trouble for node in self._nodes.values() if node.trouble), "")
        return {
            "ready": sum(agent.is_ready for agent in agents),
            "total": max(len(agents), 1),
            "begun": self._begun,
            "reason": f"; {reason}" if (reason := trouble or _why(agents)) else "",
        }

    async def _resume(self) -> None:
        """Start the workers that have joined before, once the first machine serves their kubelet API."""
        await self._nodes[self._machines.first.name].serving.wait()
        without_certificates = set(await self._fleet.without_certificates(*self._cluster.workers))
        await self._fleet.add(*(name for name in self._cluster.workers if name not in without_certificates))
        self._begun = True

    def _node(self, machine: LocalMachineRecord) -> MachineNode:
        first = machine == self._machines.first
        return MachineNode(
            machine,
            self._machines.supervisor(machine.name),
            layout=self._paths.layout(machine.name),
            kubelet_version=self._cluster.kubernetes_version,
            clock=self._clock,
            others=self._fleet.agents if first else tuple,
            joins=not first,
            signed=self._cluster.strict,
        )

    def _has_joined(self, machine: LocalMachineRecord) -> bool:
        """Return whether a further machine has started or completed its join."""
        return Path(self._paths.layout(machine.name).kubeconfig("kubelet")).exists()

    def _agents(self) -> list[NodeAgent]:
        return [*(node.agent for node in self._nodes.values() if node.agent is not None), *self._fleet.agents()]

    @cached_property
    def _profile(self) -> MachineProfile:
        return simulated_machine(kubelet_version=self._cluster.kubernetes_version, architecture=architecture())

    def _worker_facts(self, name: str) -> NodeFacts:
        """Describe a worker: an invented machine.

        All share the address at which the daemon serves their kubelet API.
        """
        own = self._machines.first
        return NodeFacts(name=name, profile=self._profile.named(name), addresses=(own.address,), kubelet_port=own.ports["kubelet"])


def _why(agents: Sequence[NodeAgent]) -> str:
    """Return the problem of one node, else the reason why one is not ready; '' if all are."""
    troubled = next((agent for agent in agents if agent.trouble), None)
    if troubled is not None:
        return f"{troubled.name}: {troubled.trouble}"
    waiting = next((agent for agent in agents if not agent.is_ready), None)
    return f"{waiting.name} {waiting.waits_for}" if waiting is not None else ""


def _node(view: NodeView) -> dict[str, Any]:
    return {
        "name": view.name,
        "phase": view.phase.value,
        "ready": view.ready,
        "pods": view.pods,
        "certificateExpires": rfc3339(view.certificate.expires) if view.certificate.expires else None,
        "trouble": view.trouble,
        "reached": {str(key): round(value, 3) for key, value in view.reached.items()},
    }
