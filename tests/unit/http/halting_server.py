"""A server that serves each connection up to a stage that a test chooses and then halts: it sends nothing more, closes, or resets the connection."""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import struct
import threading
from typing import Final

HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n"
PROXY_STAGES: Final = ("proxy accepted", "proxy greeting", "proxy head")
TLS_STAGES: Final = ("accepted", "greeting", "hello", "handshake")
STAGES: Final = ("request", "head", "body", "answer")
"""The stages of a connection: each is the last thing that happens before the server halts."""
ENDS: Final = ("silent", "closed", "reset")


class HaltingServer:
    """Listens on loopback, each connection in its own thread. With `proxy` it first answers CONNECT, over TLS if that is a context."""

    def __init__(
        self, context: ssl.SSLContext | None, *, proxy: ssl.SSLContext | bool = False, stage: str = "answer", end: str = "silent"
    ) -> None:
        self.context = context
        self.proxy = proxy
        self.stage, self.end = stage, end
        self.reached = threading.Event()
        self._lock = threading.Lock()
        self._open: dict[int, socket.socket] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        with self._lock:
            for sock in self._open.values():
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open[id(sock)] = sock
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        inner = _Talk(sock)
        try:
            with contextlib.suppress(OSError):
                self._go(inner, self.stage)
            self.reached.set()
            with contextlib.suppress(OSError):
                if self.end == "reset":
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                elif self.end == "silent":
                    while inner.received():
                        pass
        finally:
            with self._lock:
                del self._open[id(sock)]
                sock.close()

    def _go(self, talk: _Talk, stage: str) -> None:
        """Serve a connection up to the stage."""
        if self.proxy:
            if stage == "proxy accepted":
                return None
            if isinstance(self.proxy, ssl.SSLContext):
                talk.secure(self.proxy)
            if stage == "proxy greeting":
                return talk.say(b"220 mail.example ESMTP\r\n")
            talk.head()
            if stage == "proxy head":
                return talk.say(b"HTTP/1.1 200 OK\r\nx-")
            talk.say(b"HTTP/1.1 200 OK\r\n\r\n")
        if stage == "accepted":
            return None
        if stage == "greeting":
            return talk.say(b"SSH-2.0-OpenSSH_9.2\r\n")
        if self.context is not None:
            talk.secure(self.context, hello_only=stage == "hello")
        if stage in TLS_STAGES:
            return None
        while stage == "answer":
            talk.head()
            talk.say(HEAD + b"\r\n0123456789")
            self.reached.set()
        talk.head()
        return talk.say({"request": b"", "head": HEAD, "body": HEAD + b"\r\n12345"}[stage])


class _Talk:
    """One end of a connection, with its layers of TLS so far."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._layers: list[tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]] = []

    def secure(self, context: ssl.SSLContext, *, hello_only: bool = False) -> None:
        """Shake hands; with `hello_only` until the first flight is out."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_side=True)
        below = len(self._layers)
        for flight in itertools.count():
            done = False
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.do_handshake()
                done = True
            self.say(outgoing.read(), layers=below)
            if done:
                break
            if hello_only and flight:
                return
            incoming.write(self._more(below))
        self._layers.append((tls, incoming, outgoing))

    def say(self, data: bytes, *, layers: int | None = None) -> None:
        for tls, _, outgoing in reversed(self._layers[:layers]):
            tls.write(data)
            data = outgoing.read()
        self._sock.sendall(data)

    def head(self) -> None:
        """Read a request that has no body."""
        data = b""
        while not data.endswith(b"\r\n\r\n"):
            data += self._more(len(self._layers))

    def received(self) -> bool:
        """Wait for any input, and return whether the client is still connected."""
        return bool(self._sock.recv(65536))

    def _more(self, layers: int) -> bytes:
        """Return the next bytes, decrypted through this many layers of TLS. Raises OSError at the end."""
        if layers:
            tls, incoming, _ = self._layers[layers - 1]
            while True:
                try:
                    data = tls.read(65536)
                    break
                except ssl.SSLWantReadError:
                    incoming.write(self._more(layers - 1))
        else:
            data = self._sock.recv(65536)
        if not data:
            raise ConnectionResetError
        return data
