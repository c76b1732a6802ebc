"""The version (GET /version) and the time (Date header) of an API server, which any authenticated client may read.

Source: ClusterRole system:public-info-viewer.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

from kubewright.base.errors import APIError
from kubewright.base.messages import quoted
from kubewright.base.versions import Version
from kubewright.kube.api import KubeAPI
from kubewright.pki.certificates import span

_REFUSED: Final = 400
_SHOWN: Final = 80
TOLERATED: Final = timedelta(seconds=60)
"""A difference between two clocks that does no harm."""
VERSION: Final = "/version"


def server_version(api: KubeAPI, *, remedy: str = "see what `kubectl version` says") -> Version:
    """Request the version. Raises Unreachable, or APIError for a refusal or an answer without a version."""
    answer = api.raw("GET", VERSION)
    if answer.status >= _REFUSED:
        raise _no_version(f"it answers with status {answer.status}", remedy)
    try:
        return Version.parse(str(json.loads(answer.body)["gitVersion"]))
    except (ValueError, LookupError, TypeError) as error:
        raise _no_version(f"it answers {quoted(answer.body[:_SHOWN].decode(errors='replace'))}", remedy) from error


def _no_version(detail: str, remedy: str) -> APIError:
    return APIError("the API server does not report its version", detail=detail, remedy=remedy)


def difference(date: str, *, now: datetime) -> timedelta:
    """Return how far our clock is ahead of a Date header's; zero if the header is not a date."""
    try:
        theirs = parsedate_to_datetime(date)
    except ValueError:
        return timedelta(0)
    return now - (theirs if theirs.tzinfo is not None else theirs.replace(tzinfo=UTC))


def trouble(ahead: timedelta) -> str:
    """Describe how far our clock is from the API server's; '' if the difference does no harm."""
    if abs(ahead) <= TOLERATED:
        return ""
    way = "ahead of" if ahead > timedelta(0) else "behind"
    return f"the clock of this machine is {span(abs(ahead))} {way} the API server's: set it"
