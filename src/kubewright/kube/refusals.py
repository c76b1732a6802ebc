"""Refusals by an API server that may have just started: which of them are worth waiting for.

Until an API server has read the tokens and the permissions, it refuses every request. If a server is ready and still
refuses, the refusal is final, so that a user who gave a wrong token learns it soon.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, TypeVar

from kubewright.base.clock import Clock
from kubewright.base.errors import APIError, Forbidden, Unauthorized
from kubewright.base.events import Reporter
from kubewright.base.records import dataclass
from kubewright.base.wait import Backoff, reporting, retry
from kubewright.kube.api import KubeAPI
from kubewright.kube.resources import CONFIG_MAP
from kubewright.tokens import cluster_info

T = TypeVar("T")

REFUSED: Final = 2.0
"""Seconds that a refusal may last: an API server knows new tokens and new permissions a moment after they were written."""
_PAUSES: Final = Backoff(first=0.05, factor=1.5, limit=0.5)
_STARTING: Final = frozenset({500, 503})
"""The statuses of `/readyz` while a server starts. A 401 is about the caller's credentials, and a 404 comes from another kind of server."""


class _Stage(enum.Enum):
    """The progress of a starting server that refuses us."""

    STARTING = enum.auto()
    RIGHTS_READ = enum.auto()
    """It knows the permissions. Nothing shows whether it has read the tokens too."""
    READY = enum.auto()


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Calls one API server with a token until it answers.

    `api` and `anonymous` create clients with the token and without one: a server that does not know the token does
    not tell its holder whether it is ready. `within` is the limit in seconds; `passes` returns whether an error other
    than a refusal may pass, so that another attempt is worthwhile. The reason for waiting is reported once a second.
    """

    api: Callable[[], KubeAPI]
    anonymous: Callable[[], KubeAPI]
    clock: Clock
    reporter: Reporter
    within: float
    passes: Callable[[Exception], bool]

    def call(self, call: Callable[[], T]) -> T:
        """Call until it succeeds, and return the result; the last error is raised unchanged.

        A refusal is final once it has lasted for `REFUSED` seconds and the server is ready. If readiness cannot be
        read, the server gets `REFUSED` more seconds from the moment at which it knows the permissions.
        """
        refused_since: float | None = None
        stage = _Stage.STARTING

        def passes(error: Exception) -> bool:
            nonlocal refused_since, stage
            if not isinstance(error, (Unauthorized, Forbidden)):
                refused_since = None
                return self.passes(error)
            now = self.clock.monotonic()
            refused_since = now if refused_since is None else refused_since
            if now - refused_since < REFUSED:
                return True
            refused_since = None
            earlier, stage = stage, self._stage(error)
            if stage is _Stage.RIGHTS_READ:
                return earlier is not _Stage.RIGHTS_READ  # once more: the server may still be reading the tokens
            return stage is _Stage.STARTING

        report = reporting("the API server to answer", clock=self.clock, reporter=self.reporter)
        return retry(call, clock=self.clock, on=passes, within=self.within, backoff=_PAUSES, failed=report)

    def _stage(self, refusal: Unauthorized | Forbidden) -> _Stage:
        """Return how far the server has started. Until it is ready, `/readyz` says so, or is refused too.

        Everyone may read `/readyz`, unless ClusterRoleBinding system:public-info-viewer was changed.
        """
        api = self.anonymous() if isinstance(refusal, Unauthorized) else self.api()
        try:
            status = api.raw("GET", "/readyz").status
        except APIError:  # it is restarting
            return _Stage.STARTING
        if status == 403:
            return _Stage.RIGHTS_READ if self._knows_rights() else _Stage.STARTING
        return _Stage.STARTING if status in _STARTING else _Stage.READY

    def _knows_rights(self) -> bool:
        """Return whether the server has read the permissions: then everyone may read cluster-info."""
        try:
            self.anonymous().get(CONFIG_MAP, cluster_info.NAME, cluster_info.NAMESPACE)
        except APIError:
            return False
        return True
