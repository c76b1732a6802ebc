"""Sockets that keep the deadlines of `base.deadlines`.

A socket's own timeout bounds one wait, not a request: a server that sends a byte now and then restarts each wait, and
neither `http.client` nor urllib3 has a total timeout. So the sockets made here check the deadlines before each
operation, whichever library uses them.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kubewright.base.deadlines import left
from kubewright.http.resolver import Addresses, look_up

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    _Base = socket.socket
else:
    _Base = object


class Bounded(_Base):
    """Makes a socket class keep deadlines. The socket's own timeout still bounds each wait."""

    _silence: float | None = None

    def settimeout(self, value: float | None, /) -> None:
        self._silence = value
        super().settimeout(value)

    def gettimeout(self) -> float | None:
        return self._silence

    def arm(self) -> None:
        """Limit the next wait to the remaining time. Raises TimeoutError if none is left."""
        super().settimeout(left(self._silence))

    def connect(self, address: Any, /) -> None:
        self.arm()
        super().connect(address)

    def recv(self, bufsize: int = 1024, flags: int = 0, /) -> bytes:
        self.arm()
        return super().recv(bufsize, flags)

    def recv_into(self, buffer: WriteableBuffer, nbytes: int | None = None, flags: int = 0) -> int:
        self.arm()
        # ssl reads nothing if nbytes is 0, and fills the buffer if nbytes is omitted
        return super().recv_into(buffer) if nbytes is None else super().recv_into(buffer, nbytes, flags)

    def send(self, data: ReadableBuffer, flags: int = 0, /) -> int:
        self.arm()
        return super().send(data, flags)

    def sendall(self, data: ReadableBuffer, flags: int = 0, /) -> None:
        self.arm()
        super().sendall(data, flags)


class BoundedSocket(Bounded, socket.socket):
    """A socket that keeps deadlines. TLS over it needs a context of `http.tls`."""


def connected(host: str, port: int, *, silence: float | None, options: Sequence[tuple[Any, ...]] = ()) -> BoundedSocket:
    """Open a connection to the first address of a name that accepts one.

    `silence` is the timeout for looking up the name and for each address, and remains the socket's. Raises OSError:
    that of the last address, or socket.gaierror.
    """
    failed: OSError | None = None
    for family, kind, protocol, _, address in _addresses(host, port, left(silence)):
        sock = BoundedSocket(family, kind, protocol)
        try:
            for option in options:
                sock.setsockopt(*option)
            sock.settimeout(silence)
            sock.connect(address)
        except OSError as error:
            sock.close()
            failed = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failed or OSError(f"{host} has no address")


def _addresses(host: str, port: int, within: float | None) -> Addresses:
    try:
        return look_up(host, port).result(within)
    except TimeoutError as error:
        raise socket.gaierror(socket.EAI_AGAIN, "no answer from the DNS servers in time") from error
