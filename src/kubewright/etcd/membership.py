"""The membership of a machine in etcd: its member exists and votes (for `join`), or is removed (for `reset` and a failed join).

Decisions are pure; this module also observes, waits and acts.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Sequence
from typing import Final

from kubewright.base.change import Action, Change
from kubewright.base.clock import Clock
from kubewright.base.errors import APIError, Unreachable
from kubewright.base.records import dataclass
from kubewright.base.wait import Backoff, Waiter, retry
from kubewright.etcd import learners
from kubewright.etcd.api import (
    PASSING,
    Etcd,
    LearnerNotInSync,
    Member,
    MemberExists,
    MemberNotFound,
    NoQuorum,
    NotLearner,
    TooManyLearners,
    by_peer_url,
)

PAUSES: Final = Backoff(first=0.05, factor=1.5, limit=0.5)

_LOOK: Final = 0.05
_LOOK_AT_MOST: Final = 0.1
_QUEUE_AT_MOST: Final = 0.5


def to_remove(members: Sequence[Member], peer_url: str) -> Member | None:
    """Return the member with a peer URL if it can be removed; None if it is missing or the only one: etcd needs a member."""
    return by_peer_url(members, peer_url) if len(members) > 1 else None


def remove_member(etcd: Etcd, peer_url: str, *, clock: Clock, within: float, leaderless: float = float("inf")) -> Change:
    """Ensure that the member with this peer URL is removed. One that is missing, or the only one, needs no change.

    Tries again for `within` seconds while a leader refuses: etcd removes no member during the five seconds after its
    members have connected. Without an answer by a leader, it gives up after `leaderless` seconds. The last error is
    then raised unchanged.
    """
    removal, answered = _Removal(etcd, peer_url), clock.monotonic()

    def may_pass(error: Exception) -> bool:
        nonlocal answered
        if isinstance(error, (NoQuorum, Unreachable)):
            return clock.monotonic() - answered < leaderless
        answered = clock.monotonic()
        return isinstance(error, PASSING)

    return retry(removal.attempt, clock=clock, on=may_pass, within=within, backoff=PAUSES)


class _Removal:
    """Attempts to remove one member.

    Its own etcd exits when it is removed, often before it has answered: if it is missing afterwards, we have removed
    it.
    """

    def __init__(self, etcd: Etcd, peer_url: str) -> None:
        self._etcd = etcd
        self._peer_url = peer_url
        self._asked: Member | None = None

    def attempt(self) -> Change:
        members = self._etcd.members()
        one = to_remove(members, self._peer_url)
        if one is None and by_peer_url(members, self._peer_url):
            return self._nothing("it is the only member")
        if one is not None:
            self._asked, asked_before = one, self._asked
            try:
                self._etcd.remove(one.id)
            except MemberNotFound:
                self._asked = asked_before
        if self._asked is None:
            return self._nothing("it was removed by something else" if one else "it is not a member")
        return Change(target=target(self._peer_url, name=self._asked.name), action=Action.DELETE)

    def _nothing(self, reason: str) -> Change:
        return Change(target=target(self._peer_url), action=Action.NONE, reason=reason)


def target(peer_url: str, *, name: str = "") -> str:
    """Return the target of changes for a member: `member two at https://10.0.0.2:2380`."""
    return f"member {name} at {peer_url}" if name else f"member {peer_url}"


@dataclass(frozen=True, kw_only=True)
class EtcdMember:
    """A desired member. `has_data`: its data directory contains data that a member has written."""

    name: str
    peer_url: str
    has_data: bool = False

    @property
    def target(self) -> str:
        """The name of the target in changes."""
        return target(self.peer_url, name=self.name)


class Step(enum.Enum):
    """What must happen before its etcd may start."""

    ADD = "add"
    KEEP = "keep"
    REPLACE = "replace"


def decide(members: Sequence[Member], desired: EtcdMember) -> Step:
    """Return what a machine's member needs. Pure.

    A member that has started once and lost its data must not start again under its old id: it would break promises that
    it no longer knows.
    """
    found = by_peer_url(members, desired.peer_url)
    if found is None:
        return Step.ADD
    return Step.REPLACE if found.name and not desired.has_data else Step.KEEP


@dataclass(frozen=True, kw_only=True)
class Joining:
    """How members are added: the cluster, the clock and the limit of `timeouts.etcdAPICall`, in seconds, for each step."""

    etcd: Etcd
    clock: Clock
    waiter: Waiter
    within: float

    def look(self) -> list[Member]:
        """Return the members, trying again while too few of them answer."""
        return retry(self.etcd.members, clock=self.clock, on=(*PASSING, Unreachable), within=self.within, backoff=PAUSES)

    def add(self, desired: EtcdMember) -> Change:
        """Ensure that the machine's member exists, as a learner if it is new.

        Waits for its turn while another one is learning. Raises WaitTimeout, which names the other learner.
        """
        members = self.look()
        step = decide(members, desired)
        if step is Step.KEEP:
            return Change(target=desired.target, action=Action.NONE)
        if step is Step.REPLACE and (old := by_peer_url(members, desired.peer_url)) is not None:
            retry(lambda: self._drop(old), clock=self.clock, on=(*PASSING, Unreachable), within=self.within, backoff=PAUSES)
        queue = _Queue(self.etcd, desired, clock=self.clock)
        while not queue.done:
            queue.turn()
            if not queue.done:
                self.waiter.until(
                    queue.moved,
                    within=self.within,
                    saying=f"etcd to take {desired.target}",
                    every=_LOOK,
                    at_most=_QUEUE_AT_MOST,
                    diagnose=queue.diagnosis,
                    remedy=queue.remedy,
                )
        reason = "its data was lost, so it is added again" if step is Step.REPLACE else "a learner first, then with a vote"
        if queue.removed:
            reason += f"; removed {', '.join(queue.removed)}, which has never started"
        return Change(target=desired.target, action=Action.UPDATE if step is Step.REPLACE else Action.CREATE, reason=reason)

    def promote(self, desired: EtcdMember) -> Change:
        """Promote the machine's member as soon as it has started and caught up; one that already votes is left alone.

        Raises WaitTimeout with the reason, MemberNotFound if it is no longer a member.
        """
        found = self._own(self.look(), desired)
        if not found.learner:
            return Change(target=desired.target, action=Action.NONE)
        self.waiter.until(
            lambda: self._promote(found.id),
            within=self.within,
            saying=f"{desired.target} to catch up with the leader",
            every=_LOOK,
            at_most=_LOOK_AT_MOST,
            remedy="check the log of etcd on this machine, and that it reaches the peer ports of the others (2380)",
        )
        return Change(target=desired.target, action=Action.UPDATE, reason="from learner to voting member")

    def _drop(self, member: Member) -> None:
        with contextlib.suppress(MemberNotFound):
            self.etcd.remove(member.id)

    def _own(self, members: Sequence[Member], desired: EtcdMember) -> Member:
        found = by_peer_url(members, desired.peer_url)
        if found is None:
            raise MemberNotFound(
                f"etcd no longer has {desired.target}",
                remedy="it was removed: reset this machine, and join again",
            )
        return found

    def _promote(self, member_id: int) -> str | None:
        try:
            self.etcd.promote(member_id)
        except NotLearner:
            return None
        except LearnerNotInSync:
            return "it has not started, or is not in sync with the leader yet"
        except (*PASSING, Unreachable) as error:
            return str(error)
        return None


class _Queue:
    """Waits until etcd accepts a member. The time limit starts again whenever another learner than before is ahead."""

    def __init__(self, etcd: Etcd, desired: EtcdMember, *, clock: Clock) -> None:
        self._etcd = etcd
        self._desired = desired
        self._clock = clock
        self._ahead: Member | None = None
        self._said = ""
        self.done = False
        self.removed: list[str] = []
        """The learners that were left over."""

    def turn(self) -> None:
        """Try once. A learner that is left over is removed: etcd accepts one learner at a time, so it would block all others."""
        try:
            self._etcd.add_learner(self._desired.peer_url)
            self.done = True
        except MemberExists:
            self.done = True
        except TooManyLearners as error:
            self._said = str(error)
            self._ahead = self._learner()
            if self._ahead is not None and learners.left_over(self._etcd, [self._ahead], now=self._clock.now()):
                self._remove(self._ahead)
            elif self._ahead is not None:
                self._said = f"etcd accepts one learner at a time, and {_described_learner(self._ahead)}"
        except (*PASSING, MemberNotFound, Unreachable) as error:  # etcd 3.6 may answer with the last one right after a removal
            self._said, self._ahead = str(error), None

    def _remove(self, learner: Member) -> None:
        try:
            self._etcd.remove(learner.id)
        except MemberNotFound:
            pass
        except (*PASSING, Unreachable) as error:
            self._said = str(error)
            return
        self.removed.append(learner.shown)

    def moved(self) -> str | None:
        """Try again; None once it is done, or another learner is ahead."""
        before = self._ahead
        self.turn()
        if self.done or (self._ahead is not None and before is not None and self._ahead.id != before.id):
            return None
        return self._said

    def diagnosis(self) -> str:
        """Return what is known of the learner that is ahead."""
        return "" if self._ahead is None else f"its id is {self._ahead.hex_id}"

    def remedy(self) -> str:
        """Return how to get rid of the learner that is ahead."""
        one = self._ahead
        if one is None:
            return "make sure that all members of etcd run"
        where = one.name or ", ".join(one.peer_urls)
        return (
            f"run the same join again on {where}, or reset that machine; if that machine no longer exists, "
            f"remove its member in a pod of etcd: etcdctl member remove {one.hex_id}"
        )

    def _learner(self) -> Member | None:
        try:
            return next((member for member in self._etcd.members() if member.learner), None)
        except APIError:
            return None


def _described_learner(learner: Member) -> str:
    return f"{learner.shown} is one" + ("" if learner.name else " that has not started yet")
