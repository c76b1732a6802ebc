"""When a component that ended is started again. Pure.

The kubelet begins at 10 s, doubles up to 5 min and forgives after 10 min, because image pulls and shared nodes make restarts dear.
Here a restart costs a fork, and somebody waits: 0.1 s, then 1 s, doubling to 60 s.
"""

from __future__ import annotations

from typing import Final

FIRST: Final = 0.1
SECOND: Final = 1.0
LONGEST: Final = 60.0
WELL_AFTER_READY: Final = 10.0
"""Seconds of readiness after which an earlier failure does not count any more."""
WELL_AFTER: Final = 600.0
"""Seconds of running after which it does not count either, for what never becomes ready (the kubelet's MaxContainerBackOff × 2)."""
LOOPING: Final = 2
"""Failures in a row that make a crash loop: one death may be an accident of the start order."""
HOPELESS: Final = 3
"""Failures in a row after which those who wait for readiness are told."""


def delay(failures: int) -> float:
    """Return the seconds to wait before the next start, after so many failures in a row (at least one)."""
    if failures <= 1:
        return FIRST
    return min(SECOND * 2.0 ** min(failures - 2, 16), LONGEST)


def failures_after(failures: int, *, ran: float, ready: float) -> int:
    """Return the failures in a row once a run has ended, after `ran` seconds, `ready` of them since it was first ready (0 if never)."""
    well = ready >= WELL_AFTER_READY or ran >= WELL_AFTER
    return 1 if well else failures + 1
