"""One process with all controllers: watches first, then leadership, then work.

made ── run() ──> authorities read, watches open ──> candidate ──> leader: controllers work
                                                                     ├── leadership lost ──> LeadershipLost
                                                                     └── cancelled ──> work in flight ends, the lease is given back
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final, Protocol

from kubewright.base.clock import Clock
from kubewright.base.errors import KubewrightError
from kubewright.base.randomness import Random
from kubewright.base.unexpected import keep_running
from kubewright.controllers import options
from kubewright.controllers.authorities import AuthorityFiles, ReadFile
from kubewright.controllers.bootstrap import BootstrapSigner, TokenCleaner
from kubewright.controllers.certificates import REREAD, Approver, Cleaner, SigningController
from kubewright.controllers.options import Options
from kubewright.controllers.requests import CLIENT_KUBELET, KUBELET_SERVING
from kubewright.controllers.serving.approver import ServingApprover
from kubewright.controllers.serving.client_approver import ClientApprover
from kubewright.controllers.serving.gathering import API_SERVERS
from kubewright.controllers.serving.journal import Write
from kubewright.controllers.serving.locations import PolicyLocation
from kubewright.controllers.serving.policies import Policy, PolicyConfigMap, PolicyFile
from kubewright.controllers.serving.sources.interface import Tools
from kubewright.controllers.signers import SIGNERS
from kubewright.controllers.telemetry import ControllerMetrics, Telemetry
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.daemons.controller import SharedInformer, first_error
from kubewright.kube.daemons.electing import FencedKube, LeaderElector
from kubewright.kube.daemons.informers import Informer
from kubewright.kube.daemons.limiting import LimitedKube
from kubewright.kube.daemons.queueing import TokenBucket
from kubewright.kube.daemons.recorder import EventRecorder
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST, CONFIG_MAP, ENDPOINTS, NODE, SECRET, SERVICE_CIDR
from kubewright.tokens import cluster_info, secrets

COMPONENT: Final = "kubewright-controllers"
"""The source component of events."""
APPROVALS: Final = 50.0
"""Approvals of serving certificates a second, also with a lower `--kube-api-qps`: as many nodes may join."""


class Controller(Protocol):
    """Works until it is cancelled."""

    name: str

    async def run(self) -> None:
        """Run the controller."""
        ...


class Manager:
    """The controllers that the options select. Nothing is read or written before `run`."""

    def __init__(
        self,
        api: AsyncKubeAPI,
        chosen: Options,
        *,
        identity: str,
        read: ReadFile,
        clock: Clock,
        random: Random,
        metrics: ControllerMetrics | None = None,
        tools: Tools | None = None,
        journal: Write | None = None,
    ) -> None:
        self._plain = api
        self._tools = tools
        self._options = chosen
        self._clock = clock
        self._random = random
        self._read = read
        self._journal = journal or (lambda _: None)
        self._elector: LeaderElector | None = None
        if chosen.election is not None:
            self._elector = LeaderElector(api, chosen.election, identity=identity, clock=clock, random=random)
            if metrics is not None:
                metrics.leads(chosen.election.name, lambda: self.leads)
        self._events = EventRecorder(self._api(), component=COMPONENT, instance=identity, clock=clock, random=random)
        self._telemetry = Telemetry(metrics=metrics, events=self._events)
        self._informers: dict[str, SharedInformer] = {}
        self._authorities: dict[str, AuthorityFiles] = {}
        self._policy: Policy | None = None
        self.controllers: list[Controller] = []

    @property
    def synced(self) -> bool:
        """Whether all watched objects are known."""
        return bool(self._informers) and all(informer.synced for informer in self._informers.values())

    @property
    def leads(self) -> bool:
        """Whether this process is active: as the leader, or as the only one."""
        return self._elector is None or self._elector.leads

    async def run(self) -> None:
        """Work until cancelled.

        Raises CertificateError for CAs that cannot be read at the start, LeadershipLost when the lease is lost.
        """
        self.controllers = list(self._made())
        failure: KubewrightError | None = None
        try:
            async with asyncio.TaskGroup() as group:
                watches = [
                    group.create_task(keep_running("a watch", one.run), name=f"watch of {name}") for name, one in self._informers.items()
                ]
                watches.append(
                    group.create_task(keep_running("certificate authorities", self._keep_authorities), name="certificate authorities")
                )
                await (self._work() if self._elector is None else self._elector.run(self._work))
                for watch in watches:
                    watch.cancel()
        except* KubewrightError as errors:
            failure = first_error(errors)
        finally:
            if self._policy is not None:
                await self._policy.close()
        if failure is not None:  # what is raised inside `except*` would come out as a group
            raise failure

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(keep_running("events", self._events.run), name="events")
            for controller in self.controllers:
                group.create_task(keep_running(controller.name, controller.run), name=controller.name)

    async def _keep_authorities(self) -> None:
        while True:
            await asyncio.sleep(REREAD)
            for files in self._authorities.values():
                files.refresh()
            if isinstance(self._policy, PolicyFile):
                self._policy.refresh()
            if self._policy is not None:
                await self._policy.close_replaced()

    def _api(self, *, least: float = 0.0) -> AsyncKubeAPI:
        """Return the client of one controller: as in kube-controller-manager, each has its own rate limit, here of `least` at least."""
        fenced = self._plain if self._elector is None else FencedKube(self._plain, require=self._elector.require)
        return LimitedKube(fenced, TokenBucket(rate=max(self._options.qps, least), burst=max(self._options.burst, int(least))))

    def _made(self) -> Iterator[Controller]:
        wanted = self._options.controllers
        if options.APPROVING in wanted:
            yield Approver(self._api(), self._requests(CLIENT_KUBELET), telemetry=self._telemetry)
        if options.SIGNING in wanted:
            yield from self._signers()
        if options.CLEANING in wanted:
            yield Cleaner(self._api(), self._requests(), clock=self._clock, telemetry=self._telemetry)
        if options.BOOTSTRAP_SIGNING in wanted:
            yield BootstrapSigner(self._api(), self._cluster_info(), self._secrets(), clock=self._clock, telemetry=self._telemetry)
        if options.TOKEN_CLEANING in wanted:
            yield TokenCleaner(self._api(), self._secrets(), clock=self._clock, telemetry=self._telemetry)
        if options.SERVING_APPROVING in wanted:
            yield from self._policy_controllers()

    def _policy_controllers(self) -> Iterator[Controller]:
        assert self._options.node_policy is not None
        self._policy = policy = self._node_policy(self._options.node_policy)
        namespace, name = API_SERVERS
        endpoints = Informer(self._plain, ENDPOINTS, namespace=namespace, field_selector=f"metadata.name={name}", random=self._random)
        nodes = self._shared("nodes", Informer(self._plain, NODE, random=self._random))
        serving = ServingApprover(
            self._api(least=APPROVALS),
            self._requests(KUBELET_SERVING),
            clients=self._requests(CLIENT_KUBELET),
            nodes=nodes,
            api_servers=self._shared("API servers", endpoints),
            service_networks=self._shared("Service networks", Informer(self._plain, SERVICE_CIDR, random=self._random)),
            policy=policy,
            write=self._journal,
            clock=self._clock,
            telemetry=self._telemetry,
        )
        yield serving
        yield ClientApprover(
            self._api(least=APPROVALS),
            self._requests(CLIENT_KUBELET),
            nodes=nodes,
            history=serving.history,
            policy=policy,
            write=self._journal,
            clock=self._clock,
            telemetry=self._telemetry,
        )

    def _node_policy(self, found: PolicyLocation) -> Policy:
        if isinstance(found, PurePosixPath):
            file = PolicyFile(found, read=self._read, tools=self._tools)
            file.load()
            return file
        policy, selector = PolicyConfigMap(found, self._tools or Tools(read=self._read)), f"metadata.name={found.name}"
        informer = Informer(self._plain, CONFIG_MAP, namespace=found.namespace, field_selector=selector, random=self._random)
        self._shared("node policy", informer).subscribe(policy.changed)
        return policy

    def _signers(self) -> Iterator[Controller]:
        for signer in SIGNERS:
            pair = self._options.files.get(signer.flags)
            if pair is None:
                continue
            name = " ".join(map(str, pair))
            if name not in self._authorities:
                self._authorities[name] = AuthorityFiles(*pair, read=self._read)
                self._authorities[name].load()
            yield SigningController(
                self._api(),
                self._requests(signer.name),
                signer=signer,
                files=self._authorities[name],
                longest=self._options.longest,
                clock=self._clock,
                random=self._random,
                telemetry=self._telemetry,
            )

    def _requests(self, signer: str = "") -> SharedInformer:
        """Return the watch of all requests if the cleaner needs it, otherwise of one signer's.

        Other signers' requests then cost nothing.
        """
        selector = "" if options.CLEANING in self._options.controllers else f"spec.signerName={signer}"
        informer = Informer(self._plain, CERTIFICATE_SIGNING_REQUEST, field_selector=selector, random=self._random)
        return self._shared(f"certificate requests {selector}".rstrip(), informer)

    def _secrets(self) -> SharedInformer:
        selector = f"type={secrets.TYPE}"
        informer = Informer(self._plain, SECRET, namespace=secrets.NAMESPACE, field_selector=selector, random=self._random)
        return self._shared("bootstrap tokens", informer)

    def _cluster_info(self) -> SharedInformer:
        selector = f"metadata.name={cluster_info.NAME}"
        informer = Informer(self._plain, CONFIG_MAP, namespace=cluster_info.NAMESPACE, field_selector=selector, random=self._random)
        return self._shared("cluster-info", informer)

    def _shared(self, name: str, informer: Informer) -> SharedInformer:
        return self._informers.setdefault(name, SharedInformer(informer))
