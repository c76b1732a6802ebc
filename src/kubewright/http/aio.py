"""HTTP for daemons: a transport per identity, light enough for hundreds of them in one process, and the event loop itself.

aiohttp and uvloop do the work; nothing of them shows above this package. Servers are in `serving`.
"""

from __future__ import annotations

import asyncio
import base64
import io
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from kubewright.http import failures, tracing
from kubewright.http.deadlines import require_name
from kubewright.http.failures import NoAnswer, Reason
from kubewright.http.messages import CHUNK, REQUEST_TIMEOUT, Headers, Limits, Response, header_pairs
from kubewright.http.proxies import Proxy, origin
from kubewright.http.serving import serve, serve_unix

__all__ = ["Streamed", "Transport", "serve", "serve_unix"]

T = TypeVar("T")

KEEP_ALIVE: Final = 90.0
"""Seconds that an idle connection is kept, as Go's default transport does; a lease every 10 s never opens a new one."""
DRAIN: Final = 10.0
"""Seconds that requests in flight get to finish when a transport is drained."""

_WHOLE: Final = 1 << 20
"""Bytes above which a body is written in pieces, so that one large object does not hold up the loop."""

# A watch says nothing for minutes: the kernel finds out whether the other end is still there (seconds, seconds, count).
_PROBES: Final = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


class Transport:
    """Connections to one server with one identity; belongs to one event loop. Implements `messages.AsyncTransport`.

    `base` is `https://host:port`, perhaps with a path that goes before every target; with `unix_socket` the host is only a name.
    Opens nothing before the first request.
    """

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
        _, self._server, self._prefix = origin(base)
        self._context = context
        self._proxy = proxy
        self._limits = limits or Limits()
        self._unix_socket = unix_socket
        self._host = "" if unix_socket is not None else urlsplit(proxy.url if proxy is not None else self._server).hostname or ""
        self._server_name = server_name or None
        self._session: aiohttp.ClientSession | None = None
        self._closed = False
        self._in_flight = 0
        self._idle: asyncio.Event | None = None
        self._streams: set[aiohttp.ClientResponse] = set()

    async def request(
        self,
        method: str,
        target: str,
        /,
        *,
        headers: Headers | None = None,
        body: bytes | None = None,
        timeout: float | None = REQUEST_TIMEOUT,
    ) -> Response:
        self._in_flight += 1
        trace = tracing.begin(method, f"{self._server}{self._prefix}{target}")
        try:
            async with asyncio.timeout(timeout), self._send(method, target, headers, body, None) as answer:
                trace.answered(answer.status)
                content = await self._read_whole(answer, method, target)
                return Response(status=answer.status, headers=_lower(answer.headers), body=content)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._failed(error, method, target, trace) from error
        finally:
            self._in_flight -= 1
            if self._idle is not None and not self._in_flight:
                self._idle.set()

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        target: str,
        /,
        *,
        headers: Headers | None = None,
        body: bytes | None = None,
        timeout: float | None = REQUEST_TIMEOUT,
        stall: float | None = None,
    ) -> AsyncIterator[Streamed]:
        trace = tracing.begin(method, f"{self._server}{self._prefix}{target}")
        try:
            async with asyncio.timeout(timeout):
                answer = await self._send(method, target, headers, body, stall)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._failed(error, method, target, trace) from error
        trace.answered(answer.status)
        self._streams.add(answer)
        try:
            yield Streamed(answer, failure=lambda error: self._failure(error, method, target))
        finally:
            self._streams.discard(answer)
            answer.close()

    async def drain(self) -> None:
        if self._in_flight:
            self._idle = asyncio.Event()
            with suppress(TimeoutError):  # what takes longer is cut, as its own time-out would
                await asyncio.wait_for(self._idle.wait(), DRAIN)
        await self.close()

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
                raise failures.no_answer(self._server, method, target, Reason.TOO_LARGE, detail=f"more than {most} bytes")
            parts.append(part)
        return b"".join(parts)

    def _failed(self, error: Exception, method: str, target: str, trace: tracing.Trace) -> NoAnswer:
        failure = self._failure(error, method, target)
        trace.failed(failure.what)
        return failure

    def _failure(self, error: Exception, method: str, target: str) -> NoAnswer:
        if self._closed:
            return failures.no_answer(self._server, method, target, Reason.CLOSED)
        reason, detail = _reason(error)
        return failures.no_answer(self._server, method, target, reason, detail=detail)


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

    def __init__(self, answer: aiohttp.ClientResponse, *, failure: Callable[[Exception], NoAnswer]) -> None:
        self._answer = answer
        self._failure = failure
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


def _reason(error: Exception) -> tuple[Reason, str]:
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
    return failures.reason_of(error) or (Reason.MALFORMED, type(error).__name__)


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
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _PROBES:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
    return sock
