"""kubelet-serving-approving-controller: gather evidence, decide (pure), write once with the observed resourceVersion."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from kubewright.base.clock import Clock
from kubewright.base.logs import verbose
from kubewright.controllers import requests
from kubewright.controllers.certificates import EACH, RequestController, is_open
from kubewright.controllers.requests import KUBELET_SERVING, Nothing, SigningRequest
from kubewright.controllers.serving import journal
from kubewright.controllers.serving.deciding import Approve, Ask, Decision, Deny, Wait, decide
from kubewright.controllers.serving.evidence import node_of
from kubewright.controllers.serving.gathering import Gatherer
from kubewright.controllers.serving.journal import short
from kubewright.controllers.serving.policies import Policy
from kubewright.controllers.telemetry import Telemetry
from kubewright.kube import core
from kubewright.kube.answers import WatchEvent
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object
from kubewright.kube.daemons.controller import NotNow, SharedInformer
from kubewright.kube.daemons.queueing import ItemBackoff
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST, ENDPOINTS, NODE, SERVICE_CIDR

_log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0
"""Seconds between two checks of a request that waits; it is checked at once when its Node or the policy changes."""
LONG_WAIT: Final = timedelta(minutes=15)
"""After this a request that waits gets an event, so that people learn about it."""


class ServingApprover(RequestController):
    """Approves requests for serving certificates whose names and addresses are proven to be the node's own."""

    name = "servingapproving"

    def __init__(
        self,
        api: AsyncKubeAPI,
        csrs: SharedInformer,
        *,
        clients: SharedInformer,
        nodes: SharedInformer,
        api_servers: SharedInformer,
        service_networks: SharedInformer,
        policy: Policy,
        write: journal.Write,
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        limiter: ItemBackoff[str] = ItemBackoff(first=FIRST_PAUSE, limit=LONGEST_PAUSE)
        super().__init__(api, csrs, wanted=_is_ours, telemetry=telemetry, limiter=limiter)
        self._clients = clients
        self._nodes = nodes
        self._api_servers = api_servers
        self._service_networks = service_networks
        self._policy = policy
        self._journal = write
        self._clock = clock
        self._gatherer = Gatherer()
        self._told: set[str] = set()
        self._waits: dict[str, str] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        self._policy.subscribe(self._check_all)
        watched = {
            NODE: (self._nodes,),
            ENDPOINTS: (self._api_servers,),
            SERVICE_CIDR: (self._service_networks,),
            # one informer serves both kinds of requests where another controller needs all of them
            CERTIFICATE_SIGNING_REQUEST: (self._csrs,) if self._csrs is self._clients else (self._csrs, self._clients),
        }
        for resource, informers in watched.items():
            for informer in informers:
                informer.subscribe(self._gatherer.readers[resource])
        self._nodes.subscribe(self._node_changed)
        for informer in (self._nodes, self._api_servers, self._service_networks, self._clients):
            await informer.wait_synced()
        if not self._policy.is_known:
            known = asyncio.Event()
            self._policy.subscribe(known.set)
            await known.wait()
        await super().run()

    async def _dealt_with(self, name: str, found: Object) -> str:
        csr = requests.read(found)
        policy, now = self._policy.current, self._clock.now()
        shown, requester = short(name), short(csr.username)
        decision = await self._decision(csr)
        match decision:
            case Approve():
                await self._api.update(requests.with_condition(found, decision.condition), subresource="approval")
                _log.info("%s of %s is approved by policy version %s", shown, requester, policy.version)
                self._decided(csr, found, decision, now)
                return "approved"
            case Deny(check=check, reason=reason, message=message):
                await self._api.update(requests.with_condition(found, decision.condition), subresource="approval")
                _log.info("%s is denied (%s): %s: %s", shown, check, reason, message)
                self._telemetry.warn(self._about(csr, found), reason=reason, message=f"{shown} is denied: {message}")
                self._decided(csr, found, decision, now)
                return f"denied {reason}"
            case Wait(check=check, reason=reason, message=message):
                if csr.created is not None and now - csr.created >= LONG_WAIT and name not in self._told:
                    self._told.add(name)
                    self._telemetry.warn(self._about(csr, found), reason=reason, message=f"{shown} waits: {message}")
                if self._waits.get(name) != check:  # not each time that it is checked again
                    self._record(csr, found, decision, now)
                    self._waits[name] = check
                verbose(_log, EACH, "%s of %s waits (%s): %s", shown, requester, reason, message)
                raise NotNow(f"{reason}: {message}", quiet=True)
            case Nothing() | Ask():
                return ""

    async def _decision(self, csr: SigningRequest) -> Decision:
        """Decide by what is known; ask the sources only if that is not enough. Raises NotNow if the policy changes meanwhile."""
        policy = self._policy.current
        evidence = self._gatherer.gather(csr, policy, now=self._clock.now())
        decision = decide(csr, evidence, policy, now=self._clock.now())
        if not isinstance(decision, Ask):
            return decision
        fetched = await self._policy.sources.fetch(self._gatherer.question(csr))
        if self._policy.current is not policy:
            self._queue.add(csr.name, owner=csr.username)
            raise NotNow("the policy has changed", quiet=True)
        now = self._clock.now()  # the answers took time: what watches say may have changed as well
        return decide(csr, self._gatherer.gather(csr, policy, now=now).completed(fetched), policy, now=now)

    def _decided(self, csr: SigningRequest, found: Object, decision: Decision, now: datetime) -> None:
        self._record(csr, found, decision, now)
        self._told.discard(csr.name)
        self._waits.pop(csr.name, None)

    def _record(self, csr: SigningRequest, found: Object, decision: Decision, now: datetime) -> None:
        verdict = journal.verdict(decision, by=self.name, policy=self._policy.current.version)
        if verdict is not None:
            self._journal(journal.line(csr, found, verdict, now=now))

    def _node_changed(self, event: WatchEvent) -> None:
        node, _ = core.identity_of(event.object)
        for name in self._gatherer.history.open_requests(node):
            self._queue.add(name, owner=f"system:node:{node}")

    def _check_all(self) -> None:
        for csr in self._csrs.objects.values():
            if _is_ours(csr):
                name, _ = core.identity_of(csr)
                self._queue.add(name, owner=self._owner(name))

    def _about(self, csr: SigningRequest, found: Object) -> Mapping[str, object]:
        """Return the object that an event is about: the Node, or the request if there is none."""
        return self._nodes.get(node_of(csr.username)) or found

    def _gone(self, name: str) -> None:
        super()._gone(name)
        self._told.discard(name)
        self._waits.pop(name, None)


def _is_ours(csr: Object) -> bool:
    return (csr.get("spec") or {}).get("signerName") == KUBELET_SERVING and is_open(csr)
