"""A KubeAPI that retries requests while a control plane starts.

In its first second an API server refuses requests that it accepts a moment later: its namespaces do not exist yet,
and its caches are not synced. kubeadm retries every error every 500 ms (`timeouts.kubernetesAPICall`). Here the
pauses begin at 20 ms, and an error that does not go away with time is final.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubewright.base.clock import Clock
from kubewright.base.errors import APIError, Forbidden, NotFound, ServerError, TooManyRequests, Unauthorized, Unreachable
from kubewright.base.wait import Backoff, retry
from kubewright.http.messages import Request, Response
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import Call, Object

_PAUSES: Final = Backoff(first=0.02, factor=2.0, limit=0.5)
_DOUBTFUL: Final = 4
"""Failed attempts (0.14 s of pauses) after which it makes sense to check whether the server still runs."""
_PASSING: Final[tuple[type[APIError], ...]] = (Unreachable, ServerError, TooManyRequests, Forbidden, Unauthorized)


class RetryingKube(KubeAPI):
    """Sends each request until it succeeds, is refused permanently, or `within` seconds have passed; then raises the last error.

    A NotFound is retried for creations, because the namespace will appear; for other requests it is an answer. `look`
    is called before further attempts once a request has failed a few times; it raises an error if retrying is
    pointless.
    """

    def __init__(self, inner: KubeAPI, *, clock: Clock, within: float, look: Callable[[], object] | None = None) -> None:
        self._inner = inner
        self._clock = clock
        self._within = within
        self._look = look

    def send(self, call: Call, /) -> Object:
        passing = (*_PASSING, NotFound) if call.verb == "create" else _PASSING
        return retry(
            lambda: self._inner.send(call), clock=self._clock, on=passing, within=self._within, backoff=_PAUSES, failed=self._failed
        )

    def exchange(self, request: Request, /) -> Response:
        return self._inner.exchange(request)

    def _failed(self, _: Exception, attempt: int) -> None:
        if self._look is not None and attempt >= _DOUBTFUL:
            self._look()
