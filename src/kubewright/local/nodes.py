"""The nodes of a local cluster: an agent for the control plane's machine, and a fleet of simulated workers, on the daemon's event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Final

from kubewright.agent.home_files import DirectoryHome
from kubewright.agent.joining import TokenBootstrap
from kubewright.agent.kubelet_api import KubeletServer
from kubewright.agent.node import NodeAgent, NodeView, Seams
from kubewright.agent.profile import MachineProfile, simulated_machine
from kubewright.agent.status import NodeFacts
from kubewright.agent.timings import Timings
from kubewright.base.clock import Clock, rfc3339
from kubewright.base.errors import KubewrightError
from kubewright.fleet.nodes import Fleet
from kubewright.host.facts import ARCHITECTURES, machine
from kubewright.host.files import Files
from kubewright.http.messages import Response
from kubewright.http.serving import Request, Route, Server, serve
from kubewright.local.places import Places
from kubewright.local.record import ClusterRecord, Machine
from kubewright.local.static_pods import ComponentLogs, SupervisedPods
from kubewright.local.supervisor import Supervisor
from kubewright.pki.pins import Pin
from kubewright.tokens import parse as parse_token

_SERVE_AGAIN: Final = 0.1
_PORT_LOOK: Final = 0.01
"""Seconds between two looks whether the API server listens: an agent that finds nobody waits much longer before it tries again."""


class LocalNodes:
    """All agents of one cluster.

    made ── start() ──> the control plane's agent runs; workers that joined before run ── join(), leave() ──> ... ── stop() ──> stopped
    """

    def __init__(self, places: Places, cluster: ClusterRecord, supervisor: Supervisor, *, clock: Clock) -> None:
        self._places = places
        self._cluster = cluster
        self._clock = clock
        self._seams = Seams(clock=clock)
        self._bootstraps: list[TokenBootstrap] = []
        self._static = SupervisedPods(supervisor)
        self._fleet = Fleet(places.nodes, facts=self._worker_facts, seams=self._seams, timings=Timings.prompt())
        self._own: NodeAgent | None = None
        self._own_task: asyncio.Task[None] | None = None
        self._begun = False
        self._trouble = ""
        self._kubelet: KubeletServer | None = None
        self._health: Server | None = None
        self._logs = ComponentLogs(supervisor)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin, without waiting for anything."""
        self._tasks = [asyncio.create_task(self._begin(), name="nodes"), asyncio.create_task(self._static.follow(), name="static pods")]

    async def join(self, names: Sequence[str], *, server: str, token: str, pins: Sequence[str]) -> None:
        """Let nodes join with a bootstrap token; those that run already are left alone."""
        bootstrap = TokenBootstrap(server, parse_token(token), pins=[Pin.parse(pin) for pin in pins])
        self._bootstraps.append(bootstrap)
        await self._fleet.add(*names, bootstrap=bootstrap)

    async def leave(self, names: Sequence[str]) -> None:
        """End nodes and forget their certificates."""
        await self._fleet.remove(*names)

    async def restart(self, names: Sequence[str]) -> None:
        """Let nodes register anew whose Node objects somebody deleted: like a kubelet, an agent does that at its start only."""
        if self._own_task is not None and self._cluster.control_plane.name in names:
            self._own_task.cancel()
            await asyncio.gather(self._own_task, return_exceptions=True)
            self._run_own()
        await self._fleet.restart(*names)

    async def stop(self) -> None:
        """End all agents. Idempotent."""
        if self._own_task is not None:
            self._own_task.cancel()
            await asyncio.gather(self._own_task, return_exceptions=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._kubelet is not None:
            await self._kubelet.stop()
        if self._health is not None:
            await self._health.stop()
        await self._fleet.stop()
        await asyncio.gather(*(bootstrap.close() for bootstrap in self._bootstraps))

    def snapshot(self) -> dict[str, Any]:
        """Return how the nodes are, for `local status`."""
        views = [agent.view() for agent in self._agents()]
        return {**self._summary(), "names": [view.name for view in views], "list": [_node(view) for view in views]}

    async def settled(self, *, within: float) -> dict[str, Any]:
        """Wait so many seconds for all nodes to be ready, and return how many are: `up` asks again and again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                for agent in self._agents():
                    await agent.ready.wait()
        return self._summary()

    def _summary(self) -> dict[str, Any]:
        agents = self._agents()
        return {
            "ready": sum(agent.is_ready for agent in agents),
            "total": max(len(agents), 1),
            "begun": self._begun,
            "reason": f"; {reason}" if (reason := self._trouble or _why(agents)) else "",
        }

    async def _begin(self) -> None:
        """Start the control plane's agent once its API server listens, and the workers that have joined before."""
        machine_ = self._cluster.control_plane
        while not await _listens(machine_.address, machine_.ports["api_server"]):
            await asyncio.sleep(_PORT_LOOK)
        self._run_own()
        layout = self._places.layout(machine_.name)
        await self._serve_soon(machine_, (await asyncio.to_thread(Path(layout.certificate("ca")).read_bytes)))
        strangers = set(self._fleet.strangers(*self._cluster.workers))
        await self._fleet.add(*(name for name in self._cluster.workers if name not in strangers))
        self._begun = True

    def _run_own(self) -> None:
        """Start the control plane's agent."""
        machine_ = self._cluster.control_plane
        layout = self._places.layout(machine_.name)
        home = DirectoryHome(Path(layout.kubelet / "pki"), Path(layout.kubeconfig("kubelet")), clock=self._clock, durable=False)
        facts = NodeFacts(
            name=machine_.name, profile=_real_profile(self._cluster), addresses=(machine_.address,), kubelet_port=machine_.ports["kubelet"]
        )
        self._own = NodeAgent(facts, home=home, seams=self._seams, static_pods=self._static, timings=Timings.prompt())
        self._own_task = asyncio.create_task(self._own.run(), name=f"node {machine_.name}")

    async def _serve_soon(self, machine_: Machine, ca_pem: bytes) -> None:
        """Serve as soon as the ports are free: the daemon before this one may be about to end."""
        while True:
            try:
                await self._serve(machine_, ca_pem)
            except (OSError, KubewrightError) as error:
                self._trouble = f"the kubelet API: {error}"
                await asyncio.sleep(_SERVE_AGAIN)
            else:
                self._trouble = ""
                return

    async def _serve(self, machine_: Machine, ca_pem: bytes) -> None:
        """Answer for the kubelets of all nodes: the API with its logs, and health for everybody."""
        if self._kubelet is None:
            kubelet = KubeletServer(self._agents, client_ca_pem=ca_pem, logs=self._logs, clock=self._clock)
            await kubelet.start(machine_.address, machine_.ports["kubelet"])
            self._kubelet = kubelet
        if self._health is None:
            health = Route(method="GET", pattern="/healthz", handler=_healthy)
            self._health = await serve([health], host=machine_.address, port=machine_.ports["kubelet_health"])

    def _agents(self) -> list[NodeAgent]:
        return [*([self._own] if self._own else []), *self._fleet.agents()]

    @cached_property
    def _profile(self) -> MachineProfile:
        return simulated_machine(kubelet_version=self._cluster.kubernetes_version, architecture=_architecture())

    def _worker_facts(self, name: str) -> NodeFacts:
        """Describe a worker: an invented machine. All share the address on which the daemon answers for their kubelets."""
        own = self._cluster.control_plane
        return NodeFacts(name=name, profile=self._profile.named(name), addresses=(own.address,), kubelet_port=own.ports["kubelet"])


def _why(agents: Sequence[NodeAgent]) -> str:
    """Say what one node complains about, else what one that is not ready waits for; '' where all are."""
    troubled = next((agent for agent in agents if agent.trouble), None)
    if troubled is not None:
        return f"{troubled.name}: {troubled.trouble}"
    waiting = next((agent for agent in agents if not agent.is_ready), None)
    return f"{waiting.name} {waiting.waits_for}" if waiting is not None else ""


async def _healthy(_: Request) -> Response:
    return Response(status=200, body=b"ok")


async def _listens(address: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(address, port)
    except OSError:
        return False
    writer.close()
    return True


def _architecture() -> str:
    return ARCHITECTURES.get(os.uname().machine, os.uname().machine)


def _real_profile(cluster: ClusterRecord) -> MachineProfile:
    """Describe this machine. Its pods are played, but for the static ones."""
    found = machine(Files(), architecture=os.uname().machine)
    return MachineProfile(
        architecture=_architecture(),
        kubelet_version=cluster.kubernetes_version,
        cpu_millis=found.cores * 1000,
        memory=found.memory,
        ephemeral_storage=_disk(),
        machine_id=found.machine_id,
        system_uuid=found.system_uuid,
        boot_id=found.boot_id,
        kernel_version=found.kernel,
        os_image=found.os_image,
        simulated="pods",
    )


def _disk() -> int:
    found = os.statvfs(PurePosixPath("/"))
    return found.f_frsize * found.f_blocks


def _node(view: NodeView) -> dict[str, Any]:
    return {
        "name": view.name,
        "phase": view.phase.value,
        "ready": view.ready,
        "pods": view.pods,
        "certificateExpires": rfc3339(view.certificate_expires) if view.certificate_expires else None,
        "trouble": view.trouble,
        "reached": {str(key): round(value, 3) for key, value in view.reached.items()},
    }
