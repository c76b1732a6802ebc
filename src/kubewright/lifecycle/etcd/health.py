"""The health of etcd: which members answer, the leader, whether a majority serves, alarms and sizes.

Only reads, and needs no majority.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kubewright.base.errors import APIError, CheckFailed
from kubewright.base.records import dataclass
from kubewright.etcd import alarms
from kubewright.etcd.api import Alarm, Etcd, Member, Status

NOT_RUNNING: Final = "find out why etcd does not run: `crictl ps -a --name etcd` shows its containers, and `crictl logs` their output"
"""The remedy if no member answers."""


@dataclass(frozen=True, kw_only=True)
class MemberHealth:
    """A member and its status.

    `member` is None for an endpoint that was queried while no member could list the members.
    """

    member: Member | None
    status: Status

    @property
    def serves(self) -> bool:
        """Whether it answers and follows a leader."""
        return self.status.serves

    @property
    def leads(self) -> bool:
        """Whether it is the leader."""
        return self.serves and self.status.leader_id == self.status.member_id

    @property
    def learner(self) -> bool:
        """Whether it has no vote."""
        return self.status.learner or (self.member is not None and self.member.learner)

    @property
    def name(self) -> str:
        """Its name, else its id, else its endpoint."""
        return (self.member.name or self.member.hex_id) if self.member else self.status.endpoint

    @property
    def problem(self) -> str:
        """The reason why it does not serve; empty if it does."""
        return "" if self.serves else self.status.problem or "it has no leader"

    def as_map(self) -> dict[str, object]:
        """Return the form of -o json."""
        status, member = self.status, self.member
        return {
            "name": member.name if member else "",
            "id": f"{member.id if member else status.member_id:x}",
            "endpoint": status.endpoint,
            "peerURLs": list(member.peer_urls) if member else [],
            "clientURLs": list(member.client_urls) if member else [],
            "learner": self.learner,
            "leader": self.leads,
            "serves": self.serves,
            "problem": self.problem,
            "version": status.version,
            "storageVersion": status.storage_version,
            "dbSize": status.size,
            "dbSizeInUse": status.in_use,
            "dbSizeQuota": status.quota,
            "revision": status.revision,
            "raftTerm": status.raft_term,
            "raftIndex": status.raft_index,
            "raftAppliedIndex": status.applied_index,
            "errors": list(status.errors),
        }


@dataclass(frozen=True, kw_only=True)
class ClusterHealth:
    """The health of all members.

    `members` are in etcd's order; `unknown` is the reason why none of them could list the members, else empty.
    """

    members: Sequence[MemberHealth]
    unknown: str = ""

    @functools.cached_property
    def voters(self) -> Sequence[MemberHealth]:
        """The voting members."""
        return [one for one in self.members if not one.learner]

    @property
    def serving(self) -> int:
        """The number of voting members that serve."""
        return sum(one.serves for one in self.voters)

    @property
    def has_majority(self) -> bool:
        """Whether enough of them serve for the cluster to accept writes."""
        return not self.unknown and self.serving * 2 > len(self.voters)

    @property
    def leader(self) -> MemberHealth | None:
        """The leader, if it answers."""
        return next((one for one in self.members if one.leads), None)

    @property
    def alarms(self) -> Sequence[Alarm]:
        """The alarms that members report, each once."""
        return alarms.reported(one.status for one in self.members)

    @functools.cached_property
    def problems(self) -> Sequence[str]:
        """The problems, one line each."""
        return list(self._problems())

    def _problems(self) -> Iterator[str]:
        if self.unknown:
            yield f"no endpoint returns the members: {self.unknown}"
        for one in self.members:
            if one.problem:
                yield f"{one.name}: {one.problem}"
            for text in one.status.errors:
                if not alarms.is_alarm(text) and one.serves:
                    yield f"{one.name}: {text}"
        names = {one.member.id: one.name for one in self.members if one.member}
        for alarm in self.alarms:
            yield f"{names.get(alarm.member_id, f'{alarm.member_id:x}')}: alarm {alarm.kind}"
        if self._is_split:
            yield "the members are of different clusters"
        if not self.has_majority and not self.unknown:
            yield f"no majority: {self.serving} of {len(self.voters)} voting members serve, so etcd takes no writes"

    def require_healthy(self) -> None:
        """Require that there are no problems. Raises CheckFailed."""
        if self.problems:
            raise CheckFailed("etcd is not healthy", detail="\n".join(self.problems), remedy=self._remedy())

    @property
    def _is_split(self) -> bool:
        """Whether members belong to different clusters."""
        return len({one.status.cluster_id for one in self.members if one.status.cluster_id}) > 1

    def _remedy(self) -> str:
        if self.unknown:
            return NOT_RUNNING
        if disarm := alarms.remedy(self.alarms):
            return disarm
        if self._is_split:
            return alarms.REPLACE
        if self.has_majority:
            return "start the member again; if its machine no longer exists, remove it: kubewright etcd member remove NAME"
        return "start the other members again, and make sure that they reach each other on their peer ports (2380)"

    def as_map(self) -> dict[str, object]:
        """Return the form of -o json."""
        leader = self.leader
        return {
            "healthy": not self.problems,
            "majority": self.has_majority,
            "leader": leader.name if leader else "",
            "members": [one.as_map() for one in self.members],
            "alarms": [{"member": f"{alarm.member_id:x}", "alarm": alarm.kind} for alarm in self.alarms],
            "problems": list(self.problems),
        }


def look(etcd: Etcd) -> ClusterHealth:
    """Query all members at once, as one of them lists them."""
    unknown = ""
    try:
        members = etcd.members(agreed=False)
    except APIError as error:
        members, unknown = [], str(error)
    statuses = {status.endpoint: status for status in etcd.statuses()}
    if not members:
        return ClusterHealth(
            members=[MemberHealth(member=None, status=one) for one in statuses.values()], unknown=unknown or "none is listed"
        )
    return ClusterHealth(members=[MemberHealth(member=one, status=_status_of(one, statuses)) for one in members])


def _status_of(member: Member, statuses: Mapping[str, Status]) -> Status:
    """Return the status of a member, from the first of its endpoints that answers."""
    if not member.client_urls:
        return Status(endpoint="", problem="it has never started" if not member.name else "it has not published a client URL")
    said = [statuses.get(url, Status(endpoint=url, problem="it was not queried")) for url in member.client_urls]
    return next((one for one in said if not one.problem), said[0])
