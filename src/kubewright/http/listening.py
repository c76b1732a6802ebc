"""Listening before the server is loaded: clients wait in the kernel's queue until a server takes over the socket."""

from __future__ import annotations

import errno
import socket
from typing import Final

from kubewright.base.errors import HostError, PortInUse

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
        raise HostError(f"cannot listen on {address} port {port}", detail=error.strerror or str(error)) from error
