"""kubelet-serving-approving-controller: gather evidence, decide (pure), write once with the observed resourceVersion."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from kubewright.apis import node_approval
from kubewright.apis.formats import Network
from kubewright.apis.node_approval import NodeApprovalPolicy
from kubewright.base.clock import Clock
from kubewright.base.errors import CertificateError
from kubewright.base.logs import verbose
from kubewright.controllers import requests
from kubewright.controllers.certificates import EACH, RequestController, is_open
from kubewright.controllers.requests import KUBELET_SERVING, Nothing, SigningRequest
from kubewright.controllers.serving.deciding import Approve, Deny, Wait, decide
from kubewright.controllers.serving.evidence import Evidence, KnownNode, node_of
from kubewright.controllers.serving.history import RequestHistory
from kubewright.controllers.serving.policies import PolicyFile
from kubewright.controllers.telemetry import Telemetry
from kubewright.kube import core, known_nodes
from kubewright.kube.answers import WatchEvent
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.controller import NotNow, SharedInformer
from kubewright.kube.core import Object
from kubewright.kube.known_nodes import KnownNodes
from kubewright.kube.queueing import ItemBackoff

_log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0
"""Seconds between two checks of a request that waits; it is checked at once when its Node or the policy changes."""
LONG_WAIT: Final = timedelta(minutes=15)
"""After this a request that waits gets an event, so that people learn about it."""
FILE, NODES = "file", "nodes"
"""The names of sources in evidence."""


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
        policy: PolicyFile,
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
        self._clock = clock
        self._known = KnownNodes()
        self._history = RequestHistory()
        self._told: set[str] = set()

    async def run(self) -> None:
        """Work until cancelled."""
        self._policy.subscribe(self._check_all)
        self._nodes.subscribe(self._known.changed)
        self._nodes.subscribe(self._node_changed)
        self._api_servers.subscribe(self._known.api_servers_changed)
        for watched in {id(one): one for one in (self._csrs, self._clients)}.values():
            watched.subscribe(self._history.changed)
        for informer in (self._nodes, self._api_servers, self._service_networks, self._clients):
            await informer.wait_synced()
        await super().run()

    async def _dealt_with(self, name: str, found: Object) -> str:
        csr = requests.read(found)
        policy, now = self._policy.current, self._clock.now()
        match decide(csr, self._evidence(csr, policy), policy, now=now):
            case Approve() as decision:
                await self._api.update(requests.with_condition(found, decision.condition), subresource="approval")
                _log.info("%s of %s is approved by policy version %s", name, csr.username, policy.version)
                self._told.discard(name)
                return "approved"
            case Deny(check=check, reason=reason, message=message) as denial:
                await self._api.update(requests.with_condition(found, denial.condition), subresource="approval")
                _log.info("%s is denied (%s): %s: %s", name, check, reason, message)
                self._telemetry.warn(self._about(csr, found), reason=reason, message=f"{name} is denied: {message}")
                self._told.discard(name)
                return f"denied {reason}"
            case Wait(reason=reason, message=message):
                if csr.created is not None and now - csr.created >= LONG_WAIT and name not in self._told:
                    self._told.add(name)
                    self._telemetry.warn(self._about(csr, found), reason=reason, message=f"{name} waits: {message}")
                verbose(_log, EACH, "%s of %s waits (%s): %s", name, csr.username, reason, message)
                raise NotNow(f"{reason}: {message}", quiet=True)
            case Nothing():
                return ""

    def _evidence(self, csr: SigningRequest, policy: NodeApprovalPolicy) -> Evidence:
        """Gather what is known. All of it comes from watches: no request waits for another one's evidence."""
        node = node_of(csr.username)
        try:
            names = csr.details().names
        except CertificateError:
            return Evidence()
        sans = (*names.dns, *names.addresses)
        found = self._nodes.get(node)
        reported = known_nodes.claims_of(found) if found is not None else None
        known = None
        if found is not None and reported is not None:
            deleting = bool(core.metadata(found).get("deletionTimestamp"))
            known = KnownNode(name=node, reported=reported.certain | reported.reported, deleting=deleting)
        owned = {san: source for san in sans if (source := _source_of(san, node, known, policy))}
        sure = frozenset(san for san, source in owned.items() if source == FILE)
        return Evidence(
            node=known,
            owned=owned,
            foreign=self._known.foreign(sans, node, held=sure),
            api_servers=self._known.api_servers,
            networks=self._reserved_networks(),
            key_holder=self._history.key_holder(csr),
            newer=self._history.newer(csr),
            recent=self._history.recent(csr, now=self._clock.now()),
        )

    def _reserved_networks(self) -> tuple[Network, ...]:
        """Return the networks of Services and pods."""
        specs = [obj.get("spec") or {} for obj in (*self._service_networks.objects.values(), *self._nodes.objects.values())]
        texts = {cidr for spec in specs for key in ("cidrs", "podCIDRs") for cidr in spec.get(key) or ()}
        return tuple(network for text in sorted(texts) if (network := _network(text)) is not None)

    def _node_changed(self, event: WatchEvent) -> None:
        node, _ = core.identity_of(event.object)
        for name in self._history.open_requests(node):
            self._queue.add(name, owner=f"system:node:{node}")

    def _check_all(self) -> None:
        for csr in self._csrs.objects.values():
            if _is_ours(csr):
                name, _ = core.identity_of(csr)
                self._queue.add(name, owner=self._owner(name))

    def _about(self, csr: SigningRequest, found: Object) -> Mapping[str, object]:
        """Return the object that an event is about: the Node, or the request where there is none."""
        return self._nodes.get(node_of(csr.username)) or found

    def _gone(self, name: str) -> None:
        super()._gone(name)
        self._told.discard(name)


def _is_ours(csr: Object) -> bool:
    return (csr.get("spec") or {}).get("signerName") == KUBELET_SERVING and is_open(csr)


def _source_of(san: str, node: str, known: KnownNode | None, policy: NodeApprovalPolicy) -> str:
    """Return the first source that gives a name or an address to a node; '' if none does."""
    row = policy.row(node)
    if row is not None and row.allows(san, node):
        return FILE
    if not policy.trust_reported or known is None or san not in known.reported:
        return ""
    is_inside = node_approval.contains(policy.node_networks, san) or san == node
    return NODES if is_inside or any(san.endswith(f".{suffix}") for suffix in policy.dns_suffixes) else ""


def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None
