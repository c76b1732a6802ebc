"""The clock of this machine compared with the API server's: what depends on both fails in odd ways where they differ."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

from kubewright.pki.certificates import span

TOLERATED: Final = timedelta(seconds=60)
VERSION: Final = "/version"
"""A path that everybody may read whom the API server knows; its answers cost next to nothing and have a Date header."""


def difference(date: str, *, now: datetime) -> timedelta:
    """Return by how much our clock is ahead of a Date header's; nothing for a header that is none."""
    try:
        theirs = parsedate_to_datetime(date)
    except ValueError:
        return timedelta(0)
    return now - (theirs if theirs.tzinfo is not None else theirs.replace(tzinfo=UTC))


def trouble(ahead: timedelta) -> str:
    """Say how far our clock is from the API server's, '' where that is of no matter."""
    if abs(ahead) <= TOLERATED:
        return ""
    way = "ahead of" if ahead > timedelta(0) else "behind"
    return f"the clock of this machine is {span(abs(ahead))} {way} the API server's: set it"
