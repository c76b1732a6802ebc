from __future__ import annotations

import pytest

from kubewright.agent.dependencies import Timings, backoff
from kubewright.base.randomness import SeededRandom


class Always:
    def __init__(self, value: float) -> None:
        self.value = value

    def uniform(self) -> float:
        return self.value

    def token_bytes(self, count: int, /) -> bytes:
        raise AssertionError


def test_registration_waits_grow_to_seven_seconds():
    waits = [Timings().registration_wait(attempt) for attempt in range(1, 10)]
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 7.0, 7.0])


def test_a_prompt_registration_does_not_wait_before_its_first_attempt():
    assert [Timings.prompt().registration_wait(attempt) for attempt in range(1, 5)] == pytest.approx([0.0, 0.1, 0.2, 0.4])


@pytest.mark.parametrize(("drawn", "status", "lease"), [(0.0, 10.0, 10.0), (0.5, 10.2, 10.2), (0.9999999, 10.4, 10.4)])
def test_rounds_are_spread_by_four_per_cent(drawn, status, lease):
    assert Timings().status_wait(Always(drawn)) == pytest.approx(status)
    assert Timings().lease_wait(Always(drawn)) == pytest.approx(lease)


def test_lease_look_ups_back_off_to_seven_seconds():
    assert [Timings().lease_backoff(attempt) for attempt in (1, 2, 3, 6, 7, 100)] == pytest.approx([0.2, 0.4, 0.8, 6.4, 7.0, 7.0])


def test_rotation_retries_follow_two_four_eight_sixteen_seconds_then_thirty_two():
    random = SeededRandom(1)
    waits = [Timings().certificate_retry(attempt, random) for attempt in range(1, 8)]
    bounds = [2, 4, 8, 16, 32, 32, 32]
    assert len(waits) == 7
    assert all(bound <= wait <= bound * 1.1 for wait, bound in zip(waits, bounds, strict=True))


def test_endless_backoff_stays_at_its_maximum():
    assert backoff(10_000, first=0.1, most=5.0) == 5.0
