"""The clients of a real API server: `KubeClient` for commands, over urllib3, and `AsyncKubeClient` for daemons, over httptools."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Generic, TypeVar

from kubewright.http.messages import REQUEST_TIMEOUT, AsyncStream, AsyncTransport, Limits, Request, Response, Transport
from kubewright.http.proxies import Proxies, Proxy, origin
from kubewright.kube import answers, core
from kubewright.kube.answers import WatchEvent
from kubewright.kube.api import AsyncKubeAPI, KubeAPI
from kubewright.kube.core import Call, Object
from kubewright.kube.credentials import Access, Identity

TransportT = TypeVar("TransportT")


class _Client(ABC, Generic[TransportT]):
    """One identity at one cluster, and the transport once it is open.

    `timeout` is the time limit of a request in seconds. Only the given proxies are used; reading the environment is
    up to the caller.
    """

    def __init__(
        self,
        access: Access,
        *,
        field_manager: str = core.FIELD_MANAGER,
        timeout: float = REQUEST_TIMEOUT,
        proxies: Proxies | None = None,
        limits: Limits | None = None,
        transport: Callable[[Access], TransportT] | None = None,
    ) -> None:
        self.access = access
        self._server = origin(access.server).server
        self._field_manager = field_manager
        self._timeout = timeout
        self._proxies = proxies or Proxies()
        self._limits = limits
        self._make = transport or self._default_transport
        self._lock = threading.Lock()
        self._transport: TransportT | None = None
        self._headers = core.headers_for(access)

    @abstractmethod
    def _default_transport(self, access: Access) -> TransportT: ...

    def _proxy(self, access: Access) -> Proxy | None:
        return access.proxy or self._proxies.for_url(access.server)

    def _opened(self, request: Request) -> tuple[TransportT, Request]:
        """Return the transport and the request with the headers of the same identity."""
        with self._lock:
            if self._transport is None:
                self._transport = self._make(self.access)
            headers = {**self._headers, **request.headers}
            return self._transport, Request(request.method, request.target, headers=headers, body=request.body)

    def _dropped(self, identity: Identity | None = None) -> TransportT | None:
        """Drop the transport and return it, so that it can be closed. The next call opens another one, with this identity if one is given."""
        with self._lock:
            if identity is not None:
                self.access = self.access.as_identity(identity)
                self._headers = core.headers_for(self.access)
            old, self._transport = self._transport, None
        return old


class KubeClient(_Client[Transport], KubeAPI):
    """Talks to one cluster as one identity. Thread-safe; opens nothing before the first call."""

    def send(self, call: Call, /) -> Object:
        return answers.read_object(call, self.exchange(core.request(call, self._field_manager)), server=self._server)

    def exchange(self, request: Request, /) -> Response:
        transport, complete = self._opened(request)
        return transport.exchange(complete, timeout=self._timeout)

    def set_identity(self, identity: Identity) -> None:
        """Use another identity from the next call on.

        Calls in flight finish on their own connections, which are then closed.
        """
        if (old := self._dropped(identity)) is not None:
            old.close()

    def close(self) -> None:
        """Close every connection; a later call opens new ones. Idempotent."""
        if (old := self._dropped()) is not None:
            old.close()

    def _default_transport(self, access: Access) -> Transport:
        from kubewright.http import sync  # urllib3 and ssl are slow to import: only callers that connect need them

        return sync.Transport(
            access.server, context=access.context(), proxy=self._proxy(access), server_name=access.tls_server_name, limits=self._limits
        )


class AsyncKubeClient(_Client[AsyncTransport], AsyncKubeAPI):
    """Talks to one cluster as one identity. Light enough for hundreds of them in one process; belongs to one event loop.

    One connection serves all calls that do not overlap; each watch has a separate connection.
    """

    async def send(self, call: Call, /) -> Object:
        return answers.read_object(call, await self.exchange(core.request(call, self._field_manager)), server=self._server)

    async def exchange(self, request: Request, /) -> Response:
        transport, complete = self._opened(request)
        return await transport.exchange(complete, timeout=self._timeout)

    async def stream(self, call: Call, /) -> AsyncGenerator[WatchEvent, None]:
        transport, request = self._opened(core.request(call, self._field_manager))
        decoder = answers.WatchDecoder(call, server=self._server, limit=self._limits.body if self._limits is not None else 0)
        # a server that ignores the watch's time limit and is silent for longer is dead, even if its machine answers
        # to probes
        seconds = call.query.get("timeoutSeconds")
        stall = int(seconds) + self._timeout if seconds else None
        async with transport.open(request, timeout=self._timeout, stall=stall) as stream:
            await self._require_accepted(call, stream)
            async with aclosing(stream.chunks()) as chunks:
                async for chunk in chunks:
                    for event in decoder.feed(chunk):
                        yield event
            decoder.end()

    async def _require_accepted(self, call: Call, stream: AsyncStream) -> None:
        if not 200 <= stream.status < 300:
            body = await stream.read(within=self._timeout)
            answers.check(call, Response(status=stream.status, headers=stream.headers, body=body), server=self._server)

    async def set_identity(self, identity: Identity) -> None:
        """Use another identity from now on: new calls use new connections.

        Calls in flight finish, watches are cut, old connections close.
        """
        if (old := self._dropped(identity)) is not None:
            await old.drain()

    async def close(self) -> None:
        """Close every connection at once; a later call opens new ones. Idempotent."""
        if (old := self._dropped()) is not None:
            await old.close()

    def _default_transport(self, access: Access) -> AsyncTransport:
        context, proxy = access.context(), self._proxy(access)
        from kubewright.http import aio

        return aio.Transport(access.server, context=context, proxy=proxy, server_name=access.tls_server_name, limits=self._limits)
