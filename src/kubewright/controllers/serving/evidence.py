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
    """A Node as stored by the API server. `reported` are the names and addresses that its kubelet reports, normalized.

    `certain` are those of them that nobody else can have: its name, and all of a control plane.
    """

    name: str
    reported: frozenset[str] = frozenset()
    certain: frozenset[str] = frozenset()
    deleting: bool = False


class Membership(enum.Enum):
    """The evidence from join records about the requester."""

    MEMBER = "it has joined"
    NO_RECORD = "it has no join record"
    LEFT = "its join record says that it has left"
    OTHER_CREDENTIAL = "its credential is none of those that were issued to it"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer of one source about one request. `problem` says why there is none; '' if there is one.

    - `gives` are names and addresses of the request that belong to the node, `foreign` those of other nodes.
    - `membership` is the answer of join records; None from other sources.
    """

    source: str
    problem: str = ""
    gives: frozenset[str] = frozenset()
    foreign: Mapping[str, str] = field(default_factory=dict)
    membership: Membership | None = None


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """Evidence that was fetched for one request.

    - `answers` are those of the sources, in the order of the policy.
    - `resolved` maps DNS names of the request to their addresses; None for a name that could not be looked up.
    - `present` maps addresses of the request to the common name of the kubelet that answers there with a valid
      certificate; addresses without such a kubelet are absent.
    - `present_names` are the names in the certificate that the node itself serves there.
    """

    answers: tuple[Answer, ...] = ()
    resolved: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    present: Mapping[str, str] = field(default_factory=dict)
    present_names: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Evidence about one request.

    - `node` is the requester's Node, None if there is none.
    - `owned` maps names and addresses of the request to the source that gives them to the node.
    - `listed` are those addresses of the request that the policy gives to the node one by one, not as part of a network.
    - `foreign` maps names and addresses of the request to the other node that certainly has them, `reported` to one that
      only reports them.
    - `api_servers` are the addresses of API servers, `networks` those of Services, and `pods` the ranges of pods with
      addresses of the request that Nodes have, which they may have chosen themselves.
    - `key_holder` is another user, or another purpose, for which this key was used before; '' for none.
    - `newer` is a newer open request of the same requester; '' for none. `recent` counts its requests of the last hour.
    - `certified` are the names in the newest certificate that was issued to the node on our approval and is valid.
    - `fetched` is what sources outside the cluster say. None: they have not been asked yet.
    """

    node: KnownNode | None = None
    owned: Mapping[str, str] = field(default_factory=dict)
    listed: frozenset[str] = frozenset()
    foreign: Mapping[str, str] = field(default_factory=dict)
    reported: Mapping[str, str] = field(default_factory=dict)
    api_servers: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()
    pods: tuple[Network, ...] = ()
    key_holder: str = ""
    newer: str = ""
    recent: int = 0
    certified: frozenset[str] = frozenset()
    fetched: Fetched | None = field(default_factory=Fetched)

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
        """Return those of these names that only the Node itself claims."""
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
        """The fetched answers; none before they were fetched."""
        return self.evidence.fetched or Fetched()

    @property
    def sans(self) -> tuple[str, ...]:
        """All DNS names and addresses of the request, addresses in canonical form."""
        return (*self.details.names.dns, *self.details.names.addresses)


def node_of(username: str) -> str:
    """Return the node's name in a username `system:node:NAME`; '' for any other user."""
    prefix = "system:node:"
    return username.removeprefix(prefix) if username.startswith(prefix) else ""
