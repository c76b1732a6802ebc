"""The version that an API server tells (GET /version). Whoever has a credential may ask: ClusterRole system:public-info-viewer."""

from __future__ import annotations

import json
from typing import Final

from kubewright.base.errors import APIError
from kubewright.base.messages import quoted
from kubewright.base.versions import Version
from kubewright.kube.api import KubeAPI

_REFUSED: Final = 400
_SHOWN: Final = 80


def server_version(api: KubeAPI, *, remedy: str = "see what `kubectl version` says") -> Version:
    """Ask for the version. Raises APIError for an answer that has none, a refusal included, and Unreachable."""
    answer = api.raw("GET", "/version")
    if answer.status >= _REFUSED:
        raise _untold(f"it answers with status {answer.status}", remedy)
    try:
        return Version.parse(str(json.loads(answer.body)["gitVersion"]))
    except (ValueError, LookupError, TypeError) as error:
        raise _untold(f"it answers {quoted(answer.body[:_SHOWN].decode(errors='replace'))}", remedy) from error


def _untold(detail: str, remedy: str) -> APIError:
    return APIError("the API server does not report its version", detail=detail, remedy=remedy)
