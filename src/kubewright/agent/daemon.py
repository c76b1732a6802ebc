"""The agent of the machine that it runs on: options, machine and one `NodeAgent` combined.

It adds the kubelet API, the status file, the health endpoint and metrics.

made ── run() ──> locked, listening ──> the node agent runs ⇄ (reload: another node agent, the same Node) ── (cancelled) ──> ended, the status says so
                                         └─> serving, when the node is ready or has to wait
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from kubewright.agent import status_file, telemetry
from kubewright.agent.certificates.bootstrap import KubeconfigBootstrap
from kubewright.agent.certificates.store import FileCredentialStore, PendingKey
from kubewright.agent.configuration.options import AgentOptions, require_kubeconfig
from kubewright.agent.dependencies import Connect, Seams
from kubewright.agent.machine_api import MachineAPI, usage_metrics
from kubewright.agent.node import NodeAgent
from kubewright.agent.observation.observer import MachineObserver, ObservedMachine
from kubewright.agent.periodic import Tasks
from kubewright.agent.pods.lifecycle import SimulationRules
from kubewright.agent.server import Contents
from kubewright.agent.status_file import StatusFile
from kubewright.apis import kubelet
from kubewright.base import unexpected
from kubewright.base.errors import HostError, UsageError
from kubewright.base.records import replace
from kubewright.host.cri.runtime import CRIRuntime
from kubewright.host.desired import Directory
from kubewright.host.filesystem.files import Files
from kubewright.host.locks import Lock
from kubewright.host.network.interfaces import look_up
from kubewright.host.readers import FileReader
from kubewright.host.seam import Host
from kubewright.http.listening import listen
from kubewright.http.proxies import Proxies
from kubewright.kube.client import AsyncKubeClient
from kubewright.kube.credentials import Access

if TYPE_CHECKING:
    from kubewright.http.metrics import Registry

_log = logging.getLogger(__name__)

RUNS_NOTHING: Final = SimulationRules(plays=False)
_LOCK: Final = "kubewright-agent.lock"
_DEVICES: Final = "device-plugins"
_LAST_WORDS: Final = 5.0
"""Seconds that reporting a shutdown may take: the machine waits for it."""
_LOOK: Final = 0.05
_IN_A_HURRY: Final = 2.0
"""Seconds within which a node becomes ready if it does not have to wait for others."""
_FIXED: Final = ("name", "root", "pki", "kubeconfig", "health", "kubelet_api")
"""Options that a reload cannot change: they identify the node, or the process already uses them."""


def is_recreated(files: FileReader, root: PurePosixPath) -> bool:
    """Whether a root directory shows no trace of an earlier node: no device plug-in state of a kubelet, no status of an agent.

    The kubelet has the same rule for its own state (v1.36.3: pkg/kubelet/cm/devicemanager/manager.go,
    ShouldResetExtendedResourceCapacity).
    """
    return not files.entries(root / _DEVICES) and files.state(status_file.path_of(root)) is None


class AgentDaemon:
    """The agent of this machine. Nothing happens before `run`."""

    def __init__(self, options: AgentOptions, host: Host, *, environment: Mapping[str, str]) -> None:
        self._options = options
        self._host = host
        self._files = Files()
        self._seams = Seams(connect=_connect(environment))
        self._started = self._seams.clock.now()
        self._lock = Lock(options.root / _LOCK, doing=f"agent of node {options.name}")
        self._api = self._kubelet_api()
        self._reload = asyncio.Event()
        self._stopped = False
        self.agent: NodeAgent | None = None

    async def run(self) -> None:
        """Be a node until cancelled.

        Raises DocumentError if there is neither a kubeconfig nor a bootstrap kubeconfig, Locked if another agent runs
        in this directory, PortInUse if a kubelet has the health port.
        """
        require_kubeconfig(self._options, self._host)
        self._host.ensure(Directory(path=self._options.root, mode=0o750))  # the kubelet's lock
        with self._lock, self._listening() as health:
            if self._api is not None:
                await self._api.prepare()
            status = StatusFile(self._files, self._options.root, self.record)
            tasks = Tasks()
            tasks.start("the status file", partial(_keep_up_to_date, status))
            tasks.start("the health port", partial(self._serve, health))
            try:
                while True:
                    await unexpected.keep_running("the node agent", self._run_once)
            finally:
                self._stopped = True
                await tasks.stop()
                with suppress(HostError):
                    status.write()

    def reload(self, options: AgentOptions) -> None:
        """Continue with other options: the node agent ends and a new one takes over its Node.

        Raises UsageError for fixed options.
        """
        changed = [name for name in _FIXED if getattr(options, name) != getattr(self._options, name)]
        if changed:
            raise UsageError(f"a reload cannot change {', '.join(changed)}", remedy="restart the agent")
        self._options = options
        self._reload.set()

    def record(self) -> dict[str, Any]:
        """Return the current content of the status file; empty before there is a node agent."""
        if self.agent is None:
            return {}
        options = self._options
        return status_file.record(
            self.agent.view(),
            pid=os.getpid(),
            started=self._started,
            kubeconfig=options.kubeconfig,
            pki=options.pki,
            taints=missing_taints(self.agent),
            kubelet_api=self._api.view() if self._api is not None else None,
        )

    def summary(self) -> str:
        """Return in one line what the agent is doing."""
        if self.agent is None:
            return "starting"
        view = self.agent.view()
        if view.certificate.waiting is not None:
            return f"waiting for certificate request {view.certificate.waiting.name} to be approved and signed"
        return f"{view.phase.value}: {view.trouble}" if view.trouble else view.phase.value

    def unhealthy(self) -> str:
        """Return why `/healthz` fails, '' if it succeeds.

        Like a kubelet, an agent that has to wait for others is healthy.
        """
        return "it is stopping" if self._stopped else ""

    async def _run_once(self) -> None:
        """Run one node agent until the options change, or until cancelled."""
        options, host, seams = self._options, self._host, self._seams
        self._reload.clear()
        runtime = CRIRuntime(options.runtime, timeout=options.runtime_timeout) if options.runtime else None
        bootstrap = None
        if options.bootstrap is not None:
            bootstrap = KubeconfigBootstrap(options.bootstrap, read=host.read, connect=seams.connect)
        machine = ObservedMachine(files=self._files, network=host.network, look_up=look_up, root=options.root, runtime=runtime)
        facts = options.facts(host.facts.machine, storage=self._files.space(options.root).capacity)
        self.agent = NodeAgent(
            replace(facts, recreated=is_recreated(host, options.root)),
            store=FileCredentialStore(Path(options.pki), Path(options.kubeconfig), clock=seams.clock),
            seams=seams,
            bootstrap=bootstrap,
            timings=options.timings,
            rules=RUNS_NOTHING,
            source=MachineObserver(machine, options.observation),
            duties=options.duties,
            pending=PendingKey(Path(options.pki)),
            serving=self._api.requests if self._api is not None else None,
            closing=bootstrap.close if bootstrap is not None else None,
        )
        tasks = [asyncio.create_task(self.agent.run(), name=f"node {options.name}"), asyncio.create_task(self._reload.wait())]
        if options.exit_after:
            tasks.append(asyncio.create_task(self.agent.require_certificate(within=options.exit_after), name="certificate"))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # an agent ends only by an error, which is then a bug of ours
        except asyncio.CancelledError:
            if await asyncio.to_thread(host.is_shutting_down):
                await self.agent.tell_shutdown(within=_LAST_WORDS)
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if runtime is not None:
                runtime.close()

    def _listening(self) -> AbstractContextManager[socket.socket | None]:
        """Listen on the health port, before anything else: if a kubelet has it, this agent must not touch the Node."""
        address, port = self._options.health
        return listen(address, port) if port else nullcontext()

    async def _serve(self, health: socket.socket | None) -> None:
        """Serve requests until cancelled.

        Starts when the node is ready or has to wait for others, because importing the server takes a third of the
        start-up time.
        """
        await self._node_has_started()
        from kubewright.http.metrics import Registry
        from kubewright.http.serving import serve_socket

        registry = Registry()
        self._measure(registry)
        server = await serve_socket(telemetry.routes(self.unhealthy, registry), health) if health is not None else None
        try:
            if self._api is not None:
                await unexpected.keep_running("the kubelet API", self._api.run)
            await asyncio.Event().wait()
        finally:
            if server is not None:
                await server.stop()

    def _measure(self, registry: Registry) -> None:
        telemetry.follow(
            registry,
            lambda: self.agent.view() if self.agent is not None else None,
            clock=self._seams.clock,
            tasks=lambda: len(asyncio.all_tasks()),
        )
        if self._api is not None:
            self._api.measure(registry)

    async def _node_has_started(self) -> None:
        """Wait until the node is ready, or has taken so long that it must be waiting for others."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_IN_A_HURRY):
                while self.agent is None or not self.agent.ready.is_set():
                    await asyncio.sleep(_LOOK)

    def _kubelet_api(self) -> MachineAPI | None:
        options, host = self._options, self._host
        if options.kubelet_api is None:
            return None
        contents = Contents(
            usage=lambda: usage_metrics(self._files),
            configuration=_without_secrets(options.kubelet),
            unhealthy=self.unhealthy,
            debugging=options.kubelet_api.debugging,
            nothing_runs="does not run: this node runs no pods",
        )
        return MachineAPI(
            options.kubelet_api,
            host,
            name=options.name,
            pki=options.pki,
            agents=lambda: () if self.agent is None else (self.agent,),
            seams=self._seams,
            contents=contents,
        )


