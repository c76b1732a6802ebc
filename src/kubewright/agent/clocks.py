"""The clock of the machine beside that of the API server: what depends on both fails in odd ways where they differ (spec/node.md 18)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

from kubewright.agent.rounds import Rounds
from kubewright.base.clock import Clock
from kubewright.base.errors import KubewrightError
from kubewright.kube.api import AsyncKubeAPI
from kubewright.pki.certificates import span

_log = logging.getLogger(__name__)

TOLERATED: Final = timedelta(seconds=60)
EVERY: Final = 600.0
"""Seconds between two looks."""
_PATH: Final = "/version"
"""What everybody with a certificate may read, and costs the API server next to nothing."""


def difference(date: str, *, now: datetime) -> timedelta:
    """Return by how much our clock is ahead of a Date header's; nothing for a header that is none."""
    try:
        theirs = parsedate_to_datetime(date)
    except ValueError:
        return timedelta(0)
    return now - (theirs if theirs.tzinfo is not None else theirs.replace(tzinfo=UTC))


def trouble(date: str, *, now: datetime) -> str:
    """Say how far our clock is from that of a Date header, '' where that is of no matter."""
    ahead = difference(date, now=now)
    if abs(ahead) <= TOLERATED:
        return ""
    way = "ahead of" if ahead > timedelta(0) else "behind"
    return f"the clock of this machine is {span(abs(ahead))} {way} the API server's: set it"


class ClockWatch:
    """Compares the clocks every ten minutes. `trouble` says how far they are apart, '' where that is of no matter."""

    def __init__(self, api: Callable[[], AsyncKubeAPI], node_name: str, *, clock: Clock) -> None:
        self._api = api
        self._node_name = node_name
        self._clock = clock
        self._rounds = Rounds(self._look, wait=lambda: EVERY)
        self.trouble = ""

    def start(self) -> None:
        """Begin with a look."""
        self._rounds.start()

    async def stop(self) -> None:
        """End. Idempotent."""
        await self._rounds.stop()

    async def _look(self) -> None:
        try:
            answer = await self._api().raw("GET", _PATH)
        except KubewrightError:
            return
        found = trouble(answer.headers.get("date", ""), now=self._clock.now())
        if found and found != self.trouble:
            _log.warning("node %s: %s", self._node_name, found)
        self.trouble = found
