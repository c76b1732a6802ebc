"""Made-up requests, by the thousand: none brings a controller down, and no certificate breaks a rule of its signer. `make soak` takes a million."""

from __future__ import annotations

import random

import pytest
from hostile_requests import outcomes

COUNT = 20_000
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_no_made_up_request_brings_a_controller_down_or_gets_what_the_rules_forbid(part: int) -> None:
    found = outcomes(random.randrange(2**31), COUNT // PARTS)
    assert found.total() == COUNT // PARTS
    assert min(found[kind] for kind in ("signed", "failed", "tried again")) > COUNT // PARTS / 20
