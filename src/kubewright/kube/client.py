"""The synchronous client: for commands. Thread-safe; opens nothing before the first call."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kubewright.base.clock import Clock, SystemClock
from kubewright.http.addresses import origin
from kubewright.http.messages import REQUEST_TIMEOUT, Headers, Limits, Response, Transport
from kubewright.http.proxies import Proxies
from kubewright.kube import answers, core
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import Call, Object, Request, Writing
from kubewright.kube.credentials import Access, Identity


class KubeClient(KubeAPI):
    """Talks to one cluster as one identity.

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

    def send(self, call: Call, /) -> Object:
        return answers.read_object(call, self._exchange(core.request(call, self._writing), None), server=self._server)

    def raw(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Headers | None = None,
        timeout: float | None = None,
    ) -> Response:
        return self._exchange(core.raw(method, path, body=body, headers=headers), timeout)

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

    def _exchange(self, request: Request, timeout: float | None) -> Response:
        with self._lock:
            if self._transport is None:
                self._transport = self._make(self.access)
            transport, headers = self._transport, self._headers
        within = self._timeout if timeout is None else timeout
        return transport.request(request.method, request.target, headers={**headers, **request.headers}, body=request.body, timeout=within)

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
