"""Refusals by an API server that may have just been started: which of them are worth waiting for.

Until it has read which tokens there are, and who may do what, an API server refuses everybody everything. A server that is ready and goes on
refusing means it, and whoever gave a wrong token is told soon.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, TypeVar

from kubewright.base.clock import Clock
from kubewright.base.errors import APIError, Forbidden, Unauthorized
from kubewright.base.events import Reporter, Waiting
from kubewright.base.records import dataclass
from kubewright.base.wait import REPORT_AFTER, Backoff, retry
from kubewright.kube.api import KubeAPI
from kubewright.kube.resources import CONFIG_MAP
from kubewright.tokens import cluster_info

T = TypeVar("T")

REFUSED: Final = 2.0
"""Seconds that a refusal may last: a new token, and new rights, are known to an API server a moment after they were written."""
_PAUSES: Final = Backoff(first=0.05, factor=1.5, limit=0.5)
_STARTING: Final = frozenset({500, 503})
"""What `/readyz` answers while a server starts; 401 is about who asks, and 404 comes from something else."""


class _Stage(enum.Enum):
    """How far a server is that refuses us."""

    STARTING = enum.auto()
    RIGHTS_READ = enum.auto()
    """It knows who may do what; whether it has read the tokens too, nobody tells."""
    READY = enum.auto()


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Calls one API server with a token until it answers.

    `api` and `anonymous` give clients of the server with the token and without one: a holder of a token that the server does not know would
    not be told whether it is ready. `within` is the limit in seconds, `passes` says which errors other than refusals are worth another attempt.
    What is waited for is told once a second.
    """

    api: Callable[[], KubeAPI]
    anonymous: Callable[[], KubeAPI]
    clock: Clock
    reporter: Reporter
    within: float
    passes: Callable[[Exception], bool]

    def call(self, call: Callable[[], T]) -> T:
        """Call until it succeeds, and return the result; the last error is raised as it is.

        A refusal is final once it has lasted for `REFUSED` seconds and the server is ready. Where nobody returns whether it is ready, it gets
        `REFUSED` seconds once more from when it knows who may do what.
        """
        start = told = self.clock.monotonic()
        since: float | None = None
        stage = _Stage.STARTING

        def tell(error: Exception, _: int) -> None:
            nonlocal told
            now = self.clock.monotonic()
            if now - told >= REPORT_AFTER:
                told = now
                self.reporter.emit(Waiting(what="the API server to answer", reason=str(error), elapsed=now - start))

        def passes(error: Exception) -> bool:
            nonlocal since, stage
            if not isinstance(error, (Unauthorized, Forbidden)):
                since = None
                return self.passes(error)
            now = self.clock.monotonic()
            since = now if since is None else since
            if now - since < REFUSED:
                return True
            before, stage, since = stage, self._stage(error), None
            return stage is _Stage.STARTING or (stage is _Stage.RIGHTS_READ and before is not stage)

        return retry(call, clock=self.clock, on=passes, within=self.within, backoff=_PAUSES, failed=tell)

    def _stage(self, refusal: Unauthorized | Forbidden) -> _Stage:
        """Tell how far the server is. Until it is ready, `/readyz` says so, or is refused too.

        Anybody may read `/readyz` where nobody changed ClusterRoleBinding system:public-info-viewer.
        """
        api = self.anonymous() if isinstance(refusal, Unauthorized) else self.api()
        try:
            status = api.raw("GET", "/readyz").status
        except APIError:  # it is being started again
            return _Stage.STARTING
        if status == 403:
            return _Stage.RIGHTS_READ if self._knows_rights() else _Stage.STARTING
        return _Stage.STARTING if status in _STARTING else _Stage.READY

    def _knows_rights(self) -> bool:
        """Return whether the server has read who may do what: everybody may read cluster-info."""
        try:
            self.anonymous().get(CONFIG_MAP, cluster_info.NAME, cluster_info.NAMESPACE)
        except APIError:
            return False
        return True
