"""Times for tests that also run on busy machines: nothing is promised about how long a thing takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

HANGS: Final = 20.0
"""Seconds after which a test gives up: far from what anything may take, and far below what a silent server would last."""
LONGER: Final = (0.15, 1.0, 5.0)
"""Seconds. Where a short time may pass before the stage is reached that a test is about, it has to be a longer one."""


def reaches(attempt: Callable[[float], bool]) -> None:
    """Require that an attempt with one of the times gets as far as its test wants. What it asserts itself holds for each."""
    assert any(map(attempt, LONGER)), "the stage was never reached"
