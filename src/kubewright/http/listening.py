"""Listening before the server is loaded: clients wait in the kernel's queue until a server takes over the socket."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Final

from kubewright.base.errors import HostError, PortInUse
from kubewright.http.unix import checked_directory, reachable

BACKLOG: Final = 1024
"""Clients that the kernel queues.

It ignores further ones, which retry after a second (RFC 6298: the first retransmission).
"""


def listen(address: str, port: int) -> socket.socket:
    """Listen on an IP address. Raises PortInUse if the port is taken, HostError if the address cannot be used."""
    try:
        return socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"port {port} of {address} is taken", remedy="stop the process that listens there, or use another port"
            ) from error
        raise cannot_listen(f"{address} port {port}", error) from error


def cannot_listen(where: str, error: OSError) -> HostError:
    """Return the error for an address that cannot be used."""
    remedy = "choose an address of this host; `ip address` shows them" if error.errno == errno.EADDRNOTAVAIL else ""
    return HostError(f"cannot listen on {where}", detail=error.strerror or str(error), remedy=remedy)


def listen_unix(path: Path, *, owner: int | None = None, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    """Listen on a Unix socket of mode 0600. With an `owner`, it belongs to this other user, and its directory may have mode 0711.

    A leftover socket is replaced. Raises HostError if other users have access to the directory.
    """
    checked_directory(path.parent, shared=owner is not None)
    sock = socket.socket(socket.AF_UNIX, kind)
    try:
        with reachable(path) as short:
            path.unlink(missing_ok=True)
            # bind() takes the mode from the socket itself, so it never has a wider one
            os.fchmod(sock.fileno(), 0o600)
            sock.bind(short)
            sock.listen(BACKLOG)
        if owner is not None:
            os.chown(path, owner, -1)
    except OSError as error:
        sock.close()
        raise cannot_listen(str(path), error) from error
    return sock


def users(owner: int | None = None) -> frozenset[int]:
    """Return the users who may call a Unix socket of this process: this one, root, and its owner."""
    return frozenset({0, os.geteuid(), *([] if owner is None else [owner])})
