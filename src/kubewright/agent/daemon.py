"""An agent on the machine that it runs on: its options, the machine, and one `NodeAgent` put together; its status file and its health.

made ── run() ──> locked ──> serving health, the node agent runs ── (cancelled) ──> the node agent ended, the status says so
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kubewright.agent import status_file
from kubewright.agent.certificates.bootstrap import KubeconfigBootstrap
from kubewright.agent.certificates.store import FileCredentialStore, PendingKey
from kubewright.agent.configuration.options import AgentOptions
from kubewright.agent.node import NodeAgent
from kubewright.agent.observation.observer import Machine, MachineObserver
from kubewright.agent.pods.lifecycle import SimulationRules
from kubewright.agent.seams import Connect, Seams
from kubewright.agent.status_file import StatusFile
from kubewright.base.errors import HostError
from kubewright.host.cri.runtime import CRIRuntime
from kubewright.host.files import Files
from kubewright.host.locks import Lock
from kubewright.host.network import look_up
from kubewright.host.real import RealHost
from kubewright.http.messages import Response
from kubewright.http.proxies import Proxies
from kubewright.http.serving import Request, Route, Server, serve
from kubewright.kube.client import AsyncKubeClient
from kubewright.kube.credentials import Access

_log = logging.getLogger(__name__)

RUNS_NOTHING: Final = SimulationRules(plays=False)
_LOCK: Final = "kubewright-agent.lock"
_TEXT: Final = {"content-type": "text/plain; charset=utf-8"}


class AgentDaemon:
    """One agent for this machine. Nothing happens before `run`."""

    def __init__(self, options: AgentOptions, host: RealHost, *, environment: Mapping[str, str], seams: Seams | None = None) -> None:
        self._options = options
        self._host = host
        self._seams = seams or Seams(connect=_connect(environment))
        self._started = self._seams.clock.now()
        self._runtime = CRIRuntime(options.runtime, timeout=options.runtime_timeout) if options.runtime else None
        self._lock = Lock(options.root / _LOCK, doing=f"agent of node {options.name}")
        self._bootstrap = (
            KubeconfigBootstrap(options.bootstrap, read=host.read, connect=self._seams.connect) if options.bootstrap is not None else None
        )
        self._stopped = False
        self.agent: NodeAgent | None = None

    async def run(self) -> None:
        """Be a node until cancelled. Raises Locked where another agent runs in this directory, PortInUse where a kubelet has the health port."""
        options = self._options
        with self._lock:
            self.agent = self._agent()
            server = await self._serve_health()
            status = StatusFile(Files(), options.root, self.record)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_kept(status), name="status file")
                    await self.agent.run()
            finally:
                self._stopped = True
                if server is not None:
                    await server.stop()
                if self._bootstrap is not None:
                    await self._bootstrap.close()
                if self._runtime is not None:
                    self._runtime.close()
                status.write()

    def record(self) -> dict[str, Any]:
        """Return what the status file says now."""
        assert self.agent is not None
        return status_file.record(self.agent.view(), pid=os.getpid(), started=self._started, taints=self._missing_taints())

    def summary(self) -> str:
        """Return in one line what is done now."""
        if self.agent is None:
            return "starting"
        view = self.agent.view()
        if view.request is not None:
            return f"waiting for certificate request {view.request.name} to be approved and signed"
        return f"{view.phase.value}: {view.trouble}" if view.trouble else view.phase.value

    def unhealthy(self) -> str:
        """Say why `/healthz` should not be ok, '' if it should: like a kubelet, an agent that has to wait for others is healthy."""
        return "" if self.agent is not None and not self._stopped else "it is stopping"

    def _missing_taints(self) -> list[str]:
        """Return the configured taints that the Node does not have. A node that exists already keeps its own: NodeRestriction lets it change none."""
        node = self.agent.node if self.agent is not None else None
        if node is None:
            return []
        there = {(taint["key"], taint["effect"]) for taint in node["spec"].get("taints") or ()}
        missing = [taint for taint in self.agent.facts.taints if (taint[0], taint[2]) not in there] if self.agent is not None else []
        return [f"{key}{'=' if value else ''}{value}:{effect}" for key, value, effect in missing]

    def _agent(self) -> NodeAgent:
        options, host = self._options, self._host
        machine = Machine(files=host.files, network=host.network, look_up=look_up, root=options.root, runtime=self._runtime)
        return NodeAgent(
            options.facts(host.facts.machine, storage=host.files.space(options.root).capacity),
            store=FileCredentialStore(Path(options.pki), Path(options.kubeconfig), clock=self._seams.clock),
            seams=self._seams,
            bootstrap=self._bootstrap,
            timings=options.timings,
            rules=RUNS_NOTHING,
            source=MachineObserver(machine, options.looks),
            duties=options.duties,
            pending=PendingKey(Path(options.pki)),
        )

    async def _serve_health(self) -> Server | None:
        address, port = self._options.health
        if not port:
            return None

        async def health(_: Request) -> Response:
            reason = self.unhealthy()
            return Response(status=500 if reason else 200, headers=_TEXT, body=(reason or "ok").encode())

        return await serve([Route(method="GET", pattern="/healthz", handler=health)], host=address, port=port)


async def _kept(status: StatusFile) -> None:
    """Keep the status file, through disks that are full or read-only for a while."""
    while True:
        try:
            await status.run()
        except HostError as error:
            _log.warning("the status of the agent cannot be written: %s", error)
            await asyncio.sleep(10.0)


def _connect(environment: Mapping[str, str]) -> Connect:
    """Return what makes the clients of the node: named as the kubelet names itself, through the proxies of the environment."""

    def connect(access: Access) -> AsyncKubeClient:
        return AsyncKubeClient(access, field_manager="kubelet", proxies=Proxies.from_environment(environment))

    return connect
