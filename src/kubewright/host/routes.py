"""Addresses of interfaces and the default route, as pure functions over what /proc shows.

The choice is that of apimachinery's util/net (ResolveBindAddress, ChooseHostInterface), which kubeadm and the kubelet use.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from kubewright.base.records import dataclass

Family = Literal[4, 6]

_UP: Final = 0x1
_LOOPBACK: Final = 0x8
_TENTATIVE_OR_FAILED: Final = 0x40 | 0x08
_ANY_6: Final = "0" * 32


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
        """Whether another machine could know us by it: up, and Go's `IsGlobalUnicast`, private ranges included."""
        address = ipaddress.ip_address(self.address)
        no = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
        return self.up and not no and self.address != "255.255.255.255"


def interface_address(interface: str, address: str, flags: int) -> InterfaceAddress:
    """Make one of the flags that SIOCGIFFLAGS gives."""
    return InterfaceAddress(interface=interface, address=address, up=bool(flags & _UP), loopback=bool(flags & _LOOPBACK))


def parse_inet6(text: str) -> list[tuple[str, str]]:
    """Read /proc/net/if_inet6: interface and address. Those that are not yet, or never became, ours are left out."""
    rows = _rows(text)
    return [
        (row[5], str(ipaddress.IPv6Address(bytes.fromhex(row[0]))))
        for row in rows
        if len(row) == 6 and not int(row[4], 16) & _TENTATIVE_OR_FAILED
    ]


def default_interfaces(route: str, route6: str) -> dict[Family, list[str]]:
    """Read /proc/net/route and /proc/net/ipv6_route: the interfaces of default routes, in order."""
    rows, rows6 = _rows(route)[1:], _rows(route6)
    return {
        4: [row[0] for row in rows if len(row) > 7 and int(row[1], 16) == 0 and int(row[7], 16) == 0],
        6: [row[9] for row in rows6 if len(row) > 9 and row[0] == _ANY_6 and row[1] == "00" and row[4] != _ANY_6],
    }


def _rows(text: str) -> list[list[str]]:
    """Split a table of the kernel. Names of interfaces are bytes without the blanks of ASCII; other blanks may be in them."""
    return [[os.fsdecode(field) for field in os.fsencode(line).split()] for line in text.split("\n")]


def choose_default(addresses: Sequence[InterfaceAddress], interfaces: Iterable[str], family: Family) -> str | None:
    """Return the first usable address of the family at the first interface that has one.

    An interface with link-local addresses only (RFC 5549) stands for a global address on the loopback interface.
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
