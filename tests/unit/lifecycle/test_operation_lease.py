"""The lease that machines of a cluster hold one after the other."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kubewright.base.clock import FakeClock
from kubewright.base.errors import ComponentFailed, Forbidden, Unreachable, WaitTimeout
from kubewright.base.events import RecordingReporter, Warned
from kubewright.base.wait import PollingWaiter
from kubewright.kube.recording import RecordingKube
from kubewright.kube.resources import LEASE
from kubewright.lifecycle.steps import operation_lease

START = datetime(2026, 11, 24, 12, tzinfo=UTC)


class Cluster(RecordingKube):
    """A cluster that may refuse writing leases."""

    refuses = False

    def send(self, call, /):
        if self.refuses and call.verb != "get":
            raise Forbidden("leases are not for you", code=403)
        return super().send(call)


@pytest.fixture
def kube():
    return Cluster()


@pytest.fixture
def clock():
    return FakeClock(START)


def hold(kube, clock, node, reporter=None):
    told = reporter or RecordingReporter()
    return operation_lease.held(kube, identity=node, clock=clock, waiter=PollingWaiter(clock=clock, reporter=told), reporter=told)


def left_by(kube, node):
    """Let a machine have the lease without renewing it."""
    metadata = {"name": "kubewright-operation", "namespace": "kube-system"}
    spec = {"holderIdentity": node, "leaseDurationSeconds": 30, "leaseTransitions": 0, "renewTime": "2026-11-24T11:00:00.000000Z"}
    kube.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec})


def holder(kube):
    spec = kube.get(LEASE, "kubewright-operation", "kube-system")["spec"]
    return spec["holderIdentity"], spec["leaseTransitions"]


def test_the_lease_is_held_for_a_block_and_released(kube, clock):
    with hold(kube, clock, "one") as lease:
        assert holder(kube) == ("one", 0)
        lease.require()
    assert holder(kube) == ("", 0)
    with hold(kube, clock, "two"):
        assert holder(kube) == ("two", 1)


def test_a_killed_machine_continues_with_its_own_lease(kube, clock):
    left_by(kube, "one")
    before = clock.monotonic()
    with hold(kube, clock, "one"):
        assert (holder(kube), clock.monotonic()) == (("one", 0), before)


def test_the_lease_of_a_dead_machine_is_taken_after_its_duration(kube, clock):
    left_by(kube, "dead")
    before = clock.monotonic()
    with hold(kube, clock, "two"):
        assert 30 <= clock.monotonic() - before < 35
        assert holder(kube) == ("two", 1)


def test_the_holder_of_the_lease_is_reported(kube, clock):
    class Renewing(FakeClock):
        """Lets the other machine renew its lease while this one waits."""

        def sleep(self, seconds):
            super().sleep(seconds)
            found = kube.get(LEASE, "kubewright-operation", "kube-system")
            kube.update({**found, "spec": {**found["spec"], "renewTime": str(self.now())}})

    left_by(kube, "one")
    with pytest.raises(WaitTimeout, match="one is working"), hold(kube, Renewing(START), "two"):
        raise AssertionError("another machine has it")
    assert holder(kube) == ("one", 0)


def test_missing_permission_for_leases_is_reported_and_the_operation_continues(kube, clock):
    kube.refuses = True
    reporter = RecordingReporter()
    with hold(kube, clock, "one", reporter) as lease:
        lease.require()
    assert [event.text for event in reporter.events if isinstance(event, Warned)] == [
        "other machines are not kept from being changed at the same time: leases are not for you"
    ]


def test_operations_that_work_without_an_api_server_continue_when_it_has_not_answered_for_as_long_as_a_lease_lasts(clock):
    class Stopping(RecordingKube):
        """An API server whose etcd has just been stopped: it said that it was ready, and every request times out."""

        def send(self, call, /):
            clock.sleep(operation_lease.REQUEST)
            raise Unreachable("the request timed out")

    reporter, before = RecordingReporter(), clock.monotonic()
    waiter = PollingWaiter(clock=clock, reporter=reporter)
    with operation_lease.held_if_ready(Stopping(), identity="one", clock=clock, waiter=waiter, reporter=reporter):
        assert 30 <= clock.monotonic() - before < 45
    assert [event.text for event in reporter.events if isinstance(event, Warned)] == [
        "other machines are not kept from being changed at the same time: the request timed out"
    ]


def test_operations_that_need_an_api_server_wait_longer_for_it(kube, clock):
    back = clock.monotonic() + 60
    with hold(restarting := Silent(clock, back=back), clock, "one"):
        assert holder(restarting) == ("one", 0)
    assert clock.monotonic() >= back


class Silent(Cluster):
    """Does not serve before a time of the clock."""

    def __init__(self, clock, *, back) -> None:
        super().__init__()
        self.clock, self.back = clock, back

    def send(self, call, /):
        if self.clock.monotonic() < self.back:
            raise Unreachable("nothing listens there")
        return super().send(call)


def hold_patiently(kube, clock, comes_back):
    told = RecordingReporter()
    waiter = PollingWaiter(clock=clock, reporter=told)
    return operation_lease.held(kube, identity="one", clock=clock, waiter=waiter, reporter=told, unanswered=60.0, comes_back=comes_back)


def test_the_reason_why_an_api_server_stays_away_ends_the_wait_for_the_lease(clock):
    def comes_back():
        raise ComponentFailed("kube-apiserver does not stay up")

    before = clock.monotonic()
    with (
        pytest.raises(ComponentFailed, match="does not stay up"),
        hold_patiently(Silent(clock, back=before + 10_000), clock, comes_back),
    ):
        raise AssertionError("there is no API server")
    assert 60 <= clock.monotonic() - before < 65


def test_the_lease_is_taken_when_an_api_server_that_stayed_away_is_back(clock):
    silent = Silent(clock, back=clock.monotonic() + 200)
    with hold_patiently(silent, clock, lambda: clock.advance(200)) as lease:
        assert (holder(silent), lease.off) == (("one", 0), False)
