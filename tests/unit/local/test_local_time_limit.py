"""The limit of `up`: one for all of its waits, and its error says how long they took together."""

from __future__ import annotations

import pytest

from kubewright.base import deadlines
from kubewright.base.clock import FakeClock
from kubewright.base.errors import APIError, ComponentFailed, KubewrightError, WaitTimeout
from kubewright.base.events import SilentReporter
from kubewright.base.wait import PollingWaiter
from kubewright.local.cluster.up import _in_time


def test_all_waits_together_share_the_timeout():
    clock = FakeClock()
    waiter = PollingWaiter(clock=clock, reporter=SilentReporter())
    with pytest.raises(WaitTimeout) as caught, _in_time(5, clock):
        waiter.until(lambda: None if clock.monotonic() >= 3.6 else "not yet", within=240, saying="the first", at_most=0.1)
        waiter.until(lambda: "not yet", within=240, saying="the second", at_most=0.1)
    assert caught.value.what == "gave up waiting for the cluster to be ready after 5.0s"
    assert caught.value.detail == "gave up waiting for the second after 1.4s\nnot yet"
    assert deadlines.left() is None


@pytest.mark.parametrize(
    ("took", "error", "kind"),
    [
        (6, APIError("no answer"), WaitTimeout),
        (4, APIError("no answer"), APIError),
        (4, WaitTimeout("the hub does not answer"), WaitTimeout),
        (6, ComponentFailed("etcd does not stay up"), ComponentFailed),
    ],
)
def test_only_temporary_errors_are_reported_as_timeouts(took: float, error: KubewrightError, kind: type[KubewrightError]):
    clock = FakeClock()
    with pytest.raises(kind) as caught, _in_time(5, clock):
        clock.advance(took)
        raise error
    assert (caught.value is error) == (kind is type(error))
    assert error.what in str(caught.value)
