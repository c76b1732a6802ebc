"""The seam: what is asked of an etcd cluster about its members."""

from __future__ import annotations

from typing import Protocol

from kubewright.etcd.members import Alarm, Member, Status


class Etcd(Protocol):
    """An etcd cluster. Every verb raises the errors of `failures`, or Unreachable if no endpoint gives an answer."""

    def members(self, *, agreed: bool = True) -> list[Member]:
        """Read: return the members in etcd's order; `agreed` off: as one of them knows them, which needs no quorum."""
        ...

    def statuses(self) -> list[Status]:
        """Read: ask all endpoints at once how they are; one that does not answer is told by its `problem`, and raises nothing."""
        ...

    def status(self, endpoint: str, /) -> Status:
        """Read: ask one endpoint how it is, which need not be one of those that are asked for members."""
        ...

    def reach(self, peer_url: str, /) -> str:
        """Read: say why the peer port of a member cannot be reached from here; empty if it can."""
        ...

    def alarms(self) -> list[Alarm]:
        """Read: return the alarms that members have raised."""
        ...

    def add_learner(self, peer_url: str, /) -> list[Member]:
        """Write: add a member without a vote; returns all members. Raises MemberExists, TooManyLearners, UnhealthyCluster."""
        ...

    def promote(self, member_id: int, /) -> list[Member]:
        """Write: give a learner its vote; returns all members. Raises LearnerNotInSync, NotLearner, MemberNotFound."""
        ...

    def remove(self, member_id: int, /) -> list[Member]:
        """Write: remove a member; returns those that are left. Raises MemberNotFound, UnhealthyCluster."""
        ...

    def close(self) -> None:
        """Close every connection. Idempotent."""
        ...
