"""Compares the machine's clock with the API server's: certificates and tokens fail in confusing ways when they differ."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from kubewright.agent.periodic import Periodic
from kubewright.base.clock import Clock
from kubewright.base.errors import KubewrightError
from kubewright.kube import server_info
from kubewright.kube.api import AsyncKubeAPI

_log = logging.getLogger(__name__)

EVERY: Final = 600.0
"""Seconds between two checks."""


class ClockWatch:
    """Compares the clocks every ten minutes. `trouble` says how far they differ, '' if the difference does no harm."""

    def __init__(self, api: Callable[[], AsyncKubeAPI], node_name: str, *, clock: Clock) -> None:
        self._api = api
        self._node_name = node_name
        self._clock = clock
        self._rounds = Periodic("a look at the clocks", self._look, wait=lambda: EVERY)
        self.trouble = ""

    def start(self) -> None:
        """Check now, and start the timer."""
        self._rounds.start()

    async def stop(self) -> None:
        """Stop the timer. Idempotent."""
        await self._rounds.stop()

    async def _look(self) -> None:
        try:
            answer = await self._api().raw("GET", server_info.VERSION)
        except KubewrightError:
            return
        found = server_info.trouble(server_info.difference(answer.headers.get("date", ""), now=self._clock.now()))
        if found and found != self.trouble:
            _log.warning("node %s: %s", self._node_name, found)
        self.trouble = found
