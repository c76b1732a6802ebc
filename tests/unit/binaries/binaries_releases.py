"""A release host for tests: real HTTPS on loopback, real certificates, and all faults that a download can have."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import io
import socket
import ssl
import tarfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import binaries_programs as programs
import trustme

from busy import HANGS
from kubewright.http.sync import Downloads as Web
from kubewright.http.sync import Streamed
from kubewright.http.tls import client_context

ETCD = f"etcd-v3.6.8-linux-{programs.NATIVE}"
KUBERNETES_PATH = f"/dl.k8s.io/release/v1.36.3/bin/linux/{programs.NATIVE}/"
ETCD_PATH = "/github.com/etcd-io/etcd/releases/download/v3.6.8/"


def archive(members: dict[str, bytes]) -> bytes:
    """Return a .tar.gz with some files, like those of a release."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Behaviour:
    """The response for one path.

    `cut` sends this many bytes and closes, `stall` sends this many and nothing more; each this many `times`.
    """

    body: bytes = b""
    status: int = 200
    location: str = ""
    cut: int = -1
    stall: int = -1
    times: int = 1_000_000
    ranges: bool = True


@dataclass
class Releases:
    """The host's files by path (the name of the upstream host first), and the received requests."""

    files: dict[str, Behaviour] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    port: int = 0
    authority: trustme.CA = field(default_factory=trustme.CA)
    leaving: threading.Event = field(default_factory=threading.Event)

    def release(self, *names: str, prefix: str = "", checksums: bool = True) -> None:
        """Publish programs, and their checksum files."""
        for name in names:
            if name in {"etcd", "etcdctl"}:
                body = archive({f"{ETCD}/README.md": b"hello", f"{ETCD}/etcd": programs.program("etcd")})
                self._publish(f"{prefix}{ETCD_PATH}{ETCD}.tar.gz", body)
                sums = f"{'0' * 64}  etcd-v3.6.8-linux-other.tar.gz\n{sha256(body)}  {ETCD}.tar.gz\n"
                checksum = f"{prefix}{ETCD_PATH}SHA256SUMS"
            else:
                body = programs.program(name)
                self._publish(f"{prefix}{KUBERNETES_PATH}{name}", body)
                sums, checksum = sha256(body), f"{prefix}{KUBERNETES_PATH}{name}.sha256"
            if checksums:
                self._publish(checksum, sums.encode())

    def _publish(self, path: str, body: bytes) -> None:
        self.files[path] = Behaviour(body=body)

    def paths(self) -> list[str]:
        return [path for path, _ in self.requests]

    @property
    def ca_pem(self) -> bytes:
        return self.authority.cert_pem.bytes()

    def fetcher(self) -> Rerouted:
        """Return a client. It is impatient only if the host is going to be silent, and waits longer for what it sends before that."""
        silent = {behaviour.stall for behaviour in self.files.values() if behaviour.stall >= 0}
        stall = HANGS if not silent else 0.15 if silent == {0} else 2.0
        return Rerouted(Web(client_context(self.ca_pem), connect=HANGS, stall=stall), self.port)

    def at(self, path: str) -> str:
        return f"https://localhost:{self.port}{path}"


class Rerouted:
    """A fetcher that uses this host in place of upstream's: https://dl.k8s.io/X becomes https://localhost:PORT/dl.k8s.io/X."""

    def __init__(self, web: Web, port: int) -> None:
        self._web = web
        self._port = port
        self.urls: list[str] = []

    def get(self, url: str, /, *, start: int = 0, most: int | None = None, within: float | None = None) -> AbstractContextManager[Streamed]:
        self.urls.append(url)
        local = f"https://localhost:{self._port}"
        place = url if url.startswith(local) else url.replace("https://", f"{local}/", 1)
        return self._web.get(place, start=start, most=most, within=within)


@contextlib.contextmanager
def releases(*, names: tuple[str, ...] = ("localhost",), by_host: bool = False) -> Iterator[Releases]:
    """Run a release host. With `by_host` the Host header comes first in the paths, as when the host is reached through a proxy."""
    host = Releases()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(host, by_host=by_host))
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    host.authority.issue_cert(*names).configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    host.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield host
    finally:
        host.leaving.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(host: Releases, *, by_host: bool) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = f"/{self.headers['Host']}{self.path}" if by_host else self.path
            host.requests.append((path, self.headers.get("Range", "")))
            behaviour = host.files.get(path, Behaviour(status=404))
            with contextlib.suppress(OSError):
                _answer(self, behaviour, host.leaving)

        def log_message(self, format: str, *args: object) -> None:
            return

        def handle(self) -> None:
            with contextlib.suppress(OSError):
                super().handle()

    return Handler


def _answer(handler: http.server.BaseHTTPRequestHandler, behaviour: Behaviour, leaving: threading.Event) -> None:
    body, status, start = behaviour.body, behaviour.status, 0
    asked = handler.headers.get("Range", "")
    if status == 200 and asked and behaviour.ranges:
        start = int(asked.removeprefix("bytes=").removesuffix("-"))
        status = 206 if start < len(body) else 416
    handler.send_response(status)
    if behaviour.location:
        handler.send_header("Location", behaviour.location)
    if status == 206:
        handler.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
    rest = body[start:] if status in {200, 206} else b""
    handler.send_header("Content-Length", str(len(rest)))
    handler.end_headers()
    broken = behaviour.times > 0
    behaviour.times -= 1
    if broken and behaviour.cut >= 0:
        handler.wfile.write(rest[: behaviour.cut])
        handler.close_connection = True
    elif broken and behaviour.stall >= 0:
        handler.wfile.write(rest[: behaviour.stall])
        handler.wfile.flush()
        leaving.wait(HANGS)
    else:
        handler.wfile.write(rest)


@dataclass
class Proxy:
    """A CONNECT proxy that forwards everything to one port of this machine, and the requests to it."""

    port: int = 0
    connects: list[str] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)
    refuse: str = ""


@contextlib.contextmanager
def proxy(target_port: int) -> Iterator[Proxy]:
    """Run a CONNECT proxy."""
    state = Proxy()
    listener = socket.create_server(("127.0.0.1", 0))
    state.port = listener.getsockname()[1]

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=_tunnel, args=(client, target_port, state), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def _tunnel(client: socket.socket, target_port: int, state: Proxy) -> None:
    with client, contextlib.suppress(OSError):
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(4096)
        lines = head.decode().split("\r\n")
        state.connects.append(lines[0].split()[1])
        state.authorizations += [line.partition(": ")[2] for line in lines if line.lower().startswith("proxy-authorization")]
        if state.refuse:
            client.sendall(f"HTTP/1.1 {state.refuse}\r\nContent-Length: 0\r\n\r\n".encode())
            return
        with socket.create_connection(("127.0.0.1", target_port)) as server:
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=_pump, args=(server, client), daemon=True)
            back.start()
            _pump(client, server)
            back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
