"""The seam of etcd: requests about a cluster's members and data, their states and errors.

Many of etcd's refusals differ only in their text.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from kubewright.base.errors import APIError, Unreachable
from kubewright.base.messages import one_line
from kubewright.base.records import dataclass, field


class EtcdError(APIError):
    """Etcd answered with a refusal."""


class LearnerNotInSync(EtcdError):
    """A learner cannot vote yet: it has not caught up with the leader, or has not started."""


class TooManyLearners(EtcdError):
    """Etcd accepts one learner at a time, and there is one."""


class MemberExists(EtcdError):
    """A member with this peer URL exists."""


class MemberNotFound(EtcdError):
    """The member does not exist."""


class NotLearner(EtcdError):
    """The member already votes."""


class UnhealthyCluster(EtcdError):
    """Etcd changes no members while one of them is not connected to the others, or was just added."""


class NoQuorum(EtcdError):
    """Too few members are up: there is no leader, or it does not answer."""


class StillLearning(EtcdError):
    """The requested member is itself a learner, and learners serve almost no requests."""


PASSING: Final = (LearnerNotInSync, TooManyLearners, UnhealthyCluster, NoQuorum, StillLearning)
"""Errors that may be temporary."""

_QUORUM: Final = "make sure that more than half of the members run and reach each other on their peer ports (2380)"

_BY_WORDS: Final[tuple[tuple[str, type[EtcdError], str], ...]] = (
    ("in sync with leader", LearnerNotInSync, "wait until it has caught up; look at the log of its etcd if that takes long"),
    ("too many learner", TooManyLearners, "wait until the other learner votes, or remove it"),
    ("peer urls already exists", MemberExists, "use the existing member, or remove it"),
    ("member id already exist", MemberExists, "use the existing member, or remove it"),
    ("member not found", MemberNotFound, "list the members"),
    ("can only promote a learner", NotLearner, "nothing is left to do"),
    ("unhealthy cluster", UnhealthyCluster, "make sure that all members run; etcd waits five seconds after a member was added"),
    ("not enough started members", UnhealthyCluster, "make sure that all members run"),
    ("not supported for learner", StillLearning, "ask another member"),
    ("no leader", NoQuorum, _QUORUM),
    ("leader changed", NoQuorum, _QUORUM),
    ("request timed out", NoQuorum, _QUORUM),
    ("not connected", NoQuorum, _QUORUM),
    ("server stopped", NoQuorum, "it may be restarting: try again"),
    ("deadline exceeded", NoQuorum, _QUORUM),
)
"""Text of a refusal (etcd v3.6, api/v3rpc/rpctypes/error.go), its class, and the remedy. The first match applies."""


_UNAVAILABLE: Final = 14
"""gRPC's code for a server that is currently unavailable."""


def refusal(answer: object, *, server: str, doing: str) -> EtcdError:
    """Return the error for an answer that is not a success."""
    body: dict[str, Any] = answer if isinstance(answer, dict) else {}
    said = str(body.get("message") or body.get("error") or "no reason given")[:500]
    what = f"etcd at {server} refused to {doing}"
    for words, kind, remedy in _BY_WORDS:
        if words in said.lower():
            return kind(what, detail=said, remedy=remedy)
    if body.get("code") == _UNAVAILABLE:
        return NoQuorum(what, detail=said, remedy=_QUORUM)
    return EtcdError(what, detail=said, remedy="look at the log of that etcd")


def nobody(failed: Sequence[APIError], *, doing: str) -> APIError:
    """Return the error for several members that all failed."""
    kind: type[APIError] = NoQuorum if any(isinstance(error, NoQuorum) for error in failed) else Unreachable
    return kind(f"none of {len(failed)} members of etcd can be asked to {doing}", detail="\n".join(map(str, failed)), remedy=_QUORUM)


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """PEM texts: the CA of the servers, and the client certificate and its key; without these, connections are anonymous."""

    ca: bytes
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class Member:
    """A member of the cluster. `name` is empty until it has started for the first time; a learner has no vote."""

    id: int
    name: str = ""
    peer_urls: tuple[str, ...] = ()
    client_urls: tuple[str, ...] = ()
    learner: bool = False

    @property
    def hex_id(self) -> str:
        """Its id as etcdctl writes it."""
        return f"{self.id:x}"

    @property
    def shown(self) -> str:
        """Its description in messages: its name or id, and its URL."""
        return one_line(" at ".join((self.name or self.hex_id, *self.peer_urls[:1])))


@dataclass(frozen=True, kw_only=True)
class Status:
    """The state of one endpoint.

    `errors` are its problems, including alarms; `problem` is why it gave no answer, else empty. `size` is the size of
    its database file in bytes, of which `in_use` contain data; it accepts no writes beyond `quota`. `storage_version`
    is empty until all members are on 3.6.
    """

    endpoint: str
    member_id: int = 0
    leader_id: int = 0
    cluster_id: int = 0
    version: str = ""
    storage_version: str = ""
    learner: bool = False
    revision: int = 0
    raft_term: int = 0
    raft_index: int = 0
    applied_index: int = 0
    size: int = 0
    in_use: int = 0
    quota: int = 0
    errors: tuple[str, ...] = ()
    problem: str = ""

    @property
    def serves(self) -> bool:
        """Whether it answered and follows a leader: it is alive, and its vote counts, even with an alarm."""
        return not self.problem and self.leader_id != 0

    @property
    def reason(self) -> str:
        """Why it does not serve, on one line; empty if it does."""
        if self.serves:
            return ""
        return f"{self.endpoint}: {self.problem or '; '.join(self.errors) or 'no leader'}"


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """An alarm that a member has raised: `NOSPACE` or `CORRUPT`."""

    member_id: int
    kind: str


