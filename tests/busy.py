"""Timeouts for tests, which also run on busy machines. They promise nothing about durations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

HANGS: Final = 600.0
"""Seconds after which a test gives up: only something that hangs takes that long."""
LONGER: Final = (0.15, 1.0, 5.0)
"""Seconds. A timeout may expire before the stage that a test is about; then the test tries a longer one."""


def reaches(attempt: Callable[[float], bool]) -> None:
    """Require that an attempt with one of the timeouts reaches the stage that its test is about.

    Assertions in it apply to each attempt.
    """
    assert any(map(attempt, LONGER)), "the stage was never reached"
