"""HTTP for daemons that send thousands of small requests: HTTP/1.1 to one server, parsed by httptools, carried by asyncio.

A request costs writing its bytes, TLS, and a parser in C; there are no sessions, URL objects or multidicts
(docs/decisions/0021-a-lean-connection.md).
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from kubewright.base.errors import UsageError
from kubewright.http import failures, messages, tracing
from kubewright.http.connections import Connection, NotHTTP, Streamed, TooLarge, Truncated, Whole
from kubewright.http.connectors import Connector, ProxyFailed
from kubewright.http.failures import NoAnswer, Reason
from kubewright.http.messages import REQUEST_TIMEOUT, Limits, Request, Response, header_pairs
from kubewright.http.proxies import Proxy, origin

if TYPE_CHECKING:
    from collections.abc import Iterator

KEEP_ALIVE: Final = 80.0
"""Seconds after which an idle connection is not reused: kube-apiserver closes it after 90.

Source: apiserver: secure_serving.go.
"""
DRAIN: Final = 10.0
"""Seconds that requests in flight get to finish when a transport is drained."""

_TARGET: Final = re.compile(r"/[!-~]*")
_LINES: Final = re.compile(r"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\r\n\0]*\r\n)*")
_TROUBLES: Final = (NotHTTP, Truncated, OSError, ValueError)
"""The exceptions that mean that there is no usable answer."""


class Transport(messages.AsyncTransport):
    """A pool of connections: up to `limits.connections` for requests, and one more for each stream.

    `base` is `https://host:port`, possibly with a path that precedes every target. Opens nothing before the first
    request.
    """

    def __init__(
        self,
        base: str,
        *,
        context: ssl.SSLContext | None = None,
        proxy: Proxy | None = None,
        limits: Limits | None = None,
        server_name: str = "",
    ) -> None:
        _, self._server, self._prefix = origin(base)
        place = urlsplit(self._server)
        if place.scheme == "https" and context is None:
            raise UsageError(f"{self._server} uses TLS, and there is nothing to verify its certificate with", remedy="pass an SSLContext")
        self._limits = limits or Limits()
        self._connector = Connector(self._server, context=context, server_name=server_name, proxy=proxy)
        self._before, authorization = "", None
        if proxy is not None and self._connector.forwarding:
            self._before, authorization = self._server, proxy.authorization()
        self._common = f"HTTP/1.1\r\nhost: {place.netloc}\r\nuser-agent: kubewright\r\naccept-encoding: identity\r\n"
        if authorization is not None:
            self._common += f"proxy-authorization: {authorization}\r\n"
        self._slots = asyncio.Semaphore(self._limits.connections)
        self._free: list[Connection] = []
        self._busy: set[Connection] = set()
        self._opening: set[asyncio.Timeout] = set()
        self._streams: set[Streamed] = set()
        self._closed = False
        self._in_flight = 0
        self._idle: asyncio.Event | None = None

    async def exchange(self, request: Request, /, *, timeout: float | None = REQUEST_TIMEOUT) -> Response:
        self._in_flight += 1
        try:
            with self._traced(request) as trace:
                async with asyncio.timeout(timeout):
                    return await self._exchanged(request, trace)
        finally:
            self._in_flight -= 1
            if self._idle is not None and not self._in_flight:
                self._idle.set()

    @asynccontextmanager
    async def open(
        self, request: Request, /, *, timeout: float | None = REQUEST_TIMEOUT, stall: float | None = None
    ) -> AsyncIterator[Streamed]:
        with self._traced(request) as trace:
            async with asyncio.timeout(timeout):
                streamed = await self._begun(request, stall)
            trace.answered(streamed.status)
        try:
            yield streamed
        finally:
            streamed.close()

    async def drain(self) -> None:
        try:
            if self._in_flight:
                self._idle = asyncio.Event()
                with suppress(TimeoutError):  # later data is cut off, as a timeout would
                    await asyncio.wait_for(self._idle.wait(), DRAIN)
        finally:  # nothing refers to these connections any more
            await self.close()

    async def close(self) -> None:
        self._closed = True
        for stream in list(self._streams):
            stream.close()
        for bound in self._opening:
            if not bound.expired():
                bound.reschedule(asyncio.get_running_loop().time())
        for connection in (*self._free, *self._busy):
            connection.lost(ConnectionAbortedError())
        self._free.clear()

    @contextmanager
    def _traced(self, request: Request) -> Iterator[tracing.Trace]:
        """Trace a request and raise NoAnswer when it fails."""
        trace = tracing.begin(request.method, f"{self._server}{self._prefix}{request.target}")
        try:
            yield trace
        except _TROUBLES as error:
            failure = self._failure(error, request)
            trace.failed(failure.what)
            raise failure from error

    async def _exchanged(self, request: Request, trace: tracing.Trace) -> Response:
        data = self._written(request)
        async with self._slots:
            connection = self._kept() or await self._opened()
            self._busy.add(connection)
            answer = Whole(self._limits.body)
            try:
                connection.send(data, answer)
                content = await answer.done
            except BaseException:
                connection.abort()
                raise
            finally:
                self._busy.discard(connection)
            trace.answered(answer.status)
            if content is None:
                connection.abort()
                raise self._no_answer(request, Reason.TOO_LARGE, f"more than {self._limits.body} bytes")
            self._keep(connection)
        return Response(status=answer.status, headers=answer.headers, body=content)

    async def _begun(self, request: Request, stall: float | None) -> Streamed:
        data = self._written(request)
        connection = await self._opened()
        stream = Streamed(
            connection,
            most=self._limits.body,
            stall=stall,
            failure=lambda error: self._failure(error, request),
            closed=self._streams.discard,
        )
        self._streams.add(stream)
        try:
            connection.send(data, stream)
            async with asyncio.timeout(stall):
                await stream.head
        except BaseException:
            stream.close()
            raise
        return stream

    def _failure(self, error: Exception, request: Request) -> NoAnswer:
        return self._no_answer(request, *((Reason.CLOSED, "") if self._closed else _reason(error)))

    def _no_answer(self, request: Request, reason: Reason, detail: str) -> NoAnswer:
        return failures.no_answer(self._server, request.method, request.target, reason, detail=detail)

    def _written(self, request: Request) -> bytes:
        """Render a request. Raises ValueError for parts that would smuggle in another request."""
        path, body = self._prefix + request.target, request.body
        pairs = header_pairs(request.headers)
        lines = "".join([f"{name}: {value}\r\n" for name, value in pairs])
        if not _TARGET.fullmatch(path) or not _LINES.fullmatch(lines) or lines.count("\n") != len(pairs):
            raise ValueError("a target or header that HTTP cannot carry")
        length = f"content-length: {len(body)}\r\n" if body is not None else ""
        head = f"{request.method} {self._before}{path} {self._common}{length}{lines}\r\n".encode()
        return head + body if body else head

    def _kept(self) -> Connection | None:
        """Return an idle connection: the most recently used one, so that the others may expire."""
        now = asyncio.get_running_loop().time()
        while self._free:
            connection = self._free.pop()
            if connection.open and now - connection.used < KEEP_ALIVE:
                return connection
            connection.abort()
        return None

    def _keep(self, connection: Connection) -> None:
        if not connection.open or self._closed:
            connection.abort()
            return
        connection.used = asyncio.get_running_loop().time()
        self._free.append(connection)

    async def _opened(self) -> Connection:
        self._require_open()
        try:
            async with asyncio.timeout(self._limits.connect) as bound:
                self._opening.add(bound)
                connection = await self._connector.opened()
        finally:
            self._opening.discard(bound)
        try:
            self._require_open()
            connection.require_open()
        except BaseException:
            connection.abort()
            raise
        return connection

    def _require_open(self) -> None:
        if self._closed:
            raise ConnectionAbortedError


def _reason(error: Exception) -> tuple[Reason, str]:
    below = failures.reason_of(error)
    if isinstance(error, ProxyFailed):
        return Reason.PROXY, str(error) or (below[0].value if below else "")
    if isinstance(error, Truncated):
        return Reason.TRUNCATED, ""
    if isinstance(error, TooLarge):
        return Reason.TOO_LARGE, str(error)
    if isinstance(error, NotHTTP):
        return Reason.MALFORMED, str(error)
    return below or (Reason.MALFORMED, type(error).__name__)
