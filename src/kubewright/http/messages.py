"""The interface of both transports: requests, answers, limits, timeouts, and the classes that clients are written against."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Final, Generic, Protocol, TypeVar

from kubewright.base.records import dataclass, field

MIB: Final = 1 << 20
REQUEST_TIMEOUT: Final = 10.0
"""Seconds for one request, body included; the kubelet's timeout for heartbeats."""
CONNECT_TIMEOUT: Final = 10.0
"""Seconds to open a connection, handshake included; client-go's limit for a handshake (transport/cache.go)."""
CHUNK: Final = 64 * 1024

Headers = Mapping[str, str | tuple[str, ...]]
"""Headers of a request; a tuple is a header that is sent once per value."""


def header_pairs(headers: Headers) -> list[tuple[str, str]]:
    """Return one pair for each header line."""
    return [(name, value) for name, values in headers.items() for value in ((values,) if isinstance(values, str) else values)]


@dataclass(frozen=True)
class Request:
    """One request. `target` is a path with its query, already encoded."""

    method: str
    target: str
    headers: Headers = field(default_factory=dict, kw_only=True)
    body: bytes | None = field(default=None, kw_only=True)


@dataclass(frozen=True, kw_only=True)
class Response:
    """An answer with its complete body. Header names are lower case; of a repeated header the last value counts."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a transport.

    `body` is the largest body in bytes that is read whole; `connections` are kept open per transport.
    """

    body: int = 64 * MIB
    connections: int = 8
    connect: float = CONNECT_TIMEOUT


class Stream(Protocol):
    """An answer whose body arrives piece by piece."""

    status: int
    headers: Mapping[str, str]

    def chunks(self) -> Iterator[bytes]:
        """Yield the body as it arrives. Raises NoAnswer when it is cut short, stalls or grows beyond its bound."""
        ...

    def read(self) -> bytes:
        """Return the complete rest of the body."""
        ...


class AsyncStream(Protocol):
    """The asynchronous form of `Stream`."""

    status: int
    headers: Mapping[str, str]

    def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives. Raises NoAnswer when it is cut short, stalls or grows beyond its bound."""
        ...

    async def read(self, *, within: float | None = REQUEST_TIMEOUT) -> bytes:
        """Return the complete rest of the body; the time limit is in seconds. Raises NoAnswer for one beyond `Limits.body`."""
        ...


ResponseT = TypeVar("ResponseT")
StreamT = TypeVar("StreamT")


class Sender(ABC, Generic[ResponseT, StreamT]):
    """Sends requests to one server. `ResponseT` is a Response, or an awaitable of one.

    Never follows a redirect, never retries, and has no credentials except its client certificate.
    """

    @abstractmethod
    def exchange(self, request: Request, /, *, timeout: float | None = REQUEST_TIMEOUT) -> ResponseT:
        """Send one request and read the whole answer within `timeout` seconds.

        Raises NoAnswer if there is no usable one; every status code is an answer.
        """

    @abstractmethod
    def open(self, request: Request, /, *, timeout: float | None = REQUEST_TIMEOUT, stall: float | None = None) -> StreamT:
        """Send one request; `timeout` bounds the wait for the status line, `stall` the wait between two pieces of the body."""

    def request(
        self,
        method: str,
        target: str,
        /,
        *,
        headers: Headers | None = None,
        body: bytes | None = None,
        timeout: float | None = REQUEST_TIMEOUT,
    ) -> ResponseT:
        """Do what `exchange` does."""
        return self.exchange(Request(method, target, headers=headers or {}, body=body), timeout=timeout)

    def stream(
        self,
        method: str,
        target: str,
        /,
        *,
        headers: Headers | None = None,
        body: bytes | None = None,
        timeout: float | None = REQUEST_TIMEOUT,
        stall: float | None = None,
    ) -> StreamT:
        """Do what `open` does."""
        return self.open(Request(method, target, headers=headers or {}, body=body), timeout=timeout, stall=stall)


class Transport(Sender[Response, AbstractContextManager[Stream]]):
    """The synchronous form; thread-safe."""

    @abstractmethod
    def close(self) -> None:
        """Close every connection. Idempotent."""


class AsyncTransport(Sender[Coroutine[Any, Any, Response], AbstractAsyncContextManager[AsyncStream]]):
    """The asynchronous form; belongs to one event loop."""

    @abstractmethod
    async def drain(self) -> None:
        """Let requests in flight finish, then close every connection; streams are cut."""

    @abstractmethod
    async def close(self) -> None:
        """Close every connection at once. Idempotent."""
