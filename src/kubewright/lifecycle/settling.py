"""A KubeAPI that tries again while a new control plane settles.

In its first second an API server refuses what it will accept a moment later: its namespaces are not there yet, its caches are not synced.
kubeadm retries every error every 500 ms (`timeouts.kubernetesAPICall`); here the pauses begin at 20 ms, and an error that time cannot mend is final.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from kubewright.base.clock import Clock
from kubewright.base.errors import APIError, Forbidden, NotFound, ServerError, TooManyRequests, Unauthorized, Unreachable
from kubewright.base.retry import Backoff, retry
from kubewright.http.messages import Headers, Response
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import Object, PatchType, Propagation
from kubewright.kube.resources import Resource

T = TypeVar("T")

_PAUSES: Final = Backoff(first=0.02, factor=2.0, limit=0.5)
_DOUBTFUL: Final = 4
"""Failed attempts, 0.14 s of pauses, after which it is worth a look whether the server is still there."""
_PASSING: Final[tuple[type[APIError], ...]] = (Unreachable, ServerError, TooManyRequests, Forbidden, Unauthorized)


class SettlingKube:
    """Sends each request until it succeeds, is refused for good, or `within` seconds have passed; then raises the last error.

    A NotFound of a write counts as passing (the namespace comes), that of a read does not: it is an answer. `look` is called before
    further attempts once a request has failed a few times: it raises where trying again is pointless.
    """

    def __init__(self, inner: KubeAPI, *, clock: Clock, within: float, look: Callable[[], object] | None = None) -> None:
        self._inner = inner
        self._clock = clock
        self._within = within
        self._look = look

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        return self._persist(lambda: self._inner.get(resource, name, namespace))

    def list(
        self, resource: Resource, namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> builtins.list[Object]:
        return self._persist(lambda: self._inner.list(resource, namespace, label_selector=label_selector, field_selector=field_selector))

    def create(self, obj: Mapping[str, Any], *, resource: Resource | None = None, subresource: str = "") -> Object:
        return self._persist(lambda: self._inner.create(obj, resource=resource, subresource=subresource), also=(NotFound,))

    def update(self, obj: Mapping[str, Any], *, resource: Resource | None = None, subresource: str = "") -> Object:
        return self._persist(lambda: self._inner.update(obj, resource=resource, subresource=subresource))

    def patch(
        self,
        resource: Resource,
        name: str,
        body: object,
        namespace: str | None = None,
        *,
        type: PatchType = "strategic",
        subresource: str = "",
        force: bool = False,
    ) -> Object:
        return self._persist(lambda: self._inner.patch(resource, name, body, namespace, type=type, subresource=subresource, force=force))

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        propagation: Propagation = "",
        grace_seconds: int | None = None,
        uid: str = "",
        resource_version: str = "",
    ) -> Object:
        return self._persist(
            lambda: self._inner.delete(
                resource,
                name,
                namespace,
                propagation=propagation,
                grace_seconds=grace_seconds,
                uid=uid,
                resource_version=resource_version,
            )
        )

    def raw(
        self, method: str, path: str, *, body: bytes | None = None, headers: Headers | None = None, timeout: float | None = None
    ) -> Response:
        return self._inner.raw(method, path, body=body, headers=headers, timeout=timeout)

    def _persist(self, call: Callable[[], T], *, also: tuple[type[APIError], ...] = ()) -> T:
        passing = (*_PASSING, *also)
        return retry(call, clock=self._clock, on=passing, within=self._within, backoff=_PAUSES, failed=self._failed)

    def _failed(self, _: Exception, attempt: int) -> None:
        if self._look is not None and attempt >= _DOUBTFUL:
            self._look()
