"""Whole machines for the tests of this tier: systemd, containerd and a network each. Needs root and what `python -m testbed packages` installs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from testbed import host
from testbed.bed import Parts, ensure_parts, sweep


@pytest.fixture(scope="session")
def parts() -> Iterator[Parts]:
    """What machines are made of; made at first use, which takes minutes."""
    if os.geteuid() != 0:
        pytest.skip("no root: machines cannot be made")
    sweep()
    saved = host.sysctls()
    yield ensure_parts()
    host.restore(saved)
