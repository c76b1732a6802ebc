"""A server that answers exactly the bytes a test gives it, with TLS or without, each connection in its own thread."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Seen:
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    common_name: str | None
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Raw:
    """Bytes to send, pause between pieces, then close or wait for the next request."""

    pieces: tuple[bytes, ...]
    pause: float = 0.0
    close: bool = False
    delay: float = 0.0


def answer(status: int = 200, body: bytes = b"", *, headers: Mapping[str, str] | None = None, **options: object) -> Raw:
    lines = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
    head = f"HTTP/1.1 {status} Reason\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\n"
    return Raw((head.encode() + body,), **options)


def json_answer(value: object, status: int = 200, **options: object) -> Raw:
    return answer(status, json.dumps(value).encode(), **options)


def lines_answer(*events: object, close: bool = False, pause: float = 0.0, ending: bool = True) -> Raw:
    """A chunked answer of one JSON line per chunk, like that of a watch."""
    pieces = [b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"]
    for event in events:
        line = event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n"
        pieces.append(f"{len(line):x}\r\n".encode() + line + b"\r\n")
    if ending:
        pieces.append(b"0\r\n\r\n")
    return Raw(tuple(pieces), pause=pause, close=close)


@dataclass
class ScriptedServer:
    context: ssl.SSLContext | None = None
    handler: Callable[[Seen], Raw] = lambda _: json_answer({})
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"{'https' if self.context else 'http'}://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in list(self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, plain: socket.socket) -> None:
        sock = plain
        try:
            if self.context is not None:
                sock = self.context.wrap_socket(plain, server_side=True)
            self.connections += 1
            self._open.add(sock)
            with sock.makefile("rb") as reader:
                while self._one(sock, reader):
                    pass
        except OSError:
            pass
        finally:
            self._open.discard(sock)
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _one(self, sock: socket.socket, reader: object) -> bool:
        first = reader.readline().decode("latin-1")
        if not first.endswith((" HTTP/1.1\r\n", " HTTP/1.0\r\n")):
            return False
        lines = []
        while (line := reader.readline().decode().strip()) != "":
            lines.append(line)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = reader.read(int(headers.get("content-length", "0")))
        if headers.get("transfer-encoding") == "chunked":
            while size := int(reader.readline(), 16):
                body += reader.read(size)
                reader.readline()
            reader.readline()
        method, target, _ = first.split(" ", 2)
        peer = sock.getpeercert() if isinstance(sock, ssl.SSLSocket) else None
        names = dict(pair for rdn in (peer or {}).get("subject", ()) for pair in rdn)
        request = Seen(method, target, headers, body, names.get("commonName"), tuple(lines))
        self.seen.append(request)
        raw = self.handler(request)
        self._stopping.wait(raw.delay)
        for number, piece in enumerate(raw.pieces):
            if number and raw.pause:
                self._stopping.wait(raw.pause)
            sock.sendall(piece)
        return not raw.close
