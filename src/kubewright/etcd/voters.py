"""Voting members of etcd: which are dead, and whether one has the same data as the others.

Etcd accepts no new member while a voting one is not connected to the others (etcd v3.6, server/etcdserver/server.go,
mayAddMember), and reports only that the cluster is unhealthy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubewright.base.errors import APIError
from kubewright.base.records import dataclass, replace
from kubewright.etcd import alarms
from kubewright.etcd.api import Alarm, Etcd, Member, Status


@dataclass(frozen=True, kw_only=True)
class DeadVoter:
    """A voting member that is considered dead, and the reason."""

    member: Member
    problem: str

    @property
    def reason(self) -> str:
        """The member and its problem, on one line."""
        return f"{self.member.shown}: {self.problem}"


@dataclass(frozen=True, kw_only=True)
class Voters:
    """The voting members of a cluster, the dead ones among them, and the alarms that members report."""

    members: Sequence[Member]
    dead: Sequence[DeadVoter]
    alarms: Sequence[Alarm] = ()

    @property
    def has_quorum(self) -> bool:
        """Whether the living members have a quorum, for example for the removal of a dead one."""
        return (len(self.members) - len(self.dead)) * 2 > len(self.members)

    def without(self, member: Member) -> Voters:
        """Return the voting members that remain after removing one."""
        return replace(
            self,
            members=[one for one in self.members if one.id != member.id],
            dead=[one for one in self.dead if one.member.id != member.id],
        )

    @property
    def living(self) -> Sequence[Member]:
        """The members that are up."""
        dead = {one.member.id for one in self.dead}
        return [member for member in self.members if member.id not in dead]


def look(etcd: Etcd, *, without: str = "") -> Voters:
    """Check every voting member.

    The one with the peer URL `without` counts as living: it is this machine's, which starts it. A member whose peer
    port can be reached is alive: perhaps only its client port is blocked from here. So is one with an alarm. Raises
    APIError if no endpoint returns the members.
    """
    members = [member for member in etcd.members(agreed=False) if not member.learner]
    known = {status.endpoint: status for status in etcd.statuses()}
    serving = {status.member_id for status in known.values() if status.serves}
    doubtful = [member for member in members if member.id not in serving and without not in member.peer_urls]
    dead = [DeadVoter(member=member, problem=problem) for member in doubtful if (problem := _problem(etcd, member, known))]
    return Voters(members=members, dead=dead, alarms=alarms.reported(known.values()))


def _problem(etcd: Etcd, member: Member, known: Mapping[str, Status]) -> str:
    """Return why a member is considered dead, '' if it is alive. `known` are the endpoints whose status is known."""
    if not member.name:
        return "it has never started"
    said = [known.get(url) or etcd.status(url) for url in member.client_urls]
    if any(status.serves for status in said):
        return ""
    answered = next((status.reason for status in said if not status.problem), "")
    if answered or any(not etcd.reach(url) for url in member.peer_urls):
        return answered
    return next((status.reason for status in said), "it does not announce where it serves clients")


def unlike_others(etcd: Etcd, endpoint: str) -> str | None:
    """Return how the data of the member at an endpoint differs from that of another voting one that serves.

    None if there is no other one, or if the member has reached the other one's revision with the same hash.
    """
    try:
        found = [etcd.status(one.client_urls[0]) for one in etcd.members(agreed=False) if one.client_urls and not one.learner]
        own = etcd.status(endpoint)  # after the others: it must have at least their revision
        other = next((one for one in found if one.serves and one.member_id != own.member_id), None)
        if other is None:
            return None
        if own.cluster_id != other.cluster_id:
            return f"it belongs to another cluster than {other.endpoint}"
        if own.revision < other.revision:
            return f"it is at revision {own.revision}, and {other.endpoint} at {other.revision}"
        mine, theirs = (etcd.hash(url, revision=other.revision) for url in (endpoint, other.endpoint))
    except APIError as error:
        return str(error)
    return f"its data differs from that of {other.endpoint}" if mine.differs(theirs) else None
