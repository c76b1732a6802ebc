"""A deliberately slow client cannot hold a server of ours for ever, at any stage; one that follows a log may."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable

import pytest

from busy import HANGS, reaches
from kubewright.http import loop, serving, tls
from kubewright.http.messages import Response
from kubewright.http.routes import Request, Route, Streaming
from kubewright.http.serving import Patience

LARGE = b"x" * (32 << 20)
PAUSE = 0.02


class Site:
    """The routes, and the outcome of their streams."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.ended = 0

    def routes(self) -> list[Route]:
        return [
            Route(method="*", pattern="/large", handler=self.large),
            Route(method="GET", pattern="/stream", handler=self.stream),
            Route(method="GET", pattern="/follow", handler=self.follow),
        ]

    async def large(self, _: Request) -> Response:
        return Response(status=200, body=LARGE)

    async def stream(self, _: Request) -> Streaming:
        async def pieces() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"x" * (1 << 20)
            finally:
                self.ended += 1

        return Streaming(chunks=pieces())

    async def follow(self, _: Request) -> Streaming:
        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(3):
                yield b"line\n"
                await asyncio.sleep(2 * self.patience)

        return Streaming(chunks=pieces())


def serve(
    server_pair: tuple[bytes, bytes], client: Callable[[int, float], object], patience: float, *, secure: bool = True
) -> tuple[object, Site]:
    """Run a server with this patience for everything, and return what a client received."""

    async def main() -> tuple[object, Site]:
        site = Site(patience)
        context = tls.server_context(*server_pair) if secure else None
        shown = Patience(**dict.fromkeys(("handshake", "idle", "body", "answer", "piece"), patience))
        server = await serving.serve(site.routes(), host="127.0.0.1", port=0, context=context, patience=shown)
        try:
            async with asyncio.timeout(2 * HANGS):
                return await asyncio.to_thread(client, server.port, patience), site
        finally:
            await server.stop()

    return loop.run(main)


def sees(
    expected: Callable[[object, Site], bool],
    server_pair: tuple[bytes, bytes],
    client: Callable[[int, float], object],
    *,
    secure: bool = True,
) -> None:
    """Require that a client receives what is expected.

    If necessary from a server with more patience: a short one may end before the client has got that far.
    """

    def attempt(patience: float) -> bool:
        try:
            return expected(*serve(server_pair, client, patience, secure=secure))
        except OSError:  # dropped before
            return False

    reaches(attempt)


def opened(port: int, *, secure: bool = True) -> socket.socket:
    plain = socket.create_connection(("127.0.0.1", port))
    plain.settimeout(HANGS)
    return tls.client_context(None, verify=False).wrap_socket(plain) if secure else plain


def drained(sock: socket.socket) -> int:
    """Read until the server has closed the connection; return how many bytes it sent."""
    count = 0
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while piece := sock.recv(1 << 20):
            count += len(piece)
    return count


def dripped(sock: socket.socket, content: bytes) -> bytes:
    """Send a byte now and then until the server closes the connection; return what it sent."""
    end = time.monotonic() + HANGS
    said = b""
    sock.settimeout(PAUSE)
    for byte in content:
        assert time.monotonic() < end, "the server goes on listening"
        try:
            sock.sendall(bytes([byte]))
            piece = sock.recv(65536)
            if not piece:
                return said
            said += piece
        except TimeoutError:
            pass
        except OSError:
            return said
    raise AssertionError("the server took it all")


def test_clients_without_a_handshake_are_disconnected(server_pair: tuple[bytes, bytes]) -> None:
    def client(port: int, _: float) -> int:
        with opened(port, secure=False) as sock:
            return drained(sock)

    sees(lambda sent, _: sent == 0, server_pair, client)


@pytest.mark.parametrize("secure", [True, False])
def test_clients_with_a_slow_head_are_disconnected(server_pair: tuple[bytes, bytes], secure: bool) -> None:
    def client(port: int, _: float) -> bytes:
        with opened(port, secure=secure) as sock:
            return dripped(sock, b"GET /large HTTP/1.1\r\nhost: a\r\nx-long: " + b"x" * 7000)

    sees(lambda said, _: said == b"", server_pair, client, secure=secure)


def test_clients_with_a_slow_second_head_are_disconnected(server_pair: tuple[bytes, bytes]) -> None:
    def client(port: int, _: float) -> tuple[bytes, bytes]:
        with opened(port) as sock:
            sock.sendall(b"GET /nothing HTTP/1.1\r\nhost: a\r\n\r\n")
            return sock.recv(65536), dripped(sock, b"GET /large HTTP/1.1\r\nhost: a\r\nx-long: " + b"x" * 7000)

    sees(lambda said, _: b"404" in said[0] and b"HTTP/1.1" not in said[1], server_pair, client)


def test_clients_with_a_slow_body_get_an_error(server_pair: tuple[bytes, bytes]) -> None:
    def client(port: int, _: float) -> bytes:
        with opened(port) as sock:
            sock.sendall(b"POST /large HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n")
            return dripped(sock, b"x" * 100_000)

    sees(lambda said, _: said.startswith(b"HTTP/1.1 408"), server_pair, client)


@pytest.mark.parametrize("path", ["/large", "/stream"])
def test_clients_that_do_not_read_are_disconnected_and_the_stream_ended(server_pair: tuple[bytes, bytes], path: str) -> None:
    def client(port: int, patience: float) -> int:
        with opened(port) as sock:
            sock.sendall(f"GET {path} HTTP/1.1\r\nhost: a\r\n\r\n".encode())
            time.sleep(5 * patience)
            return drained(sock)

    sees(lambda sent, site: 0 < sent < len(LARGE) and site.ended == (path == "/stream"), server_pair, client)


def test_clients_that_follow_a_slow_stream_stay_connected(server_pair: tuple[bytes, bytes]) -> None:
    def client(port: int, _: float) -> bytes:
        with opened(port) as sock:
            sock.sendall(b"GET /follow HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            said = b""
            while piece := sock.recv(65536):
                said += piece
            return said

    sees(lambda said, _: said.count(b"line\n") == 3, server_pair, client)
