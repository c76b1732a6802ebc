"""Loopback addresses for tests, free and reserved, so that two test runs do not use the same one.

Another run could choose an address between our choice and the moment at which something listens there. Local clusters
reserve addresses with the same locks (kubewright.local.cluster.allocation); here a reservation lasts as long as the
process, because a test may stop a server and start it again.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Collection, Iterator
from typing import Final

from kubewright.base.errors import KubewrightError
from kubewright.local.cluster.allocation import AddressClaims

_CLAIMS: Final = AddressClaims()


def free_address(ports: Collection[int]) -> str:
    """Return an address on which all the ports are free, a different one for each call."""
    for address in _ADDRESSES:
        if is_free(address, ports) and _CLAIMS.take(address) and is_free(address, ports):
            return address
    raise KubewrightError(
        f"no loopback address has the ports {sorted(ports)} free", remedy="`ss -ltnp` shows the processes that listen on all addresses"
    )


def is_free(address: str, ports: Collection[int]) -> bool:
    """Return whether all the ports are free."""
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
        for port in ports:
            stack.enter_context(socket.create_server((address, port)))
        return True
    return False


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """Return a port of 127.0.0.1 that nothing uses, and which the kernel gives to no connection (ip_local_port_range)."""
    for port in random.sample(range(20_000, 30_000), 100):
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, kind) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, kind is socket.SOCK_STREAM)
            sock.bind(("127.0.0.1", port))
            if kind is socket.SOCK_STREAM:
                sock.listen()
            return port
    raise KubewrightError("a hundred ports between 20000 and 30000 are in use", remedy="`ss -ltnup` shows by which processes")


def _addresses() -> Iterator[str]:
    """Yield all addresses of a part of the network where local clusters do not start their search."""
    for third in range(200, 250):
        yield from (f"127.0.{third}.{last}" for last in range(11, 250))


_ADDRESSES: Final = _addresses()
