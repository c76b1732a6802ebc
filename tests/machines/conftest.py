"""Whole machines for the tests of this tier: systemd, containerd and a network each. Needs root and what `python -m testbed ensure` makes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from kill_kit import SEED, SEED_NAME  # of a whole run: chosen before its other processes begin, which inherit it
from testbed import host
from testbed.bed import Parts, ensure_parts, sweep

_SYSCTLS = pytest.StashKey[dict[str, str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Note what kubelets change for the whole host: once for a run, however many processes it has."""
    if not hasattr(config, "workerinput") and not host.unfit():
        config.stash[_SYSCTLS] = host.sysctls()


def pytest_unconfigure(config: pytest.Config) -> None:
    host.restore(config.stash.get(_SYSCTLS, {}))


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
