"""Gathers evidence from the objects that watches report: Nodes, requests, API servers, networks of Services.

Reads and writes nothing itself.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

from kubewright.apis import node_approval
from kubewright.apis.formats import Network
from kubewright.apis.node_approval import NodeApprovalPolicy
from kubewright.base.errors import CertificateError
from kubewright.controllers.requests import SigningRequest
from kubewright.controllers.serving.evidence import FILE, NODES, Evidence, Fetched, KnownNode, node_of
from kubewright.controllers.serving.history import RequestHistory
from kubewright.controllers.serving.sources.interface import Question
from kubewright.kube import core
from kubewright.kube.answers import EventType, WatchEvent
from kubewright.kube.core import Object, identity_of
from kubewright.kube.daemons import known_nodes
from kubewright.kube.daemons.known_nodes import KnownNodes
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST, ENDPOINTS, NODE, SERVICE_CIDR, Resource

_CREDENTIAL: Final = "authentication.kubernetes.io/credential-id"
_FINGERPRINT: Final = "X509SHA256="
"""The prefix with which the API server records a requester's client certificate (apiserver v1.36, pkg/authentication/request/x509/x509.go)."""
_OF_SERVICES, _OF_PODS = "cidrs", "podCIDRs"
"""The fields of a ServiceCIDR and of a Node with their networks."""
_SEVERAL: Final = 2
"""This many Nodes with addresses in a pod range show that it is false. A single Node may have reported the address of a pod."""
API_SERVERS: Final = ("default", "kubernetes")
"""Namespace and name of the Endpoints that API servers write themselves."""


class Gatherer:
    """The facts about a cluster that matter for requests for serving certificates."""

    def __init__(self) -> None:
        self.history = RequestHistory()
        self._known = KnownNodes()
        self._nodes: dict[str, KnownNode] = {}
        self._networks: dict[tuple[str, str], tuple[Network, ...]] = {}
        self.readers: Mapping[Resource, Callable[[WatchEvent], None]] = {
            NODE: self._node_changed,
            CERTIFICATE_SIGNING_REQUEST: self.history.changed,
            ENDPOINTS: self._known.api_servers_changed,
            SERVICE_CIDR: lambda event: self._networks_changed(event, _OF_SERVICES),
        }
        """The kinds whose changes it needs, and the functions that receive them."""

    def gather(self, csr: SigningRequest, policy: NodeApprovalPolicy, *, now: datetime) -> Evidence:
        """Return the evidence about a request from watches and the policy; none for a request that cannot be read."""
        try:
            names = csr.details().names
        except CertificateError:
            return Evidence()
        node = node_of(csr.username)
        known = self._nodes.get(node)
        sans = (*names.dns, *names.addresses)
        owned = {san: source for san in sans if (source := _source_of(san, node, known, policy))}
        row = policy.row(node)
        listed = frozenset(san for san in sans if row is not None and row.lists(san))
        certain = self._known.certain(sans, node)
        return Evidence(
            node=known,
            owned=owned,
            listed=listed,
            foreign={san: owner for san, owner in certain.items() if owner or san not in listed},
            reported=self._known.reported(sans, node),
            api_servers=self._known.api_servers,
            networks=self._all_networks(_OF_SERVICES),
            pods=self._pod_networks(names.addresses),
            key_holder=self.history.key_holder(csr),
            newer=self.history.newer(csr),
            recent=self.history.recent(csr, now=now),
            certified=self.history.certified(node, now=now) if policy.renewal == node_approval.CERTIFICATE else frozenset(),
            fetched=None if policy.asks else Fetched(),
        )

    def question(self, csr: SigningRequest) -> Question:
        """Return the question about a request that sources are asked. Raises CertificateError for one that cannot be read."""
        names = csr.details().names
        return question(csr, self.history, node=node_of(csr.username), names=names.dns, addresses=names.addresses)

    def _node_changed(self, event: WatchEvent) -> None:
        name, _ = identity_of(event.object)
        self._known.changed(event)
        self._networks_changed(event, _OF_PODS)
        self._nodes.pop(name, None)
        if event.type is not EventType.DELETED:
            claims = known_nodes.claims_of(event.object)
            deleting = bool(core.metadata(event.object).get("deletionTimestamp"))
            reported = claims.certain | claims.reported
            self._nodes[name] = KnownNode(name=name, reported=reported, certain=claims.certain, deleting=deleting)

    def _all_networks(self, field: str) -> tuple[Network, ...]:
        return tuple(network for (kind, _), networks in self._networks.items() if kind == field for network in networks)

    def _pod_networks(self, addresses: Iterable[str]) -> tuple[Network, ...]:
        """Return the pod ranges of Nodes that contain one of these addresses, without implausible ones."""
        asked = tuple(addresses)

        def counts(network: Network, node: str) -> bool:
            return any(node_approval.contains((network,), address) for address in asked) and not self._is_implausible(network, node)

        of_nodes = ((node, networks) for (kind, node), networks in self._networks.items() if kind == _OF_PODS)
        return tuple(network for node, networks in of_nodes for network in networks if counts(network, node))

    def _is_implausible(self, pods: Network, node: str) -> bool:
        """Whether a pod range contains addresses of the Node itself, of an API server, of a control plane or of several Nodes.

        A Node may choose its range itself, and could otherwise prevent all other nodes from getting certificates.
        """
        inside = [one for one in self._nodes.values() if any(node_approval.contains((pods,), name) for name in one.reported)]
        return (
            len(inside) >= _SEVERAL
            or any(one.name == node or one.certain - {one.name} for one in inside)
            or any(node_approval.contains((pods,), address) for address in self._known.api_servers)
        )

    def _networks_changed(self, event: WatchEvent, field: str) -> None:
        key = (field, identity_of(event.object)[0])
        self._networks.pop(key, None)
        if event.type is not EventType.DELETED and (found := _networks_of(event.object, field)):
            self._networks[key] = found


def question(csr: SigningRequest, history: RequestHistory, *, node: str, names: tuple[str, ...], addresses: tuple[str, ...]) -> Question:
    """Return the question about these names and addresses of a node that sources are asked."""
    found = next((one for one in csr.extra.get(_CREDENTIAL) or () if one.startswith(_FINGERPRINT)), "")
    return Question(
        request=csr.name,
        node=node,
        username=csr.username,
        names=names,
        addresses=addresses,
        credential=found.removeprefix(_FINGERPRINT),
        issued=history.credentials(node),
    )


def _networks_of(obj: Object, field: str) -> tuple[Network, ...]:
    texts = (obj.get("spec") or {}).get(field) or ()
    return tuple(network for text in texts if (network := _network(str(text))) is not None)


def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None


def _source_of(san: str, node: str, known: KnownNode | None, policy: NodeApprovalPolicy) -> str:
    """Return the first source that gives a name or an address to a node; '' if none does."""
    row = policy.row(node)
    if row is not None and row.allows(san, node):
        return FILE
    if not policy.trust_reported or known is None or san not in known.reported:
        return ""
    is_inside = node_approval.contains(policy.node_networks, san) or san == node
    return NODES if is_inside or any(san.endswith(f".{suffix}") for suffix in policy.dns_suffixes) else ""
