"""The synchronous client: for commands. Thread-safe; opens nothing before the first call."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Mapping
from typing import Any

from kubewright.base.clock import Clock, SystemClock
from kubewright.http.addresses import origin
from kubewright.http.messages import REQUEST_TIMEOUT, Headers, Limits, Response, Transport
from kubewright.http.proxies import Proxies
from kubewright.kube import answers, core
from kubewright.kube.core import Call, Object, PatchType, Propagation, Writing
from kubewright.kube.credentials import Access, Identity
from kubewright.kube.resources import Resource


class KubeClient:
    """Talks to one cluster as one identity. Implements `api.KubeAPI`.

    `timeout` is what one request may take, in seconds; `dry_run` asks the server to pretend on every write. Proxies are those given:
    the environment is read by whoever owns it.
    """

    def __init__(
        self,
        access: Access,
        *,
        field_manager: str = core.FIELD_MANAGER,
        clock: Clock | None = None,
        timeout: float = REQUEST_TIMEOUT,
        dry_run: bool = False,
        proxies: Proxies | None = None,
        limits: Limits | None = None,
        transport: Callable[[Access], Transport] | None = None,
    ) -> None:
        self.access = access
        self._server = origin(access.server)[1]
        self._writing = Writing(field_manager=field_manager, dry_run=dry_run)
        self._clock = clock or SystemClock()
        self._timeout = timeout
        self._proxies = proxies or Proxies()
        self._limits = limits
        self._make = transport or self._default_transport
        self._lock = threading.Lock()
        self._transport: Transport | None = None
        self._headers = core.headers_for(access)

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        return self._object(core.get(resource, name, namespace))

    def list(
        self, resource: Resource, namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> builtins.list[Object]:
        found: builtins.list[Object] = []
        token = ""
        while True:
            call = core.list_page(resource, namespace, label_selector=label_selector, field_selector=field_selector, token=token)
            items, token, _ = answers.items_of(call, self._object(call), server=self._server)
            found += items
            if not token:
                return found

    def create(self, obj: Mapping[str, Any], *, resource: Resource | None = None, subresource: str = "") -> Object:
        return self._object(core.create(obj, self._writing, resource=resource, subresource=subresource))

    def update(self, obj: Mapping[str, Any], *, resource: Resource | None = None, subresource: str = "") -> Object:
        return self._object(core.update(obj, self._writing, resource=resource, subresource=subresource))

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
        return self._object(
            core.patch(resource, name, body, namespace, type=type, writing=self._writing, subresource=subresource, force=force)
        )

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
        return self._object(
            core.delete(
                resource,
                name,
                namespace,
                writing=self._writing,
                propagation=propagation,
                grace_seconds=grace_seconds,
                uid=uid,
                resource_version=resource_version,
            )
        )

    def raw(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Headers | None = None,
        timeout: float | None = None,
    ) -> Response:
        return self._send(core.raw(method, path, body=body, headers=headers), timeout)

    def set_identity(self, identity: Identity) -> None:
        """Be somebody else from the next call on. Calls in flight finish on their own connections, which are then closed."""
        access = self.access.as_identity(identity)
        with self._lock:
            self.access, self._headers = access, core.headers_for(access)
            old, self._transport = self._transport, None
        if old is not None:
            old.close()

    def close(self) -> None:
        """Close every connection; a later call opens new ones. Idempotent."""
        with self._lock:
            old, self._transport = self._transport, None
        if old is not None:
            old.close()

    def _object(self, call: Call) -> Object:
        return answers.read_object(call, self._send(call, None), server=self._server)

    def _send(self, call: Call, timeout: float | None) -> Response:
        with self._lock:
            if self._transport is None:
                self._transport = self._make(self.access)
            transport, headers = self._transport, self._headers
        within = self._timeout if timeout is None else timeout
        return transport.request(call.method, call.target, headers={**headers, **call.headers}, body=call.body, timeout=within)

    def _default_transport(self, access: Access) -> Transport:
        from kubewright.http import sync  # urllib3, ssl: only who really calls pays for them

        return sync.Transport(
            access.server,
            context=access.context(),
            proxy=access.proxy or self._proxies.for_url(access.server),
            server_name=access.tls_server_name,
            limits=self._limits,
            clock=self._clock,
        )
