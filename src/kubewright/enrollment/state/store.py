"""A hub's data: tenant clusters, tokens, join records, decisions of administrators, and a journal.

A narrow interface with the same semantics for all stores.

Related writes are one call: a record and its line of the journal are both stored, or neither is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol

from kubewright.apis.join_records import JoinRecord
from kubewright.base.clock import rfc3339
from kubewright.base.errors import KubewrightError, TryAgain
from kubewright.base.records import dataclass
from kubewright.enrollment.state.clusters import TenantCluster
from kubewright.tokens.secrets import parse_moment
from kubewright.tokens.strings import BootstrapTokenString

TAKEN_OVER: Final = "state of an earlier format migrated"
"""The event for taking over a state that was not completely authenticated."""
MOST_VERDICTS: Final = 1000
"""For how many requests of a cluster decisions are kept, the latest ones."""
_TOKEN_LIVES_ON: Final = timedelta(minutes=1)
"""An API server accepts a token for ten seconds after it expires."""


@dataclass(frozen=True, kw_only=True)
class JoinToken:
    """A token with which nodes may request to join one cluster. `expires` is RFC 3339, '' for never."""

    cluster: str
    token: BootstrapTokenString
    expires: str = ""
    description: str = ""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One line of the journal. The store assigns `number`. Contains no secrets."""

    at: str
    cluster: str
    event: str
    node: str = ""
    details: Mapping[str, Any]
    number: int = 0

    def document(self) -> dict[str, Any]:
        """Return it for display."""
        return {"number": self.number, "at": self.at, "cluster": self.cluster, "event": self.event, "node": self.node, **self.details}


@dataclass(frozen=True, kw_only=True)
class Retention:
    """How long lines of the journal are kept, and how many at most. Each write removes a few of those that are too old.

    Digests of requests have their own rule: they are kept as long as a token could send a copy, that is until the last
    token has expired that was valid when the request was answered.
    """

    age: timedelta = timedelta(days=90)
    lines: int = 100_000


class Overtaken(TryAgain):
    """The state has changed since a write was decided: nothing was written."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} has changed in the meantime, and nothing was written", remedy="check it, and run the command again")


class Taken(KubewrightError):
    """A name, an address or a request was taken by another node since a request was decided: decisions run concurrently."""


def require_free(record: JoinRecord, *, owners: Mapping[str, str], first: str, before: JoinRecord | None) -> None:
    """Require that a record's names and addresses are free.

    `owners` have them, `first` is the first request with its digest, `before` the previous record. Raises Taken.
    """
    others = {name: node for name, node in owners.items() if node != record.node}
    if others:
        raise Taken(f"{', '.join(sorted(others))}: another node has it")
    if first not in {"", record.request}:
        raise Taken(f"the request of {record.node} is a copy of an earlier one")
    if record.active and before is not None and before.active and before.key != record.key:
        raise Taken(f"{record.node}: another machine has that name")


def require_same(what: str, *, now: object, decided: object) -> None:
    """Require that a value in the state is still the one on which a write was decided. Raises Overtaken."""
    if now != decided:
        raise Overtaken(what)


def require_new(clusters: Iterable[TenantCluster], known: Iterable[str]) -> None:
    """Require that a hub has no clusters of these names. Raises Taken."""
    taken = sorted({cluster.name for cluster in clusters} & set(known))
    if taken:
        raise Taken(f"the hub serves {', '.join(taken)} already")


def copies_until(ends: Iterable[str], at: str) -> str:
    """Return until when a token that is valid `at` a moment could send a copy of a request, '' for forever.

    `ends` are the expiry times of all tokens.
    """
    found = [at, *ends]
    end = parse_moment(max(found)) if "" not in found else None
    return rfc3339(end + _TOKEN_LIVES_ON) if end is not None else ""


class HubStore(Protocol):
    """The state of one hub.

    Every method raises HostError if it cannot be read or written, TrustError if a secret was modified.
    """

    def version(self) -> int:
        """Return a number that changes when another process has written."""
        ...

    def clusters(self) -> list[TenantCluster]:
        """Return all clusters by name."""
        ...

    def save_cluster(self, cluster: TenantCluster, event: Event) -> None:
        """Add a cluster, or replace the version that it was made from (`TenantCluster.generation`).

        Raises Overtaken if that has changed.
        """
        ...

    def add_clusters(
        self, clusters: Sequence[TenantCluster], tokens: Sequence[JoinToken], records: Sequence[JoinRecord], event: Event
    ) -> None:
        """Add clusters with their tokens and records, all or nothing.

        Raises Taken if a cluster with one of the names exists.
        """
        ...

    def contents(self, cluster: str) -> str:
        """Return a value that changes with every change to a cluster, its tokens and its records; '' if there is nothing of it."""
        ...

    def remove_cluster(self, name: str, event: Event, *, contents: str) -> None:
        """Remove a cluster with its tokens and records.

        Raises Overtaken unless these `contents` are the current ones.
        """
        ...

    def tokens(self, cluster: str = "") -> list[JoinToken]:
        """Return the tokens of a cluster, or of all."""
        ...

    def save_token(self, token: JoinToken, event: Event, *, generation: str = "") -> None:
        """Add a token to the cluster of this generation. Raises Overtaken if that has changed."""
        ...

    def remove_token(self, token: JoinToken, event: Event) -> bool:
        """Remove a token; False if there was none. Raises Overtaken if another one has its id."""
        ...

    def record(self, cluster: str, node: str) -> JoinRecord | None:
        """Return the join record of a node."""
        ...

    def records(self, cluster: str = "") -> list[JoinRecord]:
        """Return the records of a cluster, or of all, by name."""
        ...

    def each_record(self, cluster: str = "") -> Iterator[JoinRecord]:
        """Yield the records one after the other, because there may be too many for memory.

        The store must not be used in the meantime.
        """
        ...

    def owners(self, cluster: str, names: Iterable[str]) -> dict[str, str]:
        """Return the nodes that hold these names and addresses, without those that are free."""
        ...

    def first_request(self, cluster: str, digest: str) -> str:
        """Return the uid of the first request with an encrypted key, '' if there is none."""
        ...

    def keep(self, record: JoinRecord, event: Event, *, before: JoinRecord | None = None, digest: str = "", generation: str = "") -> None:
        """Save a record and what its node holds (`JoinRecord.held`); `digest` is that of the request it answers.

        `before` is the record that it replaces, `generation` that of the cluster for which it was decided. Raises Taken
        if another node holds some of it, Overtaken if the record or the cluster has changed; then nothing is stored.
        """
        ...

    def forget(self, record: JoinRecord, event: Event) -> bool:
        """Remove a record, so that its node's name is free; False if there was none.

        Raises Overtaken if it was replaced.
        """
        ...

    def verdict(self, cluster: str, subject: str) -> bool | None:
        """Return an administrator's decision about a request (`Seen.subject`); None if there is none."""
        ...

    def save_verdict(self, cluster: str, subject: str, *, approved: bool, event: Event, generation: str = "") -> None:
        """Store an administrator's decision about a request to the cluster of this generation.

        Raises Overtaken if that has changed.
        """
        ...

    def add_event(self, event: Event) -> None:
        """Write a line to the journal."""
        ...

    def journal(self, *, most: int = 1000) -> list[Event]:
        """Return the first `most` lines, in order."""
        ...

    def close(self) -> None:
        """Close it. Idempotent."""
        ...
