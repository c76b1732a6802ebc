"""The client of the control socket: one request over a Unix socket, with nothing but the standard library.

`local status` must answer at once, and importing http.client alone would take 20 ms, so this module contains the few
lines of HTTP/1.0 that are needed. The server closes the connection after its answer, which marks the end of the body.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kubewright.base.deadlines import Deadline, holding
from kubewright.base.errors import HostError, UsageError
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass
from kubewright.http import failures, tracing
from kubewright.http.deadlines import BoundedSocket
from kubewright.http.failures import NoAnswer, Reason
from kubewright.http.messages import CHUNK, MIB, Response

_PATH_LIMIT: Final = 107
"""The number of bytes that fit into sockaddr_un."""
_HEAD_LIMIT: Final = 64 * 1024


def request(method: str, path: Path, target: str, /, *, body: bytes = b"", timeout: float = 10.0, most: int = 16 * MIB) -> Response:
    """Send one request to the server on a Unix socket and read the whole answer, within `timeout` seconds.

    Raises NoAnswer, also when no server listens.
    """
    with holding(Deadline(timeout)), stream(method, path, target, body=body, timeout=None) as (status, headers, chunks):
        parts, count = [], 0
        for chunk in chunks:
            count += len(chunk)
            if count > most:
                raise _Call(method, path, target).failure(Reason.TOO_LARGE)
            parts.append(chunk)
    return Response(status=status, headers=headers, body=b"".join(parts))


@contextmanager
def stream(
    method: str, path: Path, target: str, /, *, body: bytes = b"", timeout: float | None = 10.0
) -> Iterator[tuple[int, dict[str, str], Iterator[bytes]]]:
    """Send one request, and return status, headers and the body piece by piece.

    `timeout` is for everything until the body begins; its pieces may come at any time.
    """
    if not target.startswith("/") or not target.isascii() or not target.isprintable() or " " in target:
        raise UsageError(f"{quoted(target)} is not an encoded path", remedy="quote it (urllib.parse.quote)")
    call = _Call(method, path, target)
    trace = tracing.begin(method, f"unix://{path}{target}")
    with BoundedSocket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        with call.mapped(), holding(Deadline(timeout)):
            with reachable(path) as short:
                sock.connect(short)
            check_server(sock, path)
            head = f"{method} {target} HTTP/1.0\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
            sock.sendall(head.encode("ascii") + body)
            status, headers, rest = _read_head(sock, call)
            length = int(headers.get("content-length", "0"))
            trace.answered(status)
        sock.settimeout(None)
        yield status, headers, _body(sock, rest, length, call)


@dataclass(frozen=True)
class _Call:
    """The parts of a request that errors mention."""

    method: str
    path: Path
    target: str

    def failure(self, reason: Reason, detail: str = "") -> NoAnswer:
        return failures.no_answer(f"unix:{self.path}", self.method, self.target, reason, detail=detail)

    @contextmanager
    def mapped(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise self.failure(Reason.REFUSED, "there is no such socket") from error
        except (OSError, ValueError, IndexError) as error:
            reason, detail = failures.reason_of(error) or (Reason.MALFORMED, "")
            raise self.failure(reason, detail) from error


@contextmanager
def reachable(path: Path) -> Iterator[str]:
    """Return a socket's path in a form that fits into an address: a longer one goes through a descriptor of its directory."""
    if len(os.fsencode(path)) <= _PATH_LIMIT:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def checked_directory(directory: Path, *, shared: bool = False) -> None:
    """Require a directory that only this user can enter, or, if it is shared, that others can only pass through. Raises HostError."""
    mode = 0o711 if shared else 0o700
    try:
        found = directory.lstat()
    except OSError as error:
        raise HostError(f"cannot use {directory} for a socket", detail=error.strerror or "") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & ~mode:
        raise HostError(
            f"{directory} must be a directory of this user with mode {mode:04o}",
            detail=f"it has mode {stat.S_IMODE(found.st_mode):04o} and owner {found.st_uid}",
            remedy=f"chmod {mode:04o} {directory}",
        )


def peer_user(sock: socket.socket) -> int:
    """Return the user id of the process at the other end (SO_PEERCRED: pid, uid, gid; unix(7))."""
    _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(uid)


def check_server(sock: socket.socket, path: Path) -> None:
    """Require that the server belongs to this user or root: an impostor must not receive our requests. Raises HostError."""
    uid = peer_user(sock)
    if uid not in {os.geteuid(), 0}:
        raise HostError(
            f"the process that listens on {path} belongs to user {uid}", remedy="find out which user that is before you continue"
        )


def _read_head(sock: socket.socket, call: _Call) -> tuple[int, dict[str, str], bytes]:
    received = b""
    while b"\r\n\r\n" not in received:
        chunk = sock.recv(CHUNK)
        received += chunk
        if not chunk or len(received) > _HEAD_LIMIT:
            raise call.failure(Reason.TRUNCATED)
    head, _, rest = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(first.split(" ", 2)[1]), headers, rest


def _body(sock: socket.socket, rest: bytes, length: int, call: _Call) -> Iterator[bytes]:
    count, chunk = 0, rest
    while True:
        if not chunk:
            with call.mapped():
                chunk = sock.recv(CHUNK)
        if not chunk:
            break
        count += len(chunk)
        yield chunk
        chunk = b""
    if count < length:
        raise call.failure(Reason.TRUNCATED)
