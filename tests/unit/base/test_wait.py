"""Waiting and retrying: pauses, limits, what is retried."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from kubewright.base import deadlines
from kubewright.base.clock import FakeClock
from kubewright.base.errors import NotFound, Unreachable, WaitTimeout
from kubewright.base.events import RecordingReporter, SilentReporter, Waiting
from kubewright.base.randomness import SeededRandom
from kubewright.base.wait import LOOK_AT_LEAST, Backoff, PollingWaiter, reporting, retry, steady


class Flaky:
    """Fails this many times with an error, then answers."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.calls = 0
        self._failures = failures
        self._error = error

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self._failures:
            raise self._error
        return "done"


def test_pauses_grow_up_to_the_limit():
    backoff = Backoff(first=0.1, factor=2.0, limit=0.5)
    assert list(itertools.islice(backoff.pauses(), 5)) == [0.1, 0.2, 0.4, 0.5, 0.5]
    assert backoff.pause(2) == 0.4
    assert list(itertools.islice(steady(0.5).pauses(), 3)) == [0.5, 0.5, 0.5]


def test_jitter_extends_pauses_by_at_most_its_share():
    pauses = list(itertools.islice(Backoff(first=1.0, factor=1.0, limit=1.0, jitter=0.5).pauses(SeededRandom(1)), 20))
    assert all(1.0 <= pause < 1.5 for pause in pauses)
    assert len(set(pauses)) == 20


def test_a_call_is_repeated_until_it_succeeds():
    clock, call = FakeClock(), Flaky(3, Unreachable("no answer"))
    heard: list[int] = []
    assert retry(call, clock=clock, on=Unreachable, backoff=steady(0.5), failed=lambda _, attempt: heard.append(attempt)) == "done"
    assert (call.calls, clock.monotonic(), heard) == (4, 1.5, [1, 2, 3])


def test_the_last_error_of_a_repeated_call_is_reported_once_a_second():
    clock, reporter = FakeClock(), RecordingReporter()

    def call():
        raise Unreachable(f"no answer at {clock.monotonic() - start:.0f}")

    start, failed = clock.monotonic(), reporting("an answer", clock=clock, reporter=reporter)
    with pytest.raises(Unreachable):
        retry(call, clock=clock, on=Unreachable, within=3.4, backoff=steady(0.5), failed=failed)
    assert reporter.events == [Waiting(what="an answer", reason=f"no answer at {number}", elapsed=float(number)) for number in (1, 2, 3)]


def test_the_last_error_is_raised_when_time_is_up():
    clock, error = FakeClock(), Unreachable("no answer")
    call = Flaky(1000, error)
    with pytest.raises(Unreachable) as caught:
        retry(call, clock=clock, on=Unreachable, within=2.25, backoff=steady(0.5))
    assert caught.value is error
    assert clock.monotonic() == 2.25
    assert call.calls == 6


def test_the_number_of_attempts_is_bounded():
    call = Flaky(1000, Unreachable("no answer"))
    with pytest.raises(Unreachable):
        retry(call, clock=FakeClock(), on=(Unreachable, OSError), attempts=3)
    assert call.calls == 3


def test_other_errors_are_not_retried():
    call = Flaky(1, NotFound("no such thing", code=404))
    with pytest.raises(NotFound):
        retry(call, clock=FakeClock(), on=lambda error: isinstance(error, Unreachable))
    assert call.calls == 1


def polled(look: Callable[[], str | None], *, clock: FakeClock, within: float) -> object:
    return PollingWaiter(clock=clock, reporter=SilentReporter()).until(look, within=within, saying="it", every=1.0, at_most=1.0)


def retried(look: Callable[[], str | None], *, clock: FakeClock, within: float) -> object:
    def call() -> None:
        if (reason := look()) is not None:
            raise Unreachable(reason)

    return retry(call, clock=clock, on=Unreachable, within=within, backoff=steady(1.0))


WAITS = pytest.mark.parametrize("wait", [polled, retried])


@WAITS
def test_each_check_has_the_remaining_time_but_never_less_than_it_needs(wait):
    clock, given = FakeClock(), []

    def look() -> str:
        given.append(deadlines.left())
        return "not yet"

    with pytest.raises((WaitTimeout, Unreachable)):
        wait(look, clock=clock, within=3.5)
    assert given == [3.5, 2.5, 1.5, LOOK_AT_LEAST, LOOK_AT_LEAST]
    assert deadlines.left() is None


@WAITS
def test_a_wait_within_another_has_no_more_time_than_that(wait):
    clock, given = FakeClock(), []

    def inner() -> None:
        given.append(deadlines.left(30))

    with deadlines.holding(deadlines.Deadline(2, clock=clock)):
        wait(inner, clock=clock, within=60)
    wait(inner, clock=clock, within=60)
    wait(inner, clock=clock, within=float("inf"))
    assert given == [2, 30, 30]


@WAITS
@pytest.mark.parametrize("start", [0.0, 51.802, 124.58])
def test_a_wait_ends_although_sums_of_times_are_rounded(wait, start):
    """51.802 + 15 - 51.802 is less than 15."""
    clock, looks = FakeClock(), itertools.count(1)
    clock.advance(start)

    def look() -> str:
        assert next(looks) < 100
        return "not yet"

    with pytest.raises((WaitTimeout, Unreachable)):
        wait(look, clock=clock, within=15)
    assert clock.monotonic() == start + 15


def test_a_wait_that_fails_says_how_long_it_took():
    clock = FakeClock()

    def look() -> str:
        clock.advance(3.6)
        return "not yet"

    with pytest.raises(WaitTimeout, match=r"^gave up waiting for it after 3\.6s: not yet"):
        polled(look, clock=clock, within=0.001)
