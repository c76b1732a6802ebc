"""Address allocation in a VPN: a node has one address in each network.

Pure, except for asking who owns an address.

The whole network can be allocated. The search starts at a position derived from the node's name, so that a returning
name gets its old address if it is free. The network, broadcast and hub addresses are never allocated.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final

from kubewright.apis.formats import IPAddress, Network
from kubewright.base.errors import KubewrightError
from kubewright.base.records import dataclass

_FIRST: Final = 1
_ASKED, _MOST_ASKED = 16, 4096
"""How many addresses are looked up at a time: more each time when a network is nearly full."""

Owners = Callable[[Iterable[str]], Mapping[str, str]]
"""Maps addresses to the nodes that have them, without free ones."""


class NoAddressLeft(KubewrightError):
    """All addresses of a network are in use."""

    def __init__(self, network: Network) -> None:
        super().__init__(
            f"all {capacity(network)} addresses of the VPN's network {network} are in use",
            remedy="free the names of nodes that no longer exist: kubewright hub requests forget",
        )


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A network whose addresses are allocated to nodes, except those at its ends and the `hub`'s own."""

    network: Network
    hub: IPAddress

    def may_give(self, address: IPAddress) -> bool:
        """Return whether a node may have this address."""
        return address != self.hub and is_inside(address, self.network)

    def candidates(self, node: str) -> Iterator[IPAddress]:
        """Yield all addresses that may be allocated, each once, in the order in which they are tried for a node."""
        room, hub = capacity(self.network), int(self.hub) - int(self.network.network_address)
        start = int.from_bytes(hashlib.sha256(node.encode()).digest()) % room if room else 0
        offsets = (_FIRST + (start + index) % room for index in range(room))
        return (self.network[offset if offset < hub else offset + 1] for offset in offsets)


def hub_address(network: Network, *, taken: Container[IPAddress] = frozenset()) -> IPAddress:
    """Return the address of a hub: the first one or, if a node has that, the last free one. Raises NoAddressLeft."""
    others = range(network.num_addresses - 2, _FIRST, -1)
    free = next((network[offset] for offset in chain((_FIRST,), others) if network[offset] not in taken), None)
    if free is None:
        raise NoAddressLeft(network)
    return free


def capacity(network: Network) -> int:
    """Return how many nodes fit into a network."""
    return max(0, network.num_addresses - _FIRST - 2)


def is_inside(address: IPAddress, network: Network) -> bool:
    """Whether an address is in a network, and at neither of its ends."""
    return address.version == network.version and _FIRST <= int(address) - int(network.network_address) < network.num_addresses - 1


def pick(pools: Sequence[Pool], node: str, *, kept: Sequence[str], owners: Owners, reported: Owners = lambda _: {}) -> tuple[str, ...]:
    """Return the addresses of a node, one for each network.

    `kept` are those that it already has. Raises NoAddressLeft. An address that another node only reports (`reported`)
    is avoided while there are others near it. If there is no other, it is used: otherwise a node could block all others
    by reporting every address.
    """
    return tuple(_of_pool(pool, node, kept=kept, owners=owners, reported=reported) for pool in pools)


def _of_pool(pool: Pool, node: str, *, kept: Sequence[str], owners: Owners, reported: Owners) -> str:
    for text in kept:
        if pool.may_give(ipaddress.ip_address(text)):
            return text
    candidates = map(str, pool.candidates(node))
    looked, count, reported_by_another = 0, _ASKED, ""
    while looked < _MOST_ASKED or not reported_by_another:
        asked = list(islice(candidates, count))
        if not asked:
            break
        taken = owners(asked)
        free = [text for text in asked if taken.get(text, node) == node]
        avoided = reported(free)
        for text in free:
            if text not in avoided:
                return text
            reported_by_another = reported_by_another or text
        looked, count = looked + count, min(count * 2, _MOST_ASKED)
    if not reported_by_another:
        raise NoAddressLeft(pool.network)
    return reported_by_another
