"""Thousands of generated requests: none crashes a controller, and no certificate breaks a rule of its signer.

They are the same in each run, so that a failure is caused by the change under test; `make soak-controllers` tries a million others.
"""

from __future__ import annotations

import pytest
from hostile_requests import outcomes

COUNT = 20_000
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_no_generated_request_crashes_a_controller_or_gets_a_forbidden_certificate(part: int) -> None:
    found = outcomes(part, COUNT // PARTS)
    assert found.total() == COUNT // PARTS
    assert min(found[kind] for kind in ("signed", "failed", "tried again")) > COUNT // PARTS / 20
