"""A server that sends one byte now and then, from a stage of a connection that a test chooses."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from pathlib import Path

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
ENDLESS = b"x" * 100_000
PAUSE = 0.02
"""Seconds between two bytes: well below every timeout of the tests, so that no wait for one byte ends by itself."""

STAGES = ("handshake", "head", "interim answers", "body", "chunks", "trailers", "request body")


def said(stage: str) -> tuple[bytes, bytes]:
    """What is sent at once after the handshake, and what is sent slowly then."""
    return {
        "head": (HEAD, b"x-long: " + ENDLESS),
        "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 4000),
        "body": (HEAD + b"content-length: 100000\r\n\r\n", ENDLESS),
        "chunks": (HEAD + b"transfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 20_000),
        "trailers": (HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n", b"x-trailer: x\r\n" * 7000),
    }[stage]


class DrippingServer:
    """Listens on loopback, or on a Unix socket, and serves one connection after the other.

    It continues to send bytes until it is stopped, so that only a deadline of the client ends a request. `proxy`
    makes it a proxy whose answer to CONNECT is sent slowly.
    """

    def __init__(self, stage: str, *, context: ssl.SSLContext | None = None, path: Path | None = None, proxy: bool = False) -> None:
        self.stage = stage
        self.context = context
        self.proxy = proxy
        self.dripped = 0
        self._stopping = threading.Event()
        if path is None:
            self._listener = socket.create_server(("127.0.0.1", 0))
            self.port = self._listener.getsockname()[1]
        else:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(path))
            self._listener.listen()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{'https' if self.context else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self) -> DrippingServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)

    def _run(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(OSError), self._listener.accept()[0] as connection:
                self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        if self.stage == "handshake":
            self._drip(connection, self._hello(connection))
            return
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain = self.context is None or self.proxy
        with contextlib.nullcontext(connection) if plain else self.context.wrap_socket(connection, server_side=True) as sock:
            if self.stage == "request body":
                while not self._stopping.wait(PAUSE) and sock.recv(1):
                    self.dripped += 1
                return
            sock.recv(65536)
            first, rest = said(self.stage)
            sock.sendall(first)
            self._drip(sock, rest)

    def _hello(self, connection: socket.socket) -> bytes:
        """Return the first flight of a server's handshake; without TLS, something like its first bytes."""
        if self.context is None:
            return b"\x16\x03\x03\x40\x00" + ENDLESS
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self.context.wrap_bio(incoming, outgoing, server_side=True)
        while not outgoing.pending:
            incoming.write(connection.recv(65536))
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.do_handshake()
        return outgoing.read()

    def _drip(self, sock: socket.socket, content: bytes) -> None:
        for byte in content:
            sock.sendall(bytes([byte]))
            self.dripped += 1
            if self._stopping.wait(PAUSE):
                return
