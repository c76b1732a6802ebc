"""HTTP for daemons by aiohttp: through proxies and to Unix sockets. Straight to a server, `lean` costs less.

Nothing of aiohttp shows above this package. Servers are in `serving`.
"""

from __future__ import annotations

import asyncio
import base64
import io
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from kubewright.http import failures, tracing
from kubewright.http.deadlines import require_name
from kubewright.http.exchanges import Exchanges, keep_alive
from kubewright.http.failures import NoAnswer, Reason
from kubewright.http.messages import CHUNK, REQUEST_TIMEOUT, Headers, Limits, Response, header_pairs
from kubewright.http.proxies import Proxy
from kubewright.http.serving import serve, serve_unix

__all__ = ["Streamed", "Transport", "serve", "serve_unix"]

KEEP_ALIVE: Final = 90.0
"""Seconds that an idle connection is kept, as Go's default transport does; a lease every 10 s never opens a new one."""

_WHOLE: Final = 1 << 20
"""Bytes above which a body is written in pieces, so that one large object does not hold up the loop."""


class Transport(Exchanges):
    """Connections by aiohttp. With `unix_socket` the host of `base` is only a name."""

    troubles = (aiohttp.ClientError, OSError, ValueError)

    def __init__(
        self,
        base: str,
        *,
        context: ssl.SSLContext | None = None,
        proxy: Proxy | None = None,
        limits: Limits | None = None,
        unix_socket: str | None = None,
        server_name: str = "",
    ) -> None:
        super().__init__(base, limits=limits)
        self._context = context
        self._proxy = proxy
        self._unix_socket = unix_socket
        self._host = "" if unix_socket is not None else urlsplit(proxy.url if proxy is not None else self._server).hostname or ""
        self._server_name = server_name or None
        self._session: aiohttp.ClientSession | None = None
        self._streams: set[aiohttp.ClientResponse] = set()

    async def _exchanged(self, method: str, target: str, headers: Headers | None, body: bytes | None, trace: tracing.Trace) -> Response:
        async with self._send(method, target, headers, body, None) as answer:
            trace.answered(answer.status)
            content = await self._read_whole(answer, method, target)
            return Response(status=answer.status, headers=_lower(answer.headers), body=content)

    async def _begun(self, method: str, target: str, headers: Headers | None, body: bytes | None, stall: float | None) -> Streamed:
        answer = await self._send(method, target, headers, body, stall)
        self._streams.add(answer)
        return Streamed(answer, failure=lambda error: self._failure(error, method, target), closed=self._streams.discard)

    async def close(self) -> None:
        self._closed = True
        for answer in self._streams:  # aiohttp would leave their readers waiting for ever
            answer.content.set_exception(aiohttp.ClientConnectionError("closed"))
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    def _send(
        self, method: str, target: str, headers: Headers | None, body: bytes | None, stall: float | None
    ) -> aiohttp.client._RequestContextManager:
        require_name(self._host)
        session = self._opened()
        return session.request(
            method,
            URL(f"{self._server}{self._prefix}{target}", encoded=True),
            headers=header_pairs(headers) if headers is not None else None,
            data=io.BytesIO(body) if body is not None and len(body) > _WHOLE else body,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._limits.connect, sock_read=stall),
            proxy=self._proxy.url if self._proxy is not None else None,
            proxy_headers=_basic(self._proxy),
            server_hostname=self._server_name,
        )

    def _opened(self) -> aiohttp.ClientSession:
        if self._closed:
            raise aiohttp.ClientConnectionError("closed")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=self._connector(),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                headers={"user-agent": "kubewright", "accept-encoding": "identity"},
                skip_auto_headers=("content-type",),
                trust_env=False,
                read_bufsize=CHUNK,
            )
        return self._session

    def _connector(self) -> aiohttp.BaseConnector:
        if self._unix_socket is not None:
            return aiohttp.UnixConnector(path=self._unix_socket, limit=self._limits.connections)
        return _Connector(
            ssl=self._context if self._context is not None else True,
            limit=self._limits.connections,
            keepalive_timeout=KEEP_ALIVE,
            ttl_dns_cache=10,
            resolver=aiohttp.ThreadedResolver(),
            socket_factory=_socket,
        )

    async def _read_whole(self, answer: aiohttp.ClientResponse, method: str, target: str) -> bytes:
        most = self._limits.body
        if answer.content_length is not None and answer.content_length <= most:
            return await answer.read()
        parts, count = [], 0
        async for part in answer.content.iter_any():
            count += len(part)
            if count > most:
                answer.close()
                raise self._too_large(method, target)
            parts.append(part)
        return b"".join(parts)

    def _reason(self, error: Exception) -> tuple[Reason, str]:
        if isinstance(error, (aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError)):
            below = failures.reason_of(error)
            return Reason.PROXY, below[0].value if below else ""
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return Reason.DNS, ""
        if isinstance(error, aiohttp.ClientPayloadError):
            return Reason.TRUNCATED, ""
        if isinstance(error, aiohttp.ServerDisconnectedError):
            return Reason.RESET, ""
        if isinstance(error, aiohttp.ClientResponseError):
            return Reason.MALFORMED, type(error).__name__
        return super()._reason(error)


class _Connector(aiohttp.TCPConnector):
    """A connector that does not wait for the other end's goodbye.

    aiohttp closes a connection that it gives up in the middle of an answer by TLS's own shutdown, which a silent server can draw out for
    30 s, past the end of the event loop. If aiohttp renames the method, that behaviour comes back and nothing else breaks.
    """

    def _release(self, key: Any, protocol: Any, *, should_close: bool = False) -> None:
        dropped = protocol.transport if should_close or protocol.should_close else None
        super()._release(key, protocol, should_close=should_close)
        if dropped is not None:
            dropped.abort()


class Streamed:
    """An answer whose body is still on its way. Implements `messages.AsyncStream`."""

    def __init__(
        self,
        answer: aiohttp.ClientResponse,
        *,
        failure: Callable[[Exception], NoAnswer],
        closed: Callable[[aiohttp.ClientResponse], None],
    ) -> None:
        self._answer = answer
        self._failure = failure
        self._closed = closed
        self.status = answer.status
        self.headers: Mapping[str, str] = _lower(answer.headers)

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        content = self._answer.content
        while True:
            try:
                chunk = await content.readany()
            except (aiohttp.ClientError, OSError) as error:
                raise self._failure(error) from error
            if not chunk:
                return
            yield chunk

    async def read(self, *, within: float | None = REQUEST_TIMEOUT) -> bytes:
        try:
            async with asyncio.timeout(within):
                return b"".join([chunk async for chunk in self.chunks()])
        except TimeoutError as error:
            raise self._failure(error) from error

    def close(self) -> None:
        self._closed(self._answer)
        self._answer.close()


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _basic(proxy: Proxy | None) -> dict[str, str] | None:
    """Return the credentials for a proxy; aiohttp sends this header to the proxy under its proper name."""
    if proxy is None or proxy.user is None:
        return None
    return {"authorization": "Basic " + base64.b64encode(f"{proxy.user}:{proxy.password}".encode()).decode()}


def _socket(place: Any) -> socket.socket:
    """Make a socket that notices when the other end is gone. `place` is one row of getaddrinfo."""
    family, kind, protocol, _, _ = place
    sock = socket.socket(family=family, type=kind, proto=protocol)
    keep_alive(sock)
    return sock
