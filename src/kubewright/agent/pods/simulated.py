"""Pods that are played: nothing runs, and their statuses say that it does. What is written and when is decided by `lifecycle`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kubewright.agent.pods import lifecycle
from kubewright.agent.pods.addresses import PodAddresses
from kubewright.agent.pods.lifecycle import PodAction, SimulationRules
from kubewright.base.clock import Clock
from kubewright.kube.core import Object


class SimulatedPods:
    """Plays the pods of one node, with addresses of the node's ranges. Implements `PodLife`."""

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
        """Note which addresses are in use before any is given out."""
        for pod in pods:
            addresses = lifecycle.pod_addresses(pod)
            if addresses and not lifecycle.on_host_network(pod) and not lifecycle.is_over(pod):
                self._addresses.claim(pod["metadata"]["uid"], addresses)

    def give_ranges(self, cidrs: Sequence[str], pods: Iterable[Object], /) -> None:
        """Take the ranges that addresses come from. Addresses that pods have already stay theirs. Idempotent."""
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
