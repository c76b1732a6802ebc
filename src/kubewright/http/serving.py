"""Small HTTPS servers and the control socket. aiohttp does the work.

Importing this takes 0.2 s, most of it for aiohttp; `routes` does not need it, and a process that has to start quickly
can listen (`listening`) before it serves. Handlers identify clients by the verified client certificate, or by user id
on a Unix socket. A handler is cancelled when its client disconnects; work that must be completed needs its own task.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from kubewright.base.errors import KubewrightError, StatusError
from kubewright.base.records import dataclass
from kubewright.http.accepting import Acceptor
from kubewright.http.listening import listen, listen_unix, users
from kubewright.http.messages import CHUNK, MIB, Response
from kubewright.http.routes import Handler, Request, Route
from kubewright.http.tls import peer_of
from kubewright.http.unix import peer_user

GRACE: Final = 1.0
"""Seconds that requests in flight get when a server stops."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a client may take, in seconds, before its connection is closed, so that slow clients cannot exhaust a server.

    There is no limit for producing an answer: a log may be followed for days.
    """

    handshake: float = 10.0
    idle: float = 120.0
    """For the head of a request, from the beginning of the connection or from the previous answer.

    This is longer than clients keep idle connections (90 s: Go's default transport), so that no client sends a
    request on a connection that is being closed.
    """
    body: float = 30.0
    answer: float = 30.0
    """To receive a complete answer."""
    piece: float = 4 * 3600.0
    """To receive one chunk of a stream: a user may page through a log.

    The kubelet's server has the same limit (pkg/kubelet/server).
    """


PATIENCE: Final = Patience()
_log = logging.getLogger(__name__)
_log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))
"""The log of aiohttp, without requests that are not HTTP: the client gets 400, and anyone could fill the log with them."""
_LINGERING: Final = 10.0
"""Seconds for which a refused body is read, so that the client can see the refusal."""


class Server:
    """A listening server. `port` is the actual port if 0 was requested."""

    def __init__(self, runner: web.AppRunner, acceptor: Acceptor, *, port: int = 0, path: Path | None = None) -> None:
        self._runner = runner
        self._acceptor = acceptor
        self._path = path
        self._inode = path.lstat().st_ino if path is not None else 0
        self.port = port

    async def stop(self) -> None:
        """Stop listening, let requests in flight finish for a moment, close every connection, remove the socket. Idempotent."""
        await self._acceptor.stop()
        await self._runner.cleanup()
        if self._path is not None:
            _remove(self._path, self._inode)


async def serve(
    routes: Sequence[Route],
    *,
    host: str,
    port: int,
    context: ssl.SSLContext | None = None,
    patience: Patience = PATIENCE,
) -> Server:
    """Listen on one address, with TLS if a context is given, and return once connections are accepted.

    Raises PortInUse if the port is taken, HostError if the address cannot be used.
    """
    return await _serve(routes, listen(host, port), context=context, patience=patience)


async def serve_socket(routes: Sequence[Route], sock: socket.socket) -> Server:
    """Serve clients of a socket that is already listening, including those that have connected before.

    The socket stays open and belongs to its owner when the server stops: clients then wait in the kernel's queue for
    the next server.
    """
    return await _serve(routes, sock.dup())


async def serve_unix(routes: Sequence[Route], *, path: Path, owner: int | None = None) -> Server:
    """Listen on a Unix socket that only this user can reach: mode 0600, in a directory of mode 0700; every caller's user id is checked.

    With an `owner`, the socket belongs to this other user, who may use it too, and the directory may have mode 0711.
    A leftover socket is replaced; the caller holds a lock that prevents a second server. Raises HostError if other
    users have access to the directory.
    """
    return await _serve(routes, listen_unix(path, owner=owner), path=path, allowed=users(owner))


async def _serve(
    routes: Sequence[Route],
    sock: socket.socket,
    *,
    context: ssl.SSLContext | None = None,
    patience: Patience = PATIENCE,
    path: Path | None = None,
    allowed: frozenset[int] | None = None,
) -> Server:
    acceptor = Acceptor(context=context, handshake=patience.handshake)
    application = web.Application(client_max_size=MIB)
    for route in routes:
        handler = _adapter(route.handler, allowed=allowed, patience=patience, streaming=acceptor.streaming)
        application.router.add_route(route.method, route.pattern, handler)
    runner = web.AppRunner(
        application,
        access_log=None,
        logger=_log,
        shutdown_timeout=GRACE,
        handle_signals=False,
        handler_cancellation=True,
        keepalive_timeout=patience.idle,
        lingering_time=min(_LINGERING, patience.body),
    )
    await runner.setup()
    assert runner.server is not None
    acceptor.start(sock, runner.server)
    return Server(runner, acceptor, port=0 if path is not None else sock.getsockname()[1], path=path)


def _remove(path: Path, inode: int) -> None:
    """Remove our socket, but not one that a later server has put in its place."""
    with contextlib.suppress(FileNotFoundError):
        if path.lstat().st_ino == inode:
            path.unlink()


def _adapter(
    handler: Handler,
    *,
    allowed: frozenset[int] | None,
    patience: Patience,
    streaming: Callable[[asyncio.BaseProtocol], AbstractContextManager[None]],
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def adapt(request: web.Request) -> web.StreamResponse:
        uid = _uid(request.transport) if allowed is not None else None
        if allowed is not None and uid not in allowed:
            return web.Response(status=403, text="this socket is another user's\n")
        try:
            async with asyncio.timeout(patience.body):
                value = await _value(request, uid)
        except TimeoutError:
            late = web.Response(status=408, text="the body of the request did not come in time\n")
            late.force_close()
            return late
        try:
            answer = await handler(value)
        except StatusError as error:
            return web.Response(status=error.code, text=f"{error}\n")
        except KubewrightError as error:
            return web.Response(status=500, text=f"{error}\n")
        if isinstance(answer, Response):
            whole = web.StreamResponse(status=answer.status, headers=dict(answer.headers))
            whole.content_length = len(answer.body)
            async with contextlib.aclosing(_pieces(answer.body if request.method != "HEAD" else b"")) as pieces:
                return await _sent(request, whole, pieces, each=None, within=patience.answer)
        streamed = web.StreamResponse(status=answer.status, headers=dict(answer.headers))
        try:
            with streaming(request.protocol):
                return await _sent(request, streamed, answer.chunks, each=patience.piece, within=None)
        finally:
            close = getattr(answer.chunks, "aclose", None)
            if close is not None:
                await close()

    return adapt


async def _pieces(body: bytes) -> AsyncGenerator[bytes, None]:
    for start in range(0, len(body), CHUNK):
        yield body[start : start + CHUNK]


async def _value(request: web.Request, uid: int | None) -> Request:
    transport = request.transport
    return Request(
        method=request.method,
        path=request.path,
        query=dict(request.query),
        headers={name.lower(): value for name, value in request.headers.items()},
        parts=dict(request.match_info),
        body=await request.read() if request.can_read_body else b"",
        peer=peer_of(transport.get_extra_info("ssl_object")) if transport is not None else None,
        uid=uid,
    )


async def _sent(
    request: web.Request, response: web.StreamResponse, chunks: AsyncIterator[bytes], *, each: float | None, within: float | None
) -> web.StreamResponse:
    """Write an answer at the speed of the client: each chunk in at most `each` seconds, or all of it `within` this many seconds."""
    transport = request.transport
    # Writing waits until the kernel has everything: otherwise closing would wait for the rest of the buffer, and
    # while a connection closes, the TLS of both event loops asks a protocol to wait that it has detached already.
    if transport is not None and not transport.is_closing():
        transport.set_write_buffer_limits(high=0)
    try:
        async with asyncio.timeout(within):
            await response.prepare(request)
            await _write(response, chunks, each=each)
    except (ConnectionError, TimeoutError):
        # the client has seen enough, or does not read: drop the rest
        if transport is not None:
            transport.abort()
    return response


async def _write(response: web.StreamResponse, chunks: AsyncIterator[bytes], *, each: float | None) -> None:
    async for chunk in chunks:
        async with asyncio.timeout(each):
            await response.write(chunk)
    async with asyncio.timeout(each):
        await response.write_eof()


def _uid(transport: asyncio.BaseTransport | None) -> int | None:
    """Return the user id of the peer of a Unix socket."""
    sock = transport.get_extra_info("socket") if transport is not None else None
    return None if sock is None else peer_user(sock)
