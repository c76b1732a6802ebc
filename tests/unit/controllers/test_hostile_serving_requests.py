"""Thousands of generated requests for serving certificates: none crashes the approver, none is approved that should not be.

They are the same in each run, so that a failure is caused by the change under test; `make soak-controllers` tries a million others.
"""

from __future__ import annotations

import pytest
from hostile_serving_requests import outcomes

from kubewright.controllers.serving.checks import CHECKS

COUNT = 20_000
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_no_generated_request_is_approved_against_the_rules(part: int, matrix) -> None:
    found = outcomes(part, COUNT // PARTS)
    assert found.total() == COUNT // PARTS
    assert set(found) == {check.id for check in CHECKS} | {"approved", "asked", "nothing"}
    assert found["approved"] > COUNT // PARTS / 20
    if part == 0:
        for check, hits in sorted(found.items()):
            matrix("generated requests for serving certificates").record(check, "decided", f"{hits}")