def missing_taints(agent: NodeAgent) -> list[str]:
    """Return the configured taints that the Node does not have.

    An existing Node keeps its own taints: NodeRestriction forbids its agent to change them.
    """
    if agent.node is None:
        return []
    there = {(taint["key"], taint["effect"]) for taint in agent.node["spec"].get("taints") or ()}
    missing = [taint for taint in agent.facts.taints if (taint[0], taint[2]) not in there]
    return [f"{key}{'=' if value else ''}{value}:{effect}" for key, value, effect in missing]


def _without_secrets(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a configuration without its secrets."""
    found = kubelet.document(configuration)
    return {**found, **({"staticPodURLHeader": {"<masked>": ["<masked>"]}} if found.get("staticPodURLHeader") else {})}


async def _keep_up_to_date(status: StatusFile) -> None:
    """Keep the status file up to date, even while the disk is full or read-only."""
    while True:
        try:
            await status.run()
        except HostError as error:
            _log.warning("the status of the agent cannot be written: %s", error)
            await asyncio.sleep(10.0)


def _connect(environment: Mapping[str, str]) -> Connect:
    """Return the function that makes the node's clients: with the kubelet's field manager, through the proxies of the environment."""

    def connect(access: Access) -> AsyncKubeClient:
        return AsyncKubeClient(access, field_manager="kubelet", proxies=Proxies.from_environment(environment))

    return connect
