"""One HTTP/1.1 connection as asyncio and httptools see it, and the receivers of its answers.

made ── send ──> answered ──> open for the next, or closed if the server said so
         └── lost, or more than was asked for ──> closed: what follows is undefined
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Final, Protocol, cast

import httptools

from kubewright.http.failures import NoAnswer
from kubewright.http.messages import CHUNK, REQUEST_TIMEOUT

_HEAD: Final = CHUNK
"""The largest head of an answer in bytes, checked when more data arrives."""
_AHEAD: Final = 16 * CHUNK
"""Bytes of a stream that may wait for their reader before the server is throttled."""


@functools.lru_cache(maxsize=128)
def _lower(name: bytes) -> str:
    """Convert to lower case, cached: servers send the same few names again and again."""
    return name.lower().decode("latin-1")


class NotHTTP(Exception):
    """The data is not HTTP, or is more than one answer."""


class Truncated(Exception):
    """An answer was cut short."""


class TooLarge(Exception):
    """An answer is larger than allowed."""


class _Answer(Protocol):
    """Receives an answer from a connection as it arrives."""

    def begun(self, status: int, headers: Mapping[str, str]) -> None:
        """Receive the head."""
        ...

    def piece(self, data: bytes) -> None:
        """Receive a chunk of the body."""
        ...

    def ended(self, error: Exception | None) -> None:
        """Note the end: complete, or cut short by an error. Nothing follows it."""
        ...


class Connection(asyncio.Protocol):
    """One connection. It carries one request at a time: send only after the previous answer."""

    transport: asyncio.Transport
    """The transport to write to. Set once the connection is open."""
    bottom: asyncio.Transport
    """The TCP transport: aborting it closes the layers above it.

    asyncio's own abort of TLS over TLS fails (Python 3.11).
    """

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._answer: _Answer | None = None
        self._headers: dict[str, str] = {}
        self._early = 0
        self._head = False
        self._lost: Exception | None = None
        self.open = False
        self.used = 0.0

    def require_open(self) -> None:
        """Raise the error by which the connection was lost."""
        if self._lost is not None:
            raise self._lost

    def send(self, data: bytes, answer: _Answer) -> None:
        """Send one request and pass its answer to `answer`."""
        self._answer, self._early, self._head = answer, 0, False
        self.transport.write(data)

    def abort(self) -> None:
        """Close the connection now, without TLS's close_notify, for which a silent server could make us wait."""
        self.open, self._answer = False, None
        self.bottom.abort()

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's transports are not subclasses of asyncio's
        self.open = self._lost is None  # with TLS, connection_lost may come before connection_made

    def data_received(self, data: bytes) -> None:
        if self._answer is None or (not self._head and self._early > _HEAD):  # unsolicited data, or a head without end
            self.lost(NotHTTP())
            return
        self._early += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.lost(NotHTTP(type(error).__name__))

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        if self._head and "content-length" not in self._headers and self._headers.get("transfer-encoding") != "chunked":
            self._finish(None)  # the end of the answer is the end of the connection
        else:
            self.lost(Truncated() if self._early and exc is None else exc or ConnectionResetError())

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[_lower(name)] = value.decode("latin-1")

    def on_message_begin(self) -> None:
        self._headers = {}
        if self._answer is None:  # more than one answer
            self.open = False

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._answer is not None and status >= 200:
            self._head = True
            self._answer.begun(status, self._headers)

    def on_body(self, data: bytes) -> None:
        if self._answer is not None:
            self._answer.piece(data)

    def on_message_complete(self) -> None:
        if self._head:  # 100 Continue and other interim answers come first
            self.open = self.open and self._parser.should_keep_alive()
            self._finish(None)

    def lost(self, error: Exception) -> None:
        """Give up the connection: a waiting request fails with this error."""
        self.open, self._lost = False, self._lost or error
        self._finish(error)
        if hasattr(self, "bottom"):
            self.bottom.abort()

    def _finish(self, error: Exception | None) -> None:
        answer, self._answer, self._head = self._answer, None, False
        if answer is not None:
            answer.ended(error)


class Whole:
    """An answer that is buffered until it is complete, with at most `most` bytes of body."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._body = bytearray()
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.done: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        """The body, None if it is larger than allowed."""

    def begun(self, status: int, headers: Mapping[str, str]) -> None:
        self.status, self.headers = status, headers

    def piece(self, data: bytes) -> None:
        if len(self._body) + len(data) <= self._most:
            self._body += data
        elif not self.done.done():
            self.done.set_result(None)

    def ended(self, error: Exception | None) -> None:
        if self.done.done():
            return
        if error is not None:
            self.done.set_exception(error)
        else:
            self.done.set_result(bytes(self._body))


class Streamed:
    """An answer whose body is still arriving. Implements `messages.AsyncStream`. At most `most` bytes of it are read whole."""

    def __init__(
        self,
        connection: Connection,
        *,
        most: int,
        stall: float | None,
        failure: Callable[[Exception], NoAnswer],
        closed: Callable[[Streamed], None],
    ) -> None:
        self._connection = connection
        self._most = most
        self._stall = stall
        self._failure = failure
        self._closed = closed
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._paused = False
        self._over = False
        self._error: Exception | None = None
        self._news: asyncio.Future[None] | None = None
        self.head: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.status = 0
        self.headers: Mapping[str, str] = {}

    def begun(self, status: int, headers: Mapping[str, str]) -> None:
        self.status, self.headers = status, headers
        if not self.head.done():
            self.head.set_result(None)

    def piece(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size > _AHEAD and not self._paused:
            self._paused = True
            self._connection.transport.pause_reading()
        self._wake()

    def ended(self, error: Exception | None) -> None:
        if self._over:
            return
        self._over, self._error = True, error
        if error is not None and not self.head.done():
            self.head.set_exception(error)
        self._wake()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        while True:
            while self._pieces:
                data = self._pieces.popleft()
                self._size -= len(data)
                if self._paused and not self._size:
                    self._paused = False
                    self._connection.transport.resume_reading()
                yield data
            if self._over:
                if self._error is not None:
                    raise self._failure(self._error) from self._error
                return
            self._news = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(self._stall):
                    await self._news
            except TimeoutError as error:
                raise self._failure(error) from error

    async def read(self, *, within: float | None = REQUEST_TIMEOUT) -> bytes:
        try:
            async with asyncio.timeout(within):
                return await self._whole()
        except TimeoutError as error:
            raise self._failure(error) from error

    async def _whole(self) -> bytes:
        body = bytearray()
        async for chunk in self.chunks():
            body += chunk
            if len(body) > self._most:
                raise self._failure(TooLarge(f"more than {self._most} bytes"))
        return bytes(body)

    def close(self) -> None:
        self._connection.abort()
        self._closed(self)
        self.ended(ConnectionAbortedError())

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
