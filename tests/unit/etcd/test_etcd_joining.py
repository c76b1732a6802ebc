"""Decisions about members, and the waits between them, with an etcd in memory and a virtual clock."""

from __future__ import annotations

import pytest

from kubewright.base.change import Action
from kubewright.base.clock import FakeClock
from kubewright.base.errors import Unreachable, WaitTimeout
from kubewright.base.events import RecordingReporter, Waiting
from kubewright.base.records import replace
from kubewright.base.wait import InstantWaiter, PollingWaiter
from kubewright.etcd.api import (
    LearnerNotInSync,
    Member,
    MemberNotFound,
    NoQuorum,
    NotLearner,
    TooManyLearners,
    UnhealthyCluster,
)
from kubewright.etcd.learners import identifier
from kubewright.etcd.membership import EtcdMember, Joining, Step, decide, remove_member, to_remove
from kubewright.etcd.recording import RecordingEtcd

ONE = Member(id=1, name="one", peer_urls=("https://10.0.0.1:2380",))
MINE = EtcdMember(name="two", peer_url="https://10.0.0.2:2380")


class Etcd(RecordingEtcd):
    """Members in memory. `refusals` are raised by the next writes, each once, or do something that others do."""

    def __init__(self, *members: Member, refusals=()) -> None:
        super().__init__()
        self._members = list(members)
        self.refusals = list(refusals)
        self.tries = 0
        self.unreached = set()

    def reach(self, peer_url, /):
        return "no answer" if peer_url in self.unreached else ""

    def set(self, *members: Member):
        self._members = list(members)

    def _next(self):
        self.tries += 1
        if self.refusals:
            step = self.refusals.pop(0)
            if isinstance(step, Exception):
                raise step
            step(self)

    def add_learner(self, peer_url, /):
        self._next()
        if any(member.learner for member in self.members()):
            raise TooManyLearners("too many")
        return super().add_learner(peer_url)

    def remove(self, member_id, /):
        self._next()
        return super().remove(member_id)

    def promote(self, member_id, /):
        self._next()
        if not self._find(member_id).learner:
            raise NotLearner("it votes")
        return super().promote(member_id)


def joining(etcd, *, within=10.0):
    clock, reporter = FakeClock(), RecordingReporter()
    made = Joining(etcd=etcd, clock=clock, waiter=PollingWaiter(clock=clock, reporter=reporter), within=within)
    return made, clock, reporter


def learner(number, name=""):
    return Member(id=number, name=name, peer_urls=(f"https://10.0.0.{number}:2380",), learner=True)


@pytest.mark.parametrize(
    ("found", "has_data", "step"),
    [
        (None, False, Step.ADD),
        (None, True, Step.ADD),
        (learner(2), False, Step.KEEP),
        (learner(2), True, Step.KEEP),
        (learner(2, "two"), True, Step.KEEP),
        (learner(2, "two"), False, Step.REPLACE),
        (replace(learner(2, "two"), learner=False), True, Step.KEEP),
        (replace(learner(2, "two"), learner=False), False, Step.REPLACE),
    ],
)
def test_the_missing_steps_of_a_member_are_decided(found, has_data, step):
    assert decide([ONE, *([found] if found else [])], replace(MINE, has_data=has_data)) is step


def test_a_member_is_added_once():
    etcd = Etcd(ONE)
    adding, _, _ = joining(etcd)
    assert adding.add(MINE).action is Action.CREATE
    assert adding.add(MINE).action is Action.NONE
    assert [verb for verb, _ in etcd.actions] == ["add"]


def test_a_refused_membership_change_is_retried():
    etcd = Etcd(ONE, refusals=[UnhealthyCluster("not now"), Unreachable("gone"), MemberNotFound("of another time")])
    adding, _, _ = joining(etcd)
    assert adding.add(MINE).action is Action.CREATE
    assert etcd.tries == 4


def test_the_member_ahead_is_named_while_waiting():
    etcd = Etcd(ONE, learner(3))
    adding, clock, reporter = joining(etcd, within=5)
    with pytest.raises(WaitTimeout) as caught:
        adding.add(MINE)
    assert clock.monotonic() == pytest.approx(5, abs=1)
    waits = [event for event in reporter.events if isinstance(event, Waiting)]
    assert "3 at https://10.0.0.3:2380 is one that has not started yet" in waits[0].reason
    assert [event.elapsed for event in waits] == sorted(event.elapsed for event in waits)
    assert "etcdctl member remove 3" in caught.value.remedy
    assert "https://10.0.0.3:2380" in caught.value.remedy


def added(seconds, *, clock, name=""):
    """A learner that was added that many seconds ago."""
    url = "https://10.0.0.3:2380"
    return Member(id=identifier(f"{url}{int(clock.now().timestamp()) - seconds}".encode()), name=name, peer_urls=(url,), learner=True)


@pytest.mark.parametrize(
    ("seconds", "name", "unreached", "is_removed"),
    [(601, "", True, True), (599, "", True, False), (-59, "", True, False), (601, "three", True, False), (601, "", False, False)],
)
def test_an_old_learner_that_has_never_started_is_removed_instead_of_waited_for(seconds, name, unreached, is_removed):
    adding, clock, _ = joining(etcd := Etcd(ONE), within=0.5)
    lost = added(seconds, clock=clock, name=name)
    etcd.set(ONE, lost)
    etcd.unreached = {lost.peer_urls[0]} if unreached else set()
    if is_removed:
        change = adding.add(MINE)
        assert (change.action, change.reason.partition("; ")[2]) == (Action.CREATE, f"removed {lost.shown}, which has never started")
        assert [verb for verb, _ in etcd.actions] == ["remove", "add"]
    else:
        with pytest.raises(WaitTimeout):
            adding.add(MINE)
        assert etcd.actions == []


