"""The network of this machine: interface addresses, default routes, and owners of ports.

Reads /proc and ioctls, and connects to Unix sockets; changes and sends nothing.

The choice of an address is that of apimachinery's util/net (ResolveBindAddress, ChooseHostInterface), which kubeadm and
the kubelet use.
"""

from __future__ import annotations

import array
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final, Literal

from kubewright.base.records import dataclass
from kubewright.host.network.listeners import Listener, blocking, choose_loopback, choose_ports, parse_connected, parse_listeners

Family = Literal[4, 6]

_UP: Final = 0x1
_LOOPBACK: Final = 0x8
_TENTATIVE_OR_FAILED: Final = 0x40 | 0x08
_ANY_6: Final = "0" * 32

_SIOCGIFCONF: Final = 0x8912
_SIOCGIFFLAGS: Final = 0x8913
_REQUEST: Final = 40
"""Bytes of a `struct ifreq` on 64-bit Linux: 16 of name, 24 of value."""
_MOST_ADDRESSES: Final = 1024
_EPHEMERAL: Final = 32768
"""The first port for outgoing connections by Linux's default."""
_LOOKS: Final = 3
"""How often the owner of a port is looked up: a process that starts or ends in the meantime may be missed the first time."""


@dataclass(frozen=True, kw_only=True)
class InterfaceAddress:
    """An address of a network interface."""

    interface: str
    address: str
    up: bool
    loopback: bool = False

    @property
    def family(self) -> Family:
        """4 or 6."""
        return 6 if ":" in self.address else 4

    @property
    def usable(self) -> bool:
        """Whether other machines can use it to reach us: up, and `IsGlobalUnicast` in Go, which includes private ranges."""
        address = ipaddress.ip_address(self.address)
        no = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
        return self.up and not no and self.address != "255.255.255.255"


def interface_address(interface: str, address: str, flags: int) -> InterfaceAddress:
    """Create an address from the flags that SIOCGIFFLAGS returns."""
    return InterfaceAddress(interface=interface, address=address, up=bool(flags & _UP), loopback=bool(flags & _LOOPBACK))


def parse_inet6(text: str) -> list[tuple[str, str]]:
    """Parse /proc/net/if_inet6: interface and address. Tentative addresses and failed duplicates are left out."""
    rows = _rows(text)
    return [
        (row[5], str(ipaddress.IPv6Address(bytes.fromhex(row[0]))))
        for row in rows
        if len(row) == 6 and not int(row[4], 16) & _TENTATIVE_OR_FAILED
    ]


def default_interfaces(route: str, route6: str) -> dict[Family, list[str]]:
    """Parse /proc/net/route and /proc/net/ipv6_route: the interfaces of default routes, in order."""
    rows, rows6 = _rows(route)[1:], _rows(route6)
    return {
        4: [row[0] for row in rows if len(row) > 7 and int(row[1], 16) == 0 and int(row[7], 16) == 0],
        6: [row[9] for row in rows6 if len(row) > 9 and row[0] == _ANY_6 and row[1] == "00" and row[4] != _ANY_6],
    }


def look_up(name: str) -> list[str]:
    """Return the addresses of a host name, in the resolver's order, without duplicates; none if it is unknown.

    Blocks, and may query DNS.
    """
    with suppress(OSError):
        return list(dict.fromkeys(str(row[4][0]) for row in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)))
    return []


def _rows(text: str) -> list[list[str]]:
    """Split a table of the kernel.

    Interface names are bytes without ASCII whitespace; they may contain other whitespace.
    """
    return [[os.fsdecode(field) for field in os.fsencode(line).split()] for line in text.split("\n")]


def choose_default(addresses: Sequence[InterfaceAddress], interfaces: Iterable[str], family: Family) -> str | None:
    """Return the first usable address of the family at the first interface that has one.

    If an interface has only link-local addresses (RFC 5549), a global address on the loopback interface is used.
    """
    of_family = [address for address in addresses if address.family == family and address.usable]
    for interface in interfaces:
        for found in of_family:
            if found.interface == interface:
                return found.address
        for found in of_family:
            if found.loopback:
                return found.address
    return None


def loopback_global(addresses: Iterable[InterfaceAddress]) -> str | None:
    """Return a usable address of the loopback interface, IPv4 first, or None."""
    found = sorted((address for address in addresses if address.loopback and address.usable), key=lambda address: address.family)
    return found[0].address if found else None


