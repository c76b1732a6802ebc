"""The addresses of a node's pods: taken from its pod ranges, unique among the pods that live."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable


class AddressPool:
    """The addresses of one range, given out in turn so that one is used again as late as possible.

    The network's own address and the first one (the gateway's, by custom) are never given, nor IPv4's broadcast address.
    """

    def __init__(self, cidr: str) -> None:
        network = ipaddress.ip_network(cidr)
        self._first = int(network.network_address) + 2
        self._last = int(network.broadcast_address) - (1 if network.version == 4 else 0)
        self._make = type(network.network_address)
        self._taken: set[int] = set()
        self._next = self._first

    def take(self) -> str | None:
        """Return a free address, or None if all are taken."""
        size = self._last - self._first + 1
        if len(self._taken) >= size:
            return None
        while self._next in self._taken:
            self._step()
        found = self._next
        self._taken.add(found)
        self._step()
        return str(self._make(found))

    def claim(self, address: str) -> None:
        """Mark an address as taken; one outside the range is of no concern."""
        value = self._value(address)
        if value is not None:
            self._taken.add(value)

    def release(self, address: str) -> None:
        """Make an address free again. Idempotent."""
        value = self._value(address)
        if value is not None:
            self._taken.discard(value)

    def _step(self) -> None:
        self._next = self._next + 1 if self._next < self._last else self._first

    def _value(self, address: str) -> int | None:
        parsed = ipaddress.ip_address(address)
        value = int(parsed)
        return value if type(parsed) is self._make and self._first <= value <= self._last else None


class PodAddresses:
    """Which pod has which addresses: one of each of the node's ranges. Pods are known by their UIDs."""

    def __init__(self, cidrs: Iterable[str] = ()) -> None:
        self._pools = [AddressPool(cidr) for cidr in cidrs]
        self._held: dict[str, tuple[str, ...]] = {}

    def of(self, uid: str) -> tuple[str, ...]:
        """Return the addresses of a pod, taking new ones if it has none; none at all if a range is exhausted or not known yet."""
        if uid in self._held:
            return self._held[uid]
        found = [pool.take() for pool in self._pools]
        whole = tuple(address for address in found if address is not None)
        if not whole or len(whole) < len(found):
            self._free(whole)
            return ()
        self._held[uid] = whole
        return whole

    def claim(self, uid: str, addresses: Iterable[str]) -> None:
        """Note the addresses that a pod has already, from its status."""
        self._held[uid] = tuple(addresses)
        for address in self._held[uid]:
            for pool in self._pools:
                pool.claim(address)

    def release(self, uid: str) -> bool:
        """Make a pod's addresses free again; returns whether it had any. Idempotent."""
        held = self._held.pop(uid, ())
        self._free(held)
        return bool(held)

    def _free(self, addresses: Iterable[str]) -> None:
        for address in addresses:
            for pool in self._pools:
                pool.release(address)
