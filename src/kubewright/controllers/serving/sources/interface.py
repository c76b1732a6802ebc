"""The questions to a source, and the tools that it needs to answer. Each kind of source is a module of this package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from kubewright.apis.join_records import JoinRecord
from kubewright.apis.node_sources import JoinRecordsSource
from kubewright.base.errors import KubewrightError, UsageError
from kubewright.base.records import dataclass
from kubewright.controllers.authorities import ReadFile
from kubewright.controllers.serving.evidence import Answer
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.client import AsyncKubeClient
from kubewright.kube.credentials import Access

MOST_NAMES: Final = 64
"""Names and addresses that one answer about a node may contain. More mean that it is not about a node."""


class NoEvidence(KubewrightError):
    """A source has given no answer that can be used."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One request: its node, the names and addresses that it is for, in canonical form, and the requester.

    `credential` is the fingerprint of the certificate with which the request was sent, '' for another credential;
    `issued` are the fingerprints of the client certificates that the API server has issued to the node.
    """

    request: str
    node: str
    username: str
    names: tuple[str, ...]
    addresses: tuple[str, ...]
    credential: str = ""
    issued: frozenset[str] = frozenset()

    @property
    def sans(self) -> frozenset[str]:
        """All names and addresses."""
        return frozenset((*self.names, *self.addresses))


class EvidenceSource(Protocol):
    """A source that is open. The caller limits the time of an answer."""

    async def changes(self) -> int:
        """Return a number that grows when answers may have changed since; always 0 if the source cannot know it."""
        ...

    async def ask(self, question: Question) -> Answer:
        """Answer a question. Raises KubewrightError, NoEvidence for an answer that cannot be used."""
        ...

    async def close(self) -> None:
        """Close its connections. Idempotent."""
        ...


@dataclass(frozen=True, kw_only=True)
class Look:
    """The answer of the join records about a node: its record, and the nodes that have each of some names.

    `version` is that of the records, at the time of the look or shortly before.
    """

    version: int
    record: JoinRecord | None
    owners: Mapping[str, str]


class RecordBook(Protocol):
    """The join records of one cluster in a hub."""

    async def version(self) -> int:
        """Return a number that changes when the records do. Raises KubewrightError."""
        ...

    async def look_up(self, node: str, names: frozenset[str]) -> Look:
        """Look up a node and names. Raises KubewrightError."""
        ...

    async def close(self) -> None:
        """Close it. Idempotent."""
        ...


def _no_records(_: JoinRecordsSource) -> RecordBook:
    raise UsageError("join records cannot be read here", remedy="use another source")


@dataclass(frozen=True, kw_only=True)
class Tools:
    """The tools that a process provides to sources: reading files, clients of other clusters, and the join records of a hub."""

    read: ReadFile
    connect: Callable[[Access], AsyncKubeAPI] = AsyncKubeClient
    records: Callable[[JoinRecordsSource], RecordBook] = _no_records
