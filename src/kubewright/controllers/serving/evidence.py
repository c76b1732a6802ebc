"""What is known about the node that a request is about, gathered before the decision, as values that can be shown."""

from __future__ import annotations

from collections.abc import Mapping

from kubewright.apis.formats import Network
from kubewright.apis.node_approval import NodeApprovalPolicy
from kubewright.base.records import dataclass, field
from kubewright.controllers.requests import SigningRequest
from kubewright.pki.requests.request_details import RequestDetails


@dataclass(frozen=True, kw_only=True)
class KnownNode:
    """A Node as the API server has it. `reported` are the names and addresses that its kubelet reports, normalized."""

    name: str
    reported: frozenset[str] = frozenset()
    deleting: bool = False


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Evidence about one request.

    - `node` is the requester's Node, None if there is none.
    - `owned` maps names and addresses of the request to the source that gives them to the node.
    - `unavailable` names sources that could not be asked.
    - `foreign` maps names and addresses of the request to the other node that has them.
    - `api_servers` are the addresses of API servers, `networks` those of Services and pods.
    - `key_holder` is another user, or another purpose, for which this key was used before; '' for none.
    - `newer` is a newer open request of the same requester; '' for none. `recent` counts its requests of the last hour.
    """

    node: KnownNode | None = None
    owned: Mapping[str, str] = field(default_factory=dict)
    unavailable: tuple[str, ...] = ()
    foreign: Mapping[str, str] = field(default_factory=dict)
    api_servers: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()
    key_holder: str = ""
    newer: str = ""
    recent: int = 0


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What the checks look at: a request, what is in it, the evidence, and the policy in force."""

    csr: SigningRequest
    details: RequestDetails
    evidence: Evidence
    policy: NodeApprovalPolicy

    @property
    def node(self) -> str:
        """The name of the node that the requester says it is."""
        return node_of(self.csr.username)

    @property
    def sans(self) -> tuple[str, ...]:
        """All DNS names and addresses of the request, addresses in canonical form."""
        return (*self.details.names.dns, *self.details.names.addresses)


def node_of(username: str) -> str:
    """Return the node's name in a username `system:node:NAME`; '' for any other user."""
    prefix = "system:node:"
    return username.removeprefix(prefix) if username.startswith(prefix) else ""
