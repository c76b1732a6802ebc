"""Small HTTPS servers and the control socket: routes in, values out. aiohttp does the work.

A route is a method, a path pattern (`/containerLogs/{namespace}/{pod}/{container}`) and a handler that takes a `Request` and returns a
`Response` or a `Streaming`. The handler learns who calls: by the verified client certificate, or on a Unix socket by user id.
It is cancelled in the middle when its caller goes away; what has to be carried through needs a task of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from aiohttp import web

from kubewright.base.errors import HostError, KubewrightError, PortInUse, StatusError
from kubewright.base.records import dataclass, field
from kubewright.http.messages import MIB, Response
from kubewright.http.tls import Peer, peer_of
from kubewright.http.unix import checked_directory, reachable

GRACE: Final = 1.0
"""Seconds that requests in flight get when a server stops."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request to a server of ours. Header names are lower case."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)
    """What the braces of the route's pattern matched."""
    body: bytes = b""
    peer: Peer | None = None
    uid: int | None = None
    """The user at the other end of a Unix socket."""


@dataclass(frozen=True, kw_only=True)
class Streaming:
    """An answer that is written as it comes. The iterator is closed when the caller goes away."""

    chunks: AsyncIterator[bytes]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Awaitable[Response | Streaming]]


@dataclass(frozen=True, kw_only=True)
class Route:
    """One row of what a server answers. `method` may be `*`."""

    method: str
    pattern: str
    handler: Handler


class Server:
    """A server that listens. `port` is the real one where 0 was asked for."""

    def __init__(self, runner: web.AppRunner, *, port: int = 0, path: Path | None = None) -> None:
        self._runner = runner
        self._path = path
        self._inode = path.lstat().st_ino if path is not None else 0
        self.port = port

    async def stop(self) -> None:
        """Stop listening, let requests in flight finish for a moment, close every connection, remove the socket. Idempotent."""
        await self._runner.cleanup()
        if self._path is not None:
            _remove(self._path, self._inode)


async def serve(routes: Sequence[Route], *, host: str, port: int, context: ssl.SSLContext | None = None, max_body: int = MIB) -> Server:
    """Listen on one address, with TLS where a context is given, and return once connections are accepted.

    Raises PortInUse when the port is taken, HostError when the address cannot be used.
    """
    runner = _runner(routes, max_body=max_body, allowed_uid=None)
    await runner.setup()
    site = web.TCPSite(runner, host, port, ssl_context=context, reuse_address=True)
    try:
        await site.start()
    except OSError as error:
        await runner.cleanup()
        if error.errno == 98:  # EADDRINUSE
            raise PortInUse(f"port {port} of {host} is taken", remedy="stop what listens there, or use another port") from error
        raise HostError(f"cannot listen on {host} port {port}", detail=error.strerror or str(error)) from error
    return Server(runner, port=runner.addresses[0][1])


async def serve_unix(routes: Sequence[Route], *, path: Path, max_body: int = MIB) -> Server:
    """Listen on a Unix socket that only this user can reach: mode 0600, in a directory of mode 0700, every caller's user id checked.

    A socket that was left behind is replaced; the caller holds a lock that keeps two servers apart.
    Raises HostError where the directory is not ours alone.
    """
    checked_directory(path.parent)
    runner = _runner(routes, max_body=max_body, allowed_uid=os.geteuid())
    await runner.setup()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _bind(sock, path)
        await web.SockSite(runner, sock).start()
    except OSError as error:
        sock.close()
        await runner.cleanup()
        raise HostError(f"cannot listen on {path}", detail=error.strerror or str(error)) from error
    return Server(runner, path=path)


def _remove(path: Path, inode: int) -> None:
    """Remove our socket; one that a later server has put in its place stays."""
    with contextlib.suppress(FileNotFoundError):
        if path.lstat().st_ino == inode:
            path.unlink()


def _bind(sock: socket.socket, path: Path) -> None:
    with reachable(path) as short:
        path.unlink(missing_ok=True)
        # bind() takes the mode from the socket itself: there is no moment with a wider one.
        os.fchmod(sock.fileno(), 0o600)
        sock.bind(short)


def _runner(routes: Sequence[Route], *, max_body: int, allowed_uid: int | None) -> web.AppRunner:
    application = web.Application(client_max_size=max_body)
    for route in routes:
        application.router.add_route(route.method, route.pattern, _adapter(route.handler, allowed_uid=allowed_uid))
    return web.AppRunner(application, access_log=None, shutdown_timeout=GRACE, handle_signals=False, handler_cancellation=True)


def _adapter(handler: Handler, *, allowed_uid: int | None) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def adapt(request: web.Request) -> web.StreamResponse:
        uid = _uid(request.transport) if allowed_uid is not None else None
        if allowed_uid is not None and uid not in {allowed_uid, 0}:
            return web.Response(status=403, text="this socket is another user's\n")
        try:
            answer = await handler(await _value(request, uid))
        except StatusError as error:
            return web.Response(status=error.code, text=f"{error}\n")
        except KubewrightError as error:
            return web.Response(status=500, text=f"{error}\n")
        if isinstance(answer, Response):
            return web.Response(status=answer.status, headers=dict(answer.headers), body=answer.body)
        return await _stream(request, answer)

    return adapt


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


async def _stream(request: web.Request, answer: Streaming) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=dict(answer.headers))
    try:
        await response.prepare(request)
        async for chunk in answer.chunks:
            await response.write(chunk)
        await response.write_eof()
    except ConnectionError:
        pass  # the caller has seen enough
    finally:
        close = getattr(answer.chunks, "aclose", None)
        if close is not None:
            await close()
    return response


def _uid(transport: asyncio.BaseTransport | None) -> int | None:
    """Ask the kernel who is at the other end of a Unix socket (SO_PEERCRED: pid, uid, gid)."""
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is None:
        return None
    _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(uid)
