"""Listening sockets, from /proc/net/tcp and tcp6, and free ports. Only reads files; no packet is sent.

Formats: Documentation/networking/proc_net_tcp of Linux. Addresses are hexadecimal words in the machine's byte order.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from kubewright.base.errors import PortInUse
from kubewright.base.records import dataclass

_LISTEN: Final = "0A"
_ESTABLISHED: Final = "01"
_WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 nothing is bound here
FIRST_LOOPBACK: Final = ipaddress.IPv4Address("127.0.0.11")
_LAST_LOOPBACK: Final = ipaddress.IPv4Address("127.255.255.254")


@dataclass(frozen=True, kw_only=True)
class Listener:
    """A listening TCP socket. `inode` is 0 if the kernel hides it."""

    address: str
    port: int
    user: int
    inode: int

    def blocks(self, address: str, port: int) -> bool:
        """Return whether this listener prevents others from listening there.

        A listener on all addresses blocks each one, `::` also those of IPv4.
        """
        if port != self.port:
            return False
        return address == self.address or (bool(_WILDCARDS & {address, self.address}) and self._meets(address))

    def _meets(self, address: str) -> bool:
        return "::" in {address, self.address} or (":" in address) == (":" in self.address)


def parse_listeners(lines: Iterable[str]) -> Iterator[Listener]:
    """Parse the lines of /proc/net/tcp or tcp6, including the header.

    The kernel lists listeners first, so the rest is not read.
    """
    rows = iter(lines)
    next(rows, None)
    for line in rows:
        fields = line.split()
        if len(fields) < 10 or fields[3] != _LISTEN:
            return
        address, _, port = fields[1].partition(":")
        yield Listener(address=parse_address(address), port=int(port, 16), user=int(fields[7]), inode=int(fields[9]))


def parse_connected(lines: Iterable[str], port: int) -> Iterator[str]:
    """Parse the same lines: yield the addresses that are connected to a port of this machine, one per connection."""
    rows = iter(lines)
    next(rows, None)
    for line in rows:
        fields = line.split()
        if len(fields) >= 10 and fields[3] == _ESTABLISHED and int(fields[1].partition(":")[2], 16) == port:
            yield parse_address(fields[2].partition(":")[0])


def parse_address(text: str) -> str:
    """Parse an address of eight or 32 hexadecimal digits; an IPv4-mapped IPv6 address is returned as IPv4."""
    raw = b"".join(struct.pack("=I", int(text[start : start + 8], 16)) for start in range(0, len(text), 8))
    address = ipaddress.ip_address(raw)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def blocking(listeners: Iterable[Listener], address: str, port: int) -> Listener | None:
    """Return the first listener that blocks the port, or None."""
    return next((listener for listener in listeners if listener.blocks(address, port)), None)


def choose_loopback(listeners: Sequence[Listener], ports: Collection[int], *, avoid: Collection[str] = ()) -> str:
    """Return the first address from 127.0.0.11 on, except those in `avoid`, on which all ports are free.

    Raises PortInUse if there is none, which means that a process listens on all addresses.
    """
    candidates = [listener for listener in listeners if listener.port in ports]
    taken = {listener.address for listener in candidates} | set(avoid)
    everywhere = [listener for listener in candidates if listener.address in _WILDCARDS]
    for number in range(int(FIRST_LOOPBACK), int(_LAST_LOOPBACK) + 1) if not everywhere else ():
        address = str(ipaddress.IPv4Address(number))
        if address not in taken and number & 0xFF not in {0, 255}:
            return address
    listed = ", ".join(str(port) for port in sorted({listener.port for listener in everywhere} or ports))
    raise PortInUse(
        f"no loopback address has the ports {listed} free",
        detail="a process listens on all addresses of this machine",
        remedy=f"stop it; `ss -ltnp` names it (ports {listed})",
    )


def choose_ports(listeners: Sequence[Listener], address: str, wanted: Sequence[int], *, below: int) -> list[int]:
    """Return for each wanted port the port itself, or the next higher one that is free at the address; all different.

    `below` is the first port that the system uses for outgoing connections. Raises PortInUse if no lower one is free.
    """
    chosen: list[int] = []
    for first in wanted:
        free = (port for port in range(first, max(below, first + 1)) if port not in chosen and blocking(listeners, address, port) is None)
        port = next(free, None)
        if port is None:
            raise PortInUse(
                f"no port from {first} up to {below} is free at {address}",
                remedy="`ss -ltnp` shows which processes listen: stop those that are not needed, or choose another address",
            )
        chosen.append(port)
    return chosen