@dataclass(frozen=True, kw_only=True)
class Hash:
    """The hash of a member's keys up to `revision`. Two hashes are comparable only if both revisions are equal."""

    value: int
    revision: int
    compact_revision: int

    def differs(self, other: Hash) -> bool:
        """Whether two members certainly have different data."""
        comparable = (self.revision, self.compact_revision) == (other.revision, other.compact_revision)
        return comparable and self.value != other.value


def read_member(value: Mapping[str, Any]) -> Member:
    """Parse a member in an answer. Raises ValueError, TypeError, KeyError or AttributeError for anything else."""
    return Member(
        id=int(value["ID"]),
        name=str(value.get("name", "")),
        peer_urls=tuple(map(str, value.get("peerURLs", ()))),
        client_urls=tuple(map(str, value.get("clientURLs", ()))),
        learner=value.get("isLearner") is True,
    )


def read_status(value: Mapping[str, Any], *, endpoint: str) -> Status:
    """Parse the answer of one endpoint. Raises as `read_member` does."""
    header = value["header"]
    return Status(
        endpoint=endpoint,
        member_id=int(header["member_id"]),
        leader_id=int(value.get("leader", 0)),
        cluster_id=int(header.get("cluster_id", 0)),
        version=str(value.get("version", "")),
        storage_version=str(value.get("storageVersion", "")),
        learner=value.get("isLearner") is True,
        revision=int(header.get("revision", 0)),
        raft_term=int(value.get("raftTerm", 0)),
        raft_index=int(value.get("raftIndex", 0)),
        applied_index=int(value.get("raftAppliedIndex", 0)),
        size=int(value.get("dbSize", 0)),
        in_use=int(value.get("dbSizeInUse", 0)),
        quota=int(value.get("dbSizeQuota", 0)),
        errors=tuple(map(str, value.get("errors", ()))),
    )


def read_hash(value: Mapping[str, Any]) -> Hash:
    """Parse the hash of one endpoint. Raises as `read_member` does."""
    return Hash(
        value=int(value["hash"]), revision=int(value.get("hash_revision", 0)), compact_revision=int(value.get("compact_revision", 0))
    )


def by_peer_url(members: Iterable[Member], peer_url: str) -> Member | None:
    """Return the member with a peer URL, None if there is none: the peer URL identifies a machine."""
    return next((member for member in members if peer_url in member.peer_urls), None)


def quorum(statuses: Iterable[Status]) -> bool:
    """Return whether more than half of the endpoints serve (kubeadm v1.36: util/etcd/etcd.go)."""
    found = [status.serves for status in statuses]
    return sum(found) * 2 > len(found)


def initial_cluster(members: Iterable[Member], *, name: str, peer_url: str) -> str:
    """Return the value of `--initial-cluster` for the member with this peer URL: all members in the order of the list.

    Its own entry has the name with which it will start; a member that never started has its id (kubeadm v1.36:
    util/etcd/etcd.go).
    """

    def called(member: Member) -> str:
        return name if peer_url in member.peer_urls else member.name or member.hex_id

    return ",".join(f"{called(member)}={member.peer_urls[0]}" for member in members if member.peer_urls)


class Etcd(Protocol):
    """An etcd cluster. Every verb raises the errors of `failures`, or Unreachable if no endpoint gives an answer."""

    def members(self, *, agreed: bool = True) -> list[Member]:
        """Read: return the members in etcd's order.

        Without `agreed`, return them as one member knows them, which needs no quorum.
        """
        ...

    def statuses(self) -> list[Status]:
        """Read: return the status of all endpoints, requested concurrently.

        One that does not answer has a `problem`, and raises nothing.
        """
        ...

    def status(self, endpoint: str, /) -> Status:
        """Read: return the status of one endpoint, which need not be one of the client's."""
        ...

    def reach(self, peer_url: str, /) -> str:
        """Read: return why the peer port of a member cannot be reached from here; empty if it can."""
        ...

    def alarms(self) -> list[Alarm]:
        """Read: return the alarms that members have raised."""
        ...

    def hash(self, endpoint: str, /, *, revision: int = 0) -> Hash:
        """Read: return the hash of the keys of one member, up to a revision or all. Reads its whole database."""
        ...

    def keys(self, endpoint: str, prefix: str, /) -> list[str]:
        """Read: return the keys that begin with a prefix, as one member has them. Needs no quorum."""
        ...

    def snapshot(self, endpoint: str, /) -> Generator[bytes, None, None]:
        """Read: yield the database of one member and its SHA-256, in the form of a snapshot file, as it arrives.

        Needs no quorum. A caller that does not read it to the end must close it. A truncated stream does not match the
        SHA-256 in the last 32 bytes: `snapshots.Checker`.
        """
        ...

    def move_leader(self, endpoint: str, target: int, /) -> None:
        """Write: make another member the leader; `endpoint` is that of the current leader."""
        ...

    def add_learner(self, peer_url: str, /) -> list[Member]:
        """Write: add a member without a vote; returns all members.

        Raises MemberExists, TooManyLearners, UnhealthyCluster.
        """
        ...

    def promote(self, member_id: int, /) -> list[Member]:
        """Write: give a learner its vote; returns all members. Raises LearnerNotInSync, NotLearner, MemberNotFound."""
        ...

    def remove(self, member_id: int, /) -> list[Member]:
        """Write: remove a member; returns the remaining ones. Raises MemberNotFound, UnhealthyCluster."""
        ...

    def close(self) -> None:
        """Close every connection. Idempotent."""
        ...
