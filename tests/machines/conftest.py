"""Whole machines for these tests: systemd, containerd and a network each. Needs root and the parts that `python -m testbed ensure` makes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from kill_kit import SEED, SEED_NAME
from testbed.bed import ensure_parts, sweep
from whole_kit import disk_place

from kubewright.machines import host
from kubewright.machines.parts import Parts


def pytest_report_header() -> str:
    """Report the seed of the tests that kill at random places."""
    return f"{SEED_NAME}={SEED}"


@pytest.fixture(scope="session")
def parts() -> Parts:
    """The parts of machines; made at first use, which takes minutes."""
    if reason := host.unfit():
        pytest.skip(reason)
    sweep()
    return ensure_parts()


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory in which disks of machines may be."""
    with disk_place() as found:
        yield found
