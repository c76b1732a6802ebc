"""Addresses in a VPN: a node has one in each network of it. Pure but for the question who has what.

The whole network is given out. Where a search begins follows from the node's name, so that a name that comes again gets the address that it had,
if nobody else has it. Network, broadcast and the hub's own address, which is the first one, are never given.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from kubewright.apis.formats import IPAddress, Network
from kubewright.base.errors import KubewrightError

_HUB: Final = 1
_FIRST: Final = _HUB + 1
_ASKED, _MOST_ASKED = 16, 4096
"""Addresses that are asked about at a time: more each time, where a network is nearly full."""

Owners = Callable[[Iterable[str]], Mapping[str, str]]
"""Says of addresses which node has them; those that nobody has are left out."""


class NoAddressLeft(KubewrightError):
    """All addresses of a network are given."""

    def __init__(self, network: Network) -> None:
        super().__init__(
            f"all {capacity(network)} addresses of the VPN's network {network} are given",
            remedy="free names of nodes that are gone: kubewright hub requests forget",
        )


def hub_address(network: Network) -> IPAddress:
    """Return the address of the hub in a network."""
    return network[_HUB]


def capacity(network: Network) -> int:
    """Return how many nodes a network has room for."""
    return max(0, network.num_addresses - _FIRST - 1)


def may_be_given(address: IPAddress, network: Network) -> bool:
    """Whether a node may have an address of a network."""
    return (
        address.version == network.version
        and address in network
        and _FIRST <= int(address) - int(network.network_address) < _FIRST + capacity(network)
    )


def candidates(network: Network, node: str) -> Iterator[IPAddress]:
    """Return all addresses that may be given, each once, in the order in which they are tried for a node."""
    room = capacity(network)
    start = int.from_bytes(hashlib.sha256(node.encode()).digest()) % room if room else 0
    return (network[_FIRST + (start + index) % room] for index in range(room))


def pick(networks: Sequence[Network], node: str, *, kept: Sequence[str], owners: Owners) -> tuple[str, ...]:
    """Return the addresses of a node, one for each network. `kept` are those that it has: they stay. Raises NoAddressLeft."""
    return tuple(_of_network(network, node, kept=kept, owners=owners) for network in networks)


def _of_network(network: Network, node: str, *, kept: Sequence[str], owners: Owners) -> str:
    for text in kept:
        if may_be_given(ipaddress.ip_address(text), network):
            return text
    left, count = map(str, candidates(network, node)), _ASKED
    while asked := list(islice(left, count)):
        taken = owners(asked)
        free = next((text for text in asked if taken.get(text, node) == node), None)
        if free is not None:
            return free
        count = min(count * 2, _MOST_ASKED)
    raise NoAddressLeft(network)
