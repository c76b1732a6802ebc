"""What asynchronous transports share: requests are bounded in time, traced, awaited by `drain`, and fail with one error type.

`lean` implements sending and receiving.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import ClassVar, Final, Protocol

from kubewright.http import failures, tracing
from kubewright.http.failures import NoAnswer, Reason
from kubewright.http.messages import REQUEST_TIMEOUT, AsyncStream, Headers, Limits, Response
from kubewright.http.proxies import origin

DRAIN: Final = 10.0
"""Seconds that requests in flight get to finish when a transport is drained."""


class OpenStream(AsyncStream, Protocol):
    """An answer that is still arriving over its own connection."""

    def close(self) -> None:
        """Give up the connection. Idempotent."""
        ...


class Exchanges:
    """Connections to one server with one identity; belongs to one event loop.

    Implements most of `messages.AsyncTransport`.

    `base` is `https://host:port`, perhaps with a path that is put before every target. Opens nothing before the first
    request.
    """

    troubles: ClassVar[tuple[type[Exception], ...]] = (OSError, ValueError)
    """The library's exceptions that mean that there is no usable answer."""

    def __init__(self, base: str, *, limits: Limits | None = None) -> None:
        _, self._server, self._prefix = origin(base)
        self._limits = limits or Limits()
        self._closed = False
        self._in_flight = 0
        self._idle: asyncio.Event | None = None

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
            async with asyncio.timeout(timeout):
                return await self._exchanged(method, target, headers, body, trace)
        except self.troubles as error:
            failure = self._failure(error, method, target)
            trace.failed(failure.what)
            raise failure from error
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
    ) -> AsyncIterator[AsyncStream]:
        trace = tracing.begin(method, f"{self._server}{self._prefix}{target}")
        try:
            async with asyncio.timeout(timeout):
                streamed = await self._begun(method, target, headers, body, stall)
        except self.troubles as error:
            failure = self._failure(error, method, target)
            trace.failed(failure.what)
            raise failure from error
        trace.answered(streamed.status)
        try:
            yield streamed
        finally:
            streamed.close()

    async def drain(self) -> None:
        try:
            if self._in_flight:
                self._idle = asyncio.Event()
                with suppress(TimeoutError):  # later data is cut off, as a time-out would
                    await asyncio.wait_for(self._idle.wait(), DRAIN)
        finally:  # nothing refers to these connections any more
            await self.close()

    async def close(self) -> None:
        raise NotImplementedError

    async def _exchanged(self, method: str, target: str, headers: Headers | None, body: bytes | None, trace: tracing.Trace) -> Response:
        """Send a request and read the whole answer; report the status to the trace."""
        raise NotImplementedError

    async def _begun(self, method: str, target: str, headers: Headers | None, body: bytes | None, stall: float | None) -> OpenStream:
        """Send a request and return its answer once its head is there."""
        raise NotImplementedError

    def _reason(self, error: Exception) -> tuple[Reason, str]:
        return failures.reason_of(error) or (Reason.MALFORMED, type(error).__name__)

    def _failure(self, error: Exception, method: str, target: str) -> NoAnswer:
        if self._closed:
            return failures.no_answer(self._server, method, target, Reason.CLOSED)
        reason, detail = self._reason(error)
        return failures.no_answer(self._server, method, target, reason, detail=detail)

    def _too_large(self, method: str, target: str) -> NoAnswer:
        return failures.no_answer(self._server, method, target, Reason.TOO_LARGE, detail=f"more than {self._limits.body} bytes")