@dataclass(frozen=True, kw_only=True)
class PortOwner:
    """The owner of a port.

    `pid` and `program` are None if the system hides them, as it does for processes of other users.
    """

    user: int
    pid: int | None = None
    program: str | None = None

    def __str__(self) -> str:
        return f"a process of user {self.user}" if self.pid is None else f"{self.program} (pid {self.pid})"


class RealNetwork:
    """The `Network` of this machine. `proc` is where procfs is mounted."""

    def __init__(self, *, proc: Path = Path("/proc")) -> None:
        self._proc = proc

    def interface_addresses(self) -> list[InterfaceAddress]:
        pairs = [*_ioctl_addresses(), *parse_inet6(self._text("net/if_inet6"))]
        flags = {name: _flags(name) for name, _ in pairs}
        return [interface_address(name, address, flags[name]) for name, address in pairs]

    def default_address(self, *, family: Family) -> str | None:
        interfaces = default_interfaces(self._text("net/route"), self._text("net/ipv6_route"))
        return choose_default(self.interface_addresses(), interfaces[family], family)

    def loopback_global(self) -> str | None:
        return loopback_global(self.interface_addresses())

    def listeners(self) -> list[Listener]:
        return [listener for lines in self._tables() for listener in parse_listeners(lines)]

    def connected(self, port: int) -> list[str]:
        return list(dict.fromkeys(address for lines in self._tables() for address in parse_connected(lines, port)))

    def accepts(self, path: PurePosixPath, /) -> bool:
        with socket.socket(socket.AF_UNIX) as tried:
            tried.setblocking(False)
            try:
                tried.connect(str(path))
            except (PermissionError, BlockingIOError):  # the latter: connections wait there
                return True
            except OSError:
                return False
            return True

    def owner_of_port(self, address: str, port: int) -> PortOwner | None:
        owner = None
        for _ in range(_LOOKS):
            listener = blocking(self.listeners(), address, port)
            owner = None if listener is None else self._owner(listener)
            if owner is None or owner.pid is not None:
                break
        return owner

    def free_loopback(self, ports: Collection[int], *, avoid: Collection[str] = ()) -> str:
        return choose_loopback(self.listeners(), ports, avoid=avoid)

    def free_ports(self, address: str, wanted: Sequence[int]) -> list[int]:
        bounds = self._text("sys/net/ipv4/ip_local_port_range").split()
        return choose_ports(self.listeners(), address, wanted, below=int(bounds[0]) if bounds else _EPHEMERAL)

    def _tables(self) -> Iterator[Iterable[str]]:
        for name in ("net/tcp", "net/tcp6"):
            with suppress(FileNotFoundError), (self._proc / name).open(encoding="utf-8", errors="surrogateescape") as lines:  # no IPv6
                yield lines

    def _owner(self, listener: Listener) -> PortOwner:
        wanted = f"socket:[{listener.inode}]"
        for process in sorted(self._proc.glob("[0-9]*"), key=lambda path: int(path.name)):
            with suppress(OSError):  # not ours, or already gone
                if any(str(link.readlink()) == wanted for link in (process / "fd").iterdir()):
                    program = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
                    return PortOwner(user=listener.user, pid=int(process.name), program=program)
        return PortOwner(user=listener.user)

    def _text(self, name: str) -> str:
        try:
            return (self._proc / name).read_text(encoding="utf-8", errors="surrogateescape")
        except FileNotFoundError:
            return ""


def _ioctl_addresses() -> list[tuple[str, str]]:
    """Return interface and address for every IPv4 address, aliases included."""
    buffer = array.array("B", bytes(_REQUEST * _MOST_ADDRESSES))
    where, size = buffer.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as asked:
        answer = fcntl.ioctl(asked, _SIOCGIFCONF, struct.pack("@iP", size, where))
    used = struct.unpack("@iP", answer)[0]
    raw = buffer.tobytes()[:used]
    rows = (raw[start : start + _REQUEST] for start in range(0, used, _REQUEST))
    return [(_label(row[:16]), socket.inet_ntoa(row[20:24])) for row in rows]


def _label(raw: bytes) -> str:
    """Decode the name of an interface, which may contain any bytes but whitespace, `/` and `:`.

    `eth0:1` is an alias of eth0.
    """
    return os.fsdecode(raw.split(b"\0", 1)[0]).partition(":")[0]


def _flags(interface: str) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as asked:
        try:
            answer = fcntl.ioctl(asked, _SIOCGIFFLAGS, struct.pack(f"{_REQUEST}s", os.fsencode(interface)))
        except OSError:  # already gone
            return 0
    flags: int = struct.unpack_from("@H", answer, 16)[0]
    return flags
