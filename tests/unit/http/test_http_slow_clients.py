"""A client that is slow on purpose does not hold a server of ours for ever, at whatever stage; one that follows a log may."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable

import pytest

from kubewright.http import loop, serving, tls
from kubewright.http.messages import Response
from kubewright.http.routes import Request, Route, Streaming
from kubewright.http.serving import Patience

SHORT = Patience(handshake=0.2, idle=0.2, body=0.2, answer=0.2, piece=0.2)
HANGS = 20.0
LARGE = b"x" * (32 << 20)
PAUSE = 0.02


class Site:
    """The routes, and what became of their streams."""

    def __init__(self) -> None:
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
                await asyncio.sleep(2 * SHORT.piece)

        return Streaming(chunks=pieces())


def serve(server_pair: tuple[bytes, bytes], client: Callable[[int], object], *, secure: bool = True) -> tuple[object, Site]:
    async def main() -> tuple[object, Site]:
        site = Site()
        context = tls.server_context(*server_pair) if secure else None
        server = await serving.serve(site.routes(), host="127.0.0.1", port=0, context=context, patience=SHORT)
        try:
            async with asyncio.timeout(HANGS + 5):
                return await asyncio.to_thread(client, server.port), site
        finally:
            await server.stop()

    return loop.run(main)


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
    """Send a byte now and then until the server closes the connection; return what it said."""
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


def test_who_never_shakes_hands_is_dropped(server_pair: tuple[bytes, bytes]) -> None:
    def client(port: int) -> int:
        with opened(port, secure=False) as sock:
            return drained(sock)

    assert serve(server_pair, client)[0] == 0


@pytest.mark.parametrize("secure", [True, False])
def test_who_drips_a_head_is_dropped(server_pair: tuple[bytes, bytes], secure: bool) -> None:
    def client(port: int) -> bytes:
        with opened(port, secure=secure) as sock:
            return dripped(sock, b"GET /large HTTP/1.1\r\nhost: a\r\nx-long: " + b"x" * 7000)

    assert serve(server_pair, client, secure=secure)[0] == b""


def test_who_drips_the_head_of_a_second_request_is_dropped(server_pair: tuple[bytes, bytes]) -> None:
    def client(port: int) -> bytes:
        with opened(port) as sock:
            sock.sendall(b"GET /nothing HTTP/1.1\r\nhost: a\r\n\r\n")
            assert b"404" in sock.recv(65536)
            return dripped(sock, b"GET /large HTTP/1.1\r\nhost: a\r\nx-long: " + b"x" * 7000)

    assert b"HTTP/1.1" not in serve(server_pair, client)[0]


def test_who_drips_a_body_is_told_so(server_pair: tuple[bytes, bytes]) -> None:
    def client(port: int) -> bytes:
        with opened(port) as sock:
            sock.sendall(b"POST /large HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n")
            return dripped(sock, b"x" * 100_000)

    assert serve(server_pair, client)[0].startswith(b"HTTP/1.1 408")


def test_who_does_not_read_an_answer_is_dropped(server_pair: tuple[bytes, bytes]) -> None:
    def client(port: int) -> int:
        with opened(port) as sock:
            sock.sendall(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n")
            time.sleep(5 * SHORT.answer)
            return drained(sock)

    assert 0 < serve(server_pair, client)[0] < len(LARGE)


def test_who_does_not_read_a_stream_is_dropped_and_its_source_ended(server_pair: tuple[bytes, bytes]) -> None:
    def client(port: int) -> int:
        with opened(port) as sock:
            sock.sendall(b"GET /stream HTTP/1.1\r\nhost: a\r\n\r\n")
            time.sleep(5 * SHORT.answer)
            return drained(sock)

    sent, site = serve(server_pair, client)
    assert sent > 0
    assert site.ended == 1


def test_who_follows_what_comes_slowly_is_not_dropped(server_pair: tuple[bytes, bytes]) -> None:
    def client(port: int) -> bytes:
        with opened(port) as sock:
            sock.sendall(b"GET /follow HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            said = b""
            while piece := sock.recv(65536):
                said += piece
            return said

    assert serve(server_pair, client)[0].count(b"line\n") == 3
