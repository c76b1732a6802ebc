"""One line of the log for each request, at -v 6.

The request, the server, the status and the duration, much as client-go logs them.

Never a header, a body, user information, or a download's query, which may be a signature.
"""

from __future__ import annotations

import logging
from typing import Final

from kubewright.base.clock import Clock, SystemClock
from kubewright.base.logs import level_of, verbose
from kubewright.base.messages import shown_url

REQUESTS: Final = 6
_log: Final = logging.getLogger(__name__)


class Trace:
    """A request in progress. This one is not logged."""

    def answered(self, status: int) -> None:
        """Note the status of the answer. Its body may still be on its way."""

    def failed(self, why: object) -> None:
        """Note why there is no answer."""


class _Logged(Trace):
    """A request in progress that is logged."""

    def __init__(self, method: str, url: str, *, clock: Clock, query: bool) -> None:
        self._clock, self._begin = clock, clock.monotonic()
        _, mark, asked = url.partition("#")[0].partition("?")
        shown = f"{mark}{asked if query else '...'}" if asked else ""
        self._what = f'verb="{method}" url="{shown_url(url)}{shown}"'

    def answered(self, status: int) -> None:
        verbose(_log, REQUESTS, '"Response" %s status="%d" milliseconds=%d', self._what, status, self._passed())

    def failed(self, why: object) -> None:
        verbose(_log, REQUESTS, '"No response" %s err="%s" milliseconds=%d', self._what, why, self._passed())

    def _passed(self) -> float:
        return (self._clock.monotonic() - self._begin) * 1000


_SILENT: Final = Trace()


def begin(method: str, url: str, *, clock: Clock | None = None, query: bool = True) -> Trace:
    """Return the trace of a new request. With `query` off, the query is not logged."""
    if not _log.isEnabledFor(level_of(REQUESTS)):
        return _SILENT
    return _Logged(method, url, clock=clock or SystemClock(), query=query)
