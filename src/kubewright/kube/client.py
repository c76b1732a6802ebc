"""The clients of a real API server: `KubeClient` for commands, over urllib3, and `AsyncKubeClient` for daemons, over httptools."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from kubewright.base.clock import Clock, SystemClock
from kubewright.http.messages import REQUEST_TIMEOUT, AsyncTransport, Headers, Limits, Response, Transport
from kubewright.http.proxies import Proxies, origin
from kubewright.kube import answers, core
from kubewright.kube.answers import WatchEvent
from kubewright.kube.api import AsyncKubeAPI, KubeAPI
from kubewright.kube.core import Call, Object, Request, Writing
from kubewright.kube.credentials import Access, Identity


class KubeClient(KubeAPI):
    """Talks to one cluster as one identity. Thread-safe; opens nothing before the first call.

    `timeout` is the time limit of a request in seconds; `dry_run` makes every write a server-side dry run. Only the
    given proxies are used: the caller reads the environment.
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
        """Use another identity from the next call on.

        Calls in flight finish on their own connections, which are then closed.
        """
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
        from kubewright.http import sync  # urllib3 and ssl: only callers that connect pay for the import

        return sync.Transport(
            access.server,
            context=access.context(),
            proxy=access.proxy or self._proxies.for_url(access.server),
            server_name=access.tls_server_name,
            limits=self._limits,
            clock=self._clock,
        )


class AsyncKubeClient(AsyncKubeAPI):
    """Talks to one cluster as one identity. Light enough for hundreds of them in one process; belongs to one event loop.

    One connection serves the calls that do not overlap, and each watch has one of its own.
    """

    def __init__(
        self,
        access: Access,
        *,
        field_manager: str = core.FIELD_MANAGER,
        timeout: float = REQUEST_TIMEOUT,
        dry_run: bool = False,
        proxies: Proxies | None = None,
        limits: Limits | None = None,
        transport: Callable[[Access], AsyncTransport] | None = None,
    ) -> None:
        self.access = access
        self._server = origin(access.server)[1]
        self._writing = Writing(field_manager=field_manager, dry_run=dry_run)
        self._timeout = timeout
        self._proxies = proxies or Proxies()
        self._limits = limits
        self._make = transport or self._default_transport
        self._transport: AsyncTransport | None = None
        self._headers = core.headers_for(access)

    async def send(self, call: Call, /) -> Object:
        return answers.read_object(call, await self._exchange(core.request(call, self._writing), None), server=self._server)

    async def stream(self, call: Call, /) -> AsyncGenerator[WatchEvent, None]:
        request = core.request(call, self._writing)
        decoder = answers.WatchDecoder(call, server=self._server)
        headers = {**self._headers, **request.headers}
        # a server that ignores the watch's time limit and sends nothing for longer is dead, whatever its machine
        # answers to probes
        seconds = call.query.get("timeoutSeconds")
        stall = int(seconds) + self._timeout if seconds else None
        async with self._opened().stream(request.method, request.target, headers=headers, timeout=self._timeout, stall=stall) as stream:
            if not 200 <= stream.status < 300:
                body = await stream.read(within=self._timeout)
                answers.check(call, Response(status=stream.status, headers=stream.headers, body=body), server=self._server)
            async with aclosing(stream.chunks()) as chunks:
                async for chunk in chunks:
                    for event in decoder.feed(chunk):
                        yield event
            decoder.end()

    async def raw(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Headers | None = None,
        timeout: float | None = None,
    ) -> Response:
        return await self._exchange(core.raw(method, path, body=body, headers=headers), timeout)

    async def set_identity(self, identity: Identity) -> None:
        """Use another identity from now on: new calls use new connections.

        Calls in flight finish, watches are cut, old connections close.
        """
        self.access = self.access.as_identity(identity)
        self._headers = core.headers_for(self.access)
        await self.reconnect()

    async def reconnect(self) -> None:
        """Drop every connection, when what is in flight has finished: after failures that a connection of its own would not show."""
        old, self._transport = self._transport, None
        if old is not None:
            await old.drain()

    async def close(self) -> None:
        """Close every connection at once; a later call opens new ones. Idempotent."""
        old, self._transport = self._transport, None
        if old is not None:
            await old.close()

    async def _exchange(self, request: Request, timeout: float | None) -> Response:
        return await self._opened().request(
            request.method,
            request.target,
            headers={**self._headers, **request.headers},
            body=request.body,
            timeout=self._timeout if timeout is None else timeout,
        )

    def _opened(self) -> AsyncTransport:
        if self._transport is None:
            self._transport = self._make(self.access)
        return self._transport

    def _default_transport(self, access: Access) -> AsyncTransport:
        context, proxy = access.context(), access.proxy or self._proxies.for_url(access.server)
        from kubewright.http import lean

        return lean.Transport(access.server, context=context, proxy=proxy, server_name=access.tls_server_name, limits=self._limits)
