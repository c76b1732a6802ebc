"""Service and pod subnets: one CIDR, or two of different families joined by a comma, and what is derived from them (spec/kubeadm.md 3.7)."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from kubewright.apis.formats import IPAddress, address
from kubewright.base.patterns import Pattern
from kubewright.base.quoting import quoted

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

API_SERVER_INDEX: Final = 1
DNS_INDEX: Final = 10
_MOST: Final = 10
"""More than two are never valid, and a text may hold a million."""
_MASK: Final = Pattern(r"0*([0-9]{1,3})", re.ASCII)


def parse(text: str) -> list[Network]:
    """Read a comma-separated list of CIDRs without blanks. Raises ValueError, naming the one that cannot be read."""
    parts = text.split(",", _MOST)
    if len(parts) > _MOST:
        raise ValueError(f"more than {_MOST} CIDRs")
    return [_network(part) for part in parts]


def _network(text: str) -> Network:
    host, slash, mask = text.partition("/")
    base, bits = address(host), _MASK.fullmatch(mask)
    if not slash or base is None or bits is None:
        raise ValueError(f"{quoted(text)} is not a CIDR")
    if ":" in host and base.version == 4:  # written as ::ffff:a.b.c.d, and an IPv6 range to Go
        base = ipaddress.IPv6Address((0xFFFF << 32) + int(base))
    if int(bits[1]) > base.max_prefixlen:
        raise ValueError(f"{quoted(text)} is not a CIDR; the mask of an IPv{base.version} range is at most {base.max_prefixlen}")
    return ipaddress.ip_network((base, int(bits[1])), strict=False)


def family(network: Network) -> int:
    """Return 4 or 6. A range of IPv4 addresses mapped into IPv6 is of family 4, as in Go."""
    return 4 if network.version == 4 or network.network_address.ipv4_mapped is not None else 6


def address_at(network: Network, index: int) -> IPAddress:
    """Return the address with a number, counted from the network's own. Raises ValueError outside of the network."""
    if index >= network.num_addresses:
        raise ValueError(f"{network} has no address number {index}")
    return network.network_address + index


def service_address(service_subnet: str, index: int) -> IPAddress:
    """Return an address of the first service CIDR: number 1 is the API server's, number 10 is DNS. Raises ValueError."""
    return address_at(parse(service_subnet)[0], index)
