"""The evidence about the node of a request, gathered before the decision, as values that can be shown."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final

from kubewright.apis.formats import Network
from kubewright.apis.node_approval import NodeApprovalPolicy
from kubewright.base.records import dataclass, field, replace
from kubewright.controllers.requests import SigningRequest
from kubewright.pki.requests.request_details import RequestDetails

FILE, NODES = "file", "nodes"
"""The names of the sources that need not be asked: the policy itself, and what the Node reports."""
JOIN_RECORDS: Final = "joinRecords"


@dataclass(frozen=True, kw_only=True)
class KnownNode:
    """A Node as stored by the API server."""

    name: str
    reported: frozenset[str] = frozenset()
    """The names and addresses that its kubelet reports, normalized."""
    certain: frozenset[str] = frozenset()
    """The reported names and addresses that no other node can have: its own name, and everything of a control plane."""
    deleting: bool = False


class Membership(enum.Enum):
    """The evidence from join records about the requester."""

    MEMBER = "it has joined"
    NO_RECORD = "it has no join record"
    LEFT = "its join record says that it has left"
    OTHER_CREDENTIAL = "its credential is none of those that were issued to it"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer of one source about one request."""

    source: str
    problem: str = ""
    """Why the source has not answered; '' if it has."""
    gives: frozenset[str] = frozenset()
    """The names and addresses of the request that belong to the node."""
    foreign: Mapping[str, str] = field(default_factory=dict)
    """The names and addresses of the request that belong to another node, with the name of that node."""
    membership: Membership | None = None
    """The answer of join records; None from other sources."""


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """Evidence that was fetched for one request, from outside the cluster."""

    answers: tuple[Answer, ...] = ()
    """The answers of the sources, in the order of the policy."""
    resolved: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    """The addresses of each DNS name of the request; None for a name that could not be looked up."""
    present: Mapping[str, str] = field(default_factory=dict)
    """The addresses of the request at which a kubelet answers with a valid certificate, with the common name in it."""
    present_names: frozenset[str] = frozenset()
    """The names in the certificate with which the node itself answers there."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Evidence about one request: who has the names and addresses in it, and earlier requests."""

    node: KnownNode | None = None
    """The requester's Node; None if it does not exist."""
    owned: Mapping[str, str] = field(default_factory=dict)
    """The names and addresses of the request that belong to the node, with the source that says so."""
    listed: frozenset[str] = frozenset()
    """The addresses of the request that the policy lists for the node one by one, not as part of a network."""
    foreign: Mapping[str, str] = field(default_factory=dict)
    """The names and addresses of the request that certainly belong to another node, with its name; '' for an API server."""
    reported: Mapping[str, str] = field(default_factory=dict)
    """The names and addresses of the request that another node reports about itself, with its name."""
    api_servers: frozenset[str] = frozenset()
    """The addresses of the API servers."""
    networks: tuple[Network, ...] = ()
    """The networks of Services."""
    pods: tuple[Network, ...] = ()
    """The pod ranges of Nodes that contain addresses of the request. A Node may have chosen its range itself."""
    key_holder: str = ""
    """Another user or purpose for which the same key was used before; '' if there is none."""
    newer: str = ""
    """A newer open request of the same requester; '' if there is none."""
    recent: int = 0
    """How many requests the requester has sent within the last hour."""
    certified: frozenset[str] = frozenset()
    """The names in the newest certificate that was issued to the node on our approval, if it is still valid."""
    fetched: Fetched | None = field(default_factory=Fetched)
    """Evidence from outside the cluster; None before it has been requested."""

    @property
    def unavailable(self) -> tuple[str, ...]:
        """The sources without an answer, each with the reason."""
        answers = self.fetched.answers if self.fetched is not None else ()
        return tuple(f"{one.source} ({one.problem})" for one in answers if one.problem)

    @property
    def others(self) -> dict[str, str]:
        """The names and addresses of the request that belong to other nodes, with the node.

        What another Node only reports does not count for a name that an independent source gives to this node:
        otherwise nodes could take names from others by reporting them.
        """
        return {**{san: self.reported[san] for san in self.doubtful(self.reported)}, **self.foreign}

    def doubtful(self, sans: Iterable[str]) -> tuple[str, ...]:
        """Return the names that only the Node itself claims."""
        return tuple(san for san in sans if self.owned.get(san, NODES) == NODES)

    def completed(self, fetched: Fetched) -> Evidence:
        """Return the evidence together with what was fetched. If several sources give a name, the first one counts."""
        answers = [one for one in fetched.answers if not one.problem]
        given = {san: one.source for one in reversed(answers) for san in one.gives}
        known = {san: source for san, source in self.owned.items() if source != NODES or san not in given}
        foreign = {san: node for one in answers for san, node in one.foreign.items()}
        return replace(self, owned={**given, **known}, foreign={**foreign, **self.foreign}, fetched=fetched)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The input of the checks: a request, its decoded contents, the evidence, and the policy in force."""

    csr: SigningRequest
    details: RequestDetails
    evidence: Evidence
    policy: NodeApprovalPolicy

    @property
    def node(self) -> str:
        """The name of the node that the requester says it is."""
        return node_of(self.csr.username)

    @property
    def fetched(self) -> Fetched:
        """Evidence from outside the cluster; empty before it has been requested."""
        return self.evidence.fetched or Fetched()

    @property
    def sans(self) -> tuple[str, ...]:
        """All DNS names and addresses of the request, addresses in canonical form."""
        return (*self.details.names.dns, *self.details.names.addresses)


def node_of(username: str) -> str:
    """Return the node's name in a username `system:node:NAME`; '' for any other user."""
    prefix = "system:node:"
    return username.removeprefix(prefix) if username.startswith(prefix) else ""
