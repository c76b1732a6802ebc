"""Whole machines for the tests of this tier: systemd, containerd and a network each. Needs root and what `python -m testbed ensure` makes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from kill_kit import SEED, SEED_NAME  # of a whole run: chosen before its other processes begin, which inherit it
from testbed import host
from testbed.bed import Parts, ensure_parts, sweep


def pytest_report_header() -> str:
    """Tell where tests are killed that are killed at random."""
    return f"{SEED_NAME}={SEED}"


@pytest.fixture(scope="session")
def parts() -> Parts:
    """What machines are made of; made at first use, which takes minutes."""
    if reason := host.unfit():
        pytest.skip(reason)
    sweep()
    return ensure_parts()
