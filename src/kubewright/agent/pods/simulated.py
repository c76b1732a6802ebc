"""Simulated pods: nothing runs, but their statuses say that it does. `lifecycle` decides what is written, and when."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Sequence

from kubewright.agent.pods import lifecycle
from kubewright.agent.pods.lifecycle import PodAction, SimulationRules
from kubewright.base.clock import Clock
from kubewright.kube.core import Object


class AddressPool:
    """The addresses of one range, assigned in rotation, so that each is reused as late as possible.

    The address of the network itself, the first one (by convention the gateway's) and IPv4's broadcast address are
    never assigned.
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
        """Mark an address as taken; one outside the range is ignored."""
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
    """The addresses of each pod: one from each of the node's ranges. Pods are identified by their UIDs."""

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
        """Record the addresses that a pod has already, from its status."""
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


class SimulatedPods:
    """Simulates the pods of one node, with addresses from the node's ranges. Implements `PodLife`."""

    def __init__(self, *, host: tuple[str, ...], rules: SimulationRules, clock: Clock) -> None:
        """Keep the arguments; `host` are the node's own addresses."""
        self._host = host
        self._rules = rules
        self._clock = clock
        self._ranges: tuple[str, ...] = ()
        self._addresses = PodAddresses()
        self._starved: set[str] = set()
        self._changed: Callable[[str], None] = lambda _: None

    def begin(self, changed: Callable[[str], None], /) -> None:
        self._changed = changed

    def listed(self, pods: Sequence[Object], /) -> None:
        """Record which addresses are in use before any is assigned."""
        for pod in pods:
            addresses = lifecycle.pod_addresses(pod)
            if addresses and not lifecycle.on_host_network(pod) and not lifecycle.is_over(pod):
                self._addresses.claim(pod["metadata"]["uid"], addresses)

    def give_ranges(self, cidrs: Sequence[str], pods: Iterable[Object], /) -> None:
        """Set the ranges of addresses. Pods keep the addresses that they have. Idempotent."""
        wanted, known = tuple(cidrs), list(pods)
        if wanted == self._ranges:
            return
        self._ranges = wanted
        self._addresses = PodAddresses(wanted)
        self.listed(known)
        for pod in known:
            self._changed(pod["metadata"]["uid"])

    def decide(self, pod: Object, /) -> PodAction:
        addresses = self._addresses_of(pod)
        action = lifecycle.decide(pod, now=self._clock.now(), host=self._host, addresses=addresses, rules=self._rules)
        if lifecycle.is_over(pod):
            self._release(pod["metadata"]["uid"])
        return action

    def forget(self, pod: Object, /) -> None:
        self._starved.discard(pod["metadata"]["uid"])
        self._release(pod["metadata"]["uid"])

    async def stop(self) -> None:
        return

    def _addresses_of(self, pod: Object) -> tuple[str, ...]:
        if lifecycle.on_host_network(pod):
            return self._host
        if lifecycle.is_over(pod) or lifecycle.is_deleting(pod):
            return lifecycle.pod_addresses(pod)
        uid = pod["metadata"]["uid"]
        found = self._addresses.of(uid)
        if not found:
            self._starved.add(uid)
        return found

    def _release(self, uid: str) -> None:
        if self._addresses.release(uid) and self._starved:
            waiting, self._starved = self._starved, set()
            for one in waiting:
                self._changed(one)