def test_the_removal_of_an_old_learner_is_retried():
    adding, clock, _ = joining(etcd := Etcd(ONE))
    lost = added(601, clock=clock)
    etcd.set(ONE, lost)
    etcd.unreached = {lost.peer_urls[0]}
    etcd.refusals = [lambda _: None, UnhealthyCluster("not now")]
    assert adding.add(MINE).action is Action.CREATE
    assert [verb for verb, _ in etcd.actions] == ["remove", "add"]


def test_the_timeout_restarts_when_the_queue_moves():
    queue = [learner(number, f"n{number}") for number in (3, 4, 5)]
    etcd = Etcd(ONE, queue[0])
    adding, clock, _ = joining(etcd, within=5)
    sleep = clock.sleep

    def others_work(seconds):
        sleep(seconds)
        passed = int(clock.monotonic() // 4)
        etcd.set(ONE, *queue[passed : passed + 1])

    clock.sleep = others_work
    assert adding.add(MINE).action is Action.CREATE
    assert clock.monotonic() > 10


def test_a_member_whose_data_is_lost_is_added_again():
    etcd = Etcd(ONE, replace(learner(2, "two"), learner=False))
    adding, _, _ = joining(etcd)
    change = adding.add(MINE)
    assert (change.action, "added again" in change.reason) == (Action.UPDATE, True)
    assert [verb for verb, _ in etcd.actions] == ["remove", "add"]


def test_a_learner_is_promoted_once_when_it_has_caught_up():
    etcd = Etcd(ONE, learner(2), refusals=[LearnerNotInSync("not yet")] * 3)
    promoting, clock, _ = joining(etcd)
    assert promoting.promote(MINE).action is Action.UPDATE
    assert clock.monotonic() < 1
    assert promoting.promote(MINE).action is Action.NONE
    assert etcd.tries == 4


def test_members_promoted_or_removed_by_others_are_accepted():
    etcd = Etcd(ONE, learner(2), refusals=[NotLearner("it votes")])
    promoting, _, _ = joining(etcd)
    assert promoting.promote(MINE).action is Action.UPDATE
    with pytest.raises(MemberNotFound):
        joining(Etcd(ONE))[0].promote(MINE)


def test_a_plan_adds_and_promotes_nothing():
    etcd = Etcd(ONE)
    recording = RecordingEtcd(etcd)
    planning = Joining(etcd=recording, clock=FakeClock(), waiter=InstantWaiter(), within=1)
    assert planning.add(MINE).action is Action.CREATE
    assert planning.add(MINE).action is Action.NONE
    assert recording.actions == [("add", "2 at https://10.0.0.2:2380")]
    assert etcd.members() == [ONE]


def test_members_are_removed_if_others_remain():
    two = learner(2)
    assert to_remove([ONE], ONE.peer_urls[0]) is None
    assert to_remove([ONE, two], MINE.peer_url) is two
    etcd = Etcd(ONE, two)
    assert remove_member(etcd, MINE.peer_url, clock=FakeClock(), within=1).action is Action.DELETE
    assert remove_member(etcd, MINE.peer_url, clock=FakeClock(), within=1).reason == "it is not a member"
    assert remove_member(etcd, ONE.peer_urls[0], clock=FakeClock(), within=1).reason == "it is the only member"


def removing(*refusals: object):
    etcd, clock = Etcd(ONE, learner(2, "two"), refusals=refusals), FakeClock()
    return etcd, clock, lambda: remove_member(etcd, MINE.peer_url, clock=clock, within=120, leaderless=20)


def test_a_member_whose_etcd_ended_before_it_answered_counts_as_removed():
    """A member that is asked to remove itself may be gone before its answer is out."""

    def lost(etcd):
        etcd.set(ONE)
        raise Unreachable("connection reset")

    etcd, _, remove = removing(lost)
    change = remove()
    assert (change.action, change.target, etcd.tries) == (Action.DELETE, f"member two at {MINE.peer_url}", 1)


def test_a_member_removed_by_others_in_the_meantime_needs_nothing():
    def gone(etcd):
        etcd.set(ONE)
        raise MemberNotFound("member not found")

    etcd, _, remove = removing(gone)
    change = remove()
    assert (change.action, change.reason, etcd.tries) == (Action.NONE, "it was removed by something else", 1)


def test_a_refusing_leader_is_retried_for_longer_than_an_etcd_without_a_leader():
    etcd, clock, remove = removing(*[UnhealthyCluster("unhealthy cluster")] * 60)
    assert remove().action is Action.DELETE
    assert clock.monotonic() > 20
    assert etcd.tries == 61
    for error in (NoQuorum("no leader"), Unreachable("timed out")):
        etcd, clock, remove = removing(*[error] * 1000)
        with pytest.raises(type(error)):
            remove()
        assert 20 <= clock.monotonic() < 21
        assert len(etcd.members()) == 2
