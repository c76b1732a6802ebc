"""Thousands of generated requests for serving certificates: none crashes the approver, none is approved that should not be.

`make soak-controllers` tries a million.
"""

from __future__ import annotations

import random

import pytest
from hostile_serving_requests import outcomes

from kubewright.controllers.serving.checks import CHECKS

COUNT = 20_000
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_no_generated_request_is_approved_against_the_rules(part: int, matrix) -> None:
    found = outcomes(random.randrange(2**31), COUNT // PARTS)
    assert found.total() == COUNT // PARTS
    assert set(found) == {check.id for check in CHECKS} | {"approved", "asked", "nothing"}
    assert found["approved"] > COUNT // PARTS / 20
    if part == 0:
        for check, hits in sorted(found.items()):
            matrix("generated requests for serving certificates").record(check, "decided", f"{hits}")
