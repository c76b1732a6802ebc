"""What etcd tells of its members, as values; and what of it goes into a manifest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubewright.base.records import dataclass


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
        """What messages call it: its name or id, and where it is."""
        return " at ".join((self.name or self.hex_id, *self.peer_urls[:1]))


@dataclass(frozen=True, kw_only=True)
class Status:
    """How one endpoint is. `errors` is what it complains of, alarms among them; `problem` why it gave no answer, else empty."""

    endpoint: str
    member_id: int = 0
    leader_id: int = 0
    version: str = ""
    learner: bool = False
    errors: tuple[str, ...] = ()
    problem: str = ""

    @property
    def healthy(self) -> bool:
        """Whether it answered, follows a leader and has no alarm."""
        return not self.problem and not self.errors and self.leader_id != 0

    @property
    def reason(self) -> str:
        """Why it is not healthy, on one line; empty if it is."""
        if self.healthy:
            return ""
        return f"{self.endpoint}: {self.problem or '; '.join(self.errors) or 'no leader'}"


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """An alarm that a member has raised: `NOSPACE` or `CORRUPT`."""

    member_id: int
    kind: str


def read_member(value: Mapping[str, Any]) -> Member:
    """Read a member of an answer. Raises ValueError, TypeError, KeyError or AttributeError for what is none."""
    return Member(
        id=int(value["ID"]),
        name=str(value.get("name", "")),
        peer_urls=tuple(map(str, value.get("peerURLs", ()))),
        client_urls=tuple(map(str, value.get("clientURLs", ()))),
        learner=value.get("isLearner") is True,
    )


def read_status(value: Mapping[str, Any], *, endpoint: str) -> Status:
    """Read the answer of one endpoint. Raises as `read_member` does."""
    return Status(
        endpoint=endpoint,
        member_id=int(value["header"]["member_id"]),
        leader_id=int(value.get("leader", 0)),
        version=str(value.get("version", "")),
        learner=value.get("isLearner") is True,
        errors=tuple(map(str, value.get("errors", ()))),
    )


def by_peer_url(members: Iterable[Member], peer_url: str) -> Member | None:
    """Return the member with a peer URL, None if there is none: a peer URL is what tells machines apart."""
    return next((member for member in members if peer_url in member.peer_urls), None)


def quorum(statuses: Iterable[Status]) -> bool:
    """Tell whether more than half of the endpoints are healthy (spec/kubeadm.md 8.6)."""
    found = [status.healthy for status in statuses]
    return sum(found) * 2 > len(found)


def initial_cluster(members: Iterable[Member], *, name: str, peer_url: str) -> str:
    """Return the value of `--initial-cluster` for the member with this peer URL: all members in the order of the list.

    Its own entry has the name that it will start with, and one that never started has its id (spec/kubeadm.md 8.6).
    """

    def called(member: Member) -> str:
        return name if peer_url in member.peer_urls else member.name or member.hex_id

    return ",".join(f"{called(member)}={member.peer_urls[0]}" for member in members if member.peer_urls)
