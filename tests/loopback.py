"""Addresses of the loopback network for tests: free, and spoken for, so that two test runs do not take the same one.

Between the choice of an address and the moment when something listens there, another run may choose it as well. A claim is what local clusters
hold against each other too (kubewright.local.cluster.allocation); here it lasts as long as the process, because a test may stop a server and start it again.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Collection, Iterator
from typing import Final

from kubewright.base.errors import KubewrightError
from kubewright.local.cluster.allocation import AddressClaims

_CLAIMS: Final = AddressClaims()


def free_address(ports: Collection[int]) -> str:
    """Return an address where all the ports are free, another one at each call."""
    for address in _ADDRESSES:
        if is_free(address, ports) and _CLAIMS.take(address) and is_free(address, ports):
            return address
    raise KubewrightError(
        f"no loopback address has the ports {sorted(ports)} free", remedy="`ss -ltnp` shows the processes that listen on all addresses"
    )


def is_free(address: str, ports: Collection[int]) -> bool:
    """Tell whether all the ports can be had."""
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
        for port in ports:
            stack.enter_context(socket.create_server((address, port)))
        return True
    return False


def _addresses() -> Iterator[str]:
    """Give out all of a part of the network in which no local cluster begins to look."""
    for third in range(200, 250):
        yield from (f"127.0.{third}.{last}" for last in range(11, 250))


_ADDRESSES: Final = _addresses()
