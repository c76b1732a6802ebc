"""The node of one control plane machine: its agent, which shows its static pods, and the kubelet API and health at its address."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import urlsplit

from kubewright.agent.certificates.bootstrap import Bootstrap, KubeconfigBootstrap
from kubewright.agent.certificates.serving import ServingRequests
from kubewright.agent.certificates.store import SERVING, FileCredentialStore, FilePairStore, PendingKey
from kubewright.agent.dependencies import Seams, Timings
from kubewright.agent.lasting_node import LastingNode
from kubewright.agent.node import NodeAgent
from kubewright.agent.server import KubeletServer
from kubewright.agent.status.facts import MachineProfile, NodeFacts
from kubewright.apis.machine import Layout
from kubewright.base.clock import Clock
from kubewright.base.errors import KubewrightError
from kubewright.base.unexpected import keep_running
from kubewright.host.facts import ARCHITECTURES, machine
from kubewright.host.filesystem.files import Files
from kubewright.http.messages import Response
from kubewright.http.opening import opened
from kubewright.http.routes import Request, Route
from kubewright.http.serving import Server, serve
from kubewright.kube.daemons.serving_identity import ServingIdentity, SignedCertificate
from kubewright.kube.kubeconfigs import load_access
from kubewright.local.daemon.static_pods import ComponentLogs, SupervisedPods
from kubewright.local.record import LocalMachineRecord
from kubewright.local.supervisor.supervisor import Supervisor

KUBELET: Final = "kubelet"
BOOTSTRAP: Final = "bootstrap-kubelet"
"""The kubeconfig with which a kubelet requests its first certificate; join writes it."""
_SERVE_AGAIN: Final = 0.1
_PORT_CHECK_EVERY: Final = 0.01
"""Seconds between two checks whether the API server listens: an agent whose attempt fails waits much longer."""
_LONGEST_CHECK: Final = 0.1
_CONNECT: Final = 5.0


class MachineNode:
    """The node of one machine.

    created ── start() ──> starting ── (its API server listens, its directory exists) ──> serving the kubelet API ── stop() ──> stopped

    `others` are further agents whose kubelet API this machine serves. `joins` says that the machine joins with a file
    of bootstrap credentials, and finds its API server in its files; the first machine's is its own, and its
    kubelet.conf has a certificate. `signed` says that the cluster signs the certificate of its kubelet API.
    """

    def __init__(
        self,
        machine: LocalMachineRecord,
        supervisor: Supervisor,
        *,
        layout: Layout,
        kubelet_version: str,
        clock: Clock,
        others: Callable[[], Iterable[NodeAgent]] = tuple,
        joins: bool = False,
        signed: bool = False,
    ) -> None:
        self.machine = machine
        self.trouble = ""
        self.serving = asyncio.Event()
        """Set once the kubelet API and its health are served."""
        self._layout = layout
        self._kubelet_version = kubelet_version
        self._clock = clock
        self._others = others
        self._bootstrap = KubeconfigBootstrap(layout.kubeconfig(BOOTSTRAP), read=Files().read) if joins else None
        self._signed = SignedCertificate(clock) if signed else None
        self._static = SupervisedPods(supervisor)
        self._logs = ComponentLogs(supervisor)
        self._kubelet: KubeletServer | None = None
        self._health: Server | None = None
        self._running: LastingNode | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def agent(self) -> NodeAgent | None:
        """The node's agent; None before it has begun."""
        return self._running.agent if self._running is not None else None

    def start(self) -> None:
        """Start without waiting for anything."""
        self._tasks = [
            asyncio.create_task(keep_running("a machine", self._begin, expected=()), name=f"machine {self.machine.name}"),
            asyncio.create_task(keep_running("static pods", self._static.follow, expected=()), name=f"static pods of {self.machine.name}"),
        ]

    async def restart(self) -> None:
        """Make the agent register again: like a kubelet, it does that only at its start."""
        if self._running is not None:
            await self._end_agent()
            self._run_agent()

    async def stop(self) -> None:
        """Stop the agent and its servers. Idempotent."""
        await self._end_agent()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._kubelet is not None:
            await self._kubelet.stop()
        if self._health is not None:
            await self._health.stop()
        if self._bootstrap is not None:
            await self._bootstrap.close()

    async def _begin(self) -> None:
        """Start the agent once its API server listens.

        It also waits until the phase kubelet-start has created the kubelet's directory; the agent would create it with
        another mode.
        """
        pause = _PORT_CHECK_EVERY
        while Files().state(self._layout.kubelet) is None or not await _listens(*self._server()):
            await asyncio.sleep(pause)
            pause = min(pause * 1.1, _LONGEST_CHECK) if self._bootstrap is not None else pause
        self._run_agent()
        await self._serve_soon(await asyncio.to_thread(Path(self._layout.certificate("ca")).read_bytes))
        self.serving.set()

    def _server(self) -> tuple[str, int]:
        """Return the address of the agent's API server: on a machine that joins, the one in its kubeconfig."""
        if self._bootstrap is not None:
            for name in (KUBELET, BOOTSTRAP):
                with suppress(KubewrightError, ValueError):
                    found = urlsplit(load_access(self._layout.kubeconfig(name), read=Files().read).server)
                    return found.hostname or "", found.port or 443
        return self.machine.address, self.machine.ports["api_server"]

    def _run_agent(self) -> None:
        found = self.machine
        layout = self._layout
        store = FileCredentialStore(Path(layout.kubelet / "pki"), Path(layout.kubeconfig(KUBELET)), clock=self._clock, durable=False)
        facts = NodeFacts(
            name=found.name, profile=real_profile(self._kubelet_version), addresses=(found.address,), kubelet_port=found.ports["kubelet"]
        )
        bootstrap: Bootstrap | None = self._bootstrap
        seams = Seams(clock=self._clock)
        static, timings = self._static, Timings.prompt()
        self._running = LastingNode(
            lambda: NodeAgent(
                facts, store=store, seams=seams, bootstrap=bootstrap, static_pods=static, timings=timings, serving=self._serving_requests()
            )
        )

    def _serving_requests(self) -> ServingRequests | None:
        if self._signed is None:
            return None
        pki = Path(self._layout.kubelet / "pki")
        store = FilePairStore(pki, SERVING, clock=self._clock, durable=False)
        return ServingRequests(store=store, use=self._signed.use, pending=PendingKey(pki, SERVING))

    async def _end_agent(self) -> None:
        if self._running is not None:
            await self._running.end()

    async def _serve_soon(self, ca_pem: bytes) -> None:
        """Serve as soon as the ports are free: the previous daemon may still be stopping."""
        while True:
            try:
                await self._serve(ca_pem)
            except (OSError, KubewrightError) as error:
                self.trouble = f"the kubelet API: {error}"
                await asyncio.sleep(_SERVE_AGAIN)
            else:
                self.trouble = ""
                return

    async def _serve(self, ca_pem: bytes) -> None:
        """Serve the kubelets' ports: the API with its logs, and health without authentication."""
        address, ports = self.machine.address, self.machine.ports
        if self._kubelet is None:
            identity = ServingIdentity(self._signed, client_ca=lambda: ca_pem) if self._signed is not None else None
            kubelet = KubeletServer(self._agents, client_ca_pem=ca_pem, identity=identity, logs=self._logs, clock=self._clock)
            await kubelet.start(address, ports["kubelet"])
            self._kubelet = kubelet
        if self._health is None:
            health = Route(method="GET", pattern="/healthz", handler=_healthy)
            self._health = await serve([health], host=address, port=ports["kubelet_health"])

    def _agents(self) -> list[NodeAgent]:
        return [*([self.agent] if self.agent is not None else []), *self._others()]


async def _healthy(_: Request) -> Response:
    return Response(status=200, body=b"ok")


async def _listens(address: str, port: int) -> bool:
    try:
        async with asyncio.timeout(_CONNECT):
            transport = await opened(asyncio.Protocol(), address, port)
    except OSError:  # also the timeout
        return False
    transport.abort()
    return True


def architecture() -> str:
    """Return Go's name of this machine's architecture."""
    return ARCHITECTURES.get(os.uname().machine, os.uname().machine)


def real_profile(kubelet_version: str) -> MachineProfile:
    """Describe this machine. Its pods are simulated, except the static ones."""
    found = machine(Files(), architecture=os.uname().machine)
    return MachineProfile(
        architecture=architecture(),
        kubelet_version=kubelet_version,
        cpu_millis=found.cores * 1000,
        memory=found.memory,
        ephemeral_storage=Files().space(PurePosixPath("/")).capacity,
        machine_id=found.machine_id,
        system_uuid=found.system_uuid,
        boot_id=found.boot_id,
        kernel_version=found.kernel,
        os_image=found.os_image,
        simulated="pods",
    )
