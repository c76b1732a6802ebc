"""Playing the pods that are scheduled to a node: one watch, and a short task per write. What is written is decided by `podlife`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import aclosing

from kubewright.agent import podlife
from kubewright.agent.pod_addresses import PodAddresses
from kubewright.agent.podlife import Delete, Rules, Step, Wait, Write
from kubewright.agent.rounds import Tasks
from kubewright.agent.timings import Timings
from kubewright.base.clock import Clock
from kubewright.base.errors import APIError, Gone, NotFound
from kubewright.kube.answers import EventType, WatchEvent
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object
from kubewright.kube.resources import POD

_RETRY = 2.0
"""Seconds after which a refused write of a pod is tried again."""
_SHORT = 1.0
"""A watch that ended sooner counts as failed."""


class Pods:
    """The pods of one node. `mirrors_changed` is called when a pod that stands for a static pod came, changed or went.

        made ── run() ──> watching ── (run is cancelled) ──> stop() ──> stopped

    Level-triggered: each pod is decided about from its newest object, one write at a time.
    """

    def __init__(
        self,
        api: Callable[[], AsyncKubeAPI],
        node_name: str,
        *,
        host: tuple[str, ...],
        rules: Rules,
        timings: Timings,
        clock: Clock,
        mirrors_changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._api = api
        self._selector = f"spec.nodeName={node_name}"
        self._host = host
        self._rules = rules
        self._timings = timings
        self._clock = clock
        self._mirrors_changed = mirrors_changed
        self._pods: dict[str, Object] = {}
        self._ranges: tuple[str, ...] = ()
        self._addresses = PodAddresses()
        self._version = ""
        self._busy: set[str] = set()
        self._starved: set[str] = set()
        self._settled: dict[str, str] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks = Tasks()
        self.listed = asyncio.Event()
        """Set once the pods of the node are known."""

    def all(self) -> list[Object]:
        """Return the node's pods as they are known."""
        return list(self._pods.values())

    def find(self, namespace: str, name: str) -> Object | None:
        """Return one pod, or None."""
        return next((pod for pod in self._pods.values() if _key(pod) == (namespace, name)), None)

    def give_ranges(self, cidrs: Iterable[str]) -> None:
        """Set the ranges that pods' addresses come from. Addresses that pods have already stay theirs. Idempotent."""
        wanted = tuple(cidrs)
        if wanted == self._ranges:
            return
        self._ranges = wanted
        self._addresses = PodAddresses(wanted)
        self._claim(self._pods.values())
        self._kick_all(list(self._pods))

    async def run(self) -> None:
        """List and watch the node's pods for ever, through errors and new connections."""
        loop, attempt = asyncio.get_running_loop(), 0
        while True:
            start = loop.time()
            try:
                await self._follow()
            except Gone:
                self._version = ""
            except APIError:
                pass  # the watch goes on from the last version that was seen
            attempt = 0 if loop.time() - start > _SHORT else attempt + 1
            if attempt:
                await asyncio.sleep(self._timings.reconnect_wait(attempt))

    async def stop(self) -> None:
        """Cancel what is under way. Idempotent."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        await self._tasks.stop()

    async def _follow(self) -> None:
        if not self._version:
            found, self._version = await self._api().list_versioned(POD, field_selector=self._selector, resource_version="0")
            self._replace(found)
        events = self._api().watch(POD, field_selector=self._selector, resource_version=self._version)
        async with aclosing(events):
            async for event in events:
                self._version = event.resource_version or self._version
                self._apply(event)

    def _replace(self, found: list[Object]) -> None:
        present = {pod["metadata"]["uid"] for pod in found}
        for uid in [uid for uid in self._pods if uid not in present]:
            self._forget(uid)
        self._claim(found)
        for pod in found:
            self._see(pod)
        self.listed.set()

    def _apply(self, event: WatchEvent) -> None:
        if event.type is EventType.DELETED:
            self._forget(event.object["metadata"]["uid"])
        elif event.type is not EventType.BOOKMARK:
            self._see(event.object)

    def _see(self, pod: Object) -> None:
        """Take a pod's newest object; one that is older than what is known is dropped."""
        uid = pod["metadata"]["uid"]
        known = self._pods.get(uid)
        if known is not None and _version(known) > _version(pod):
            return
        pod["metadata"].pop("managedFields", None)
        self._pods[uid] = pod
        if podlife.is_mirror(pod):
            self._mirrors_changed()
        self._kick(uid)

    def _forget(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        self._cancel_timer(uid)
        self._settled.pop(uid, None)
        self._starved.discard(uid)
        self._release(uid)
        if pod is not None and podlife.is_mirror(pod):
            self._mirrors_changed()

    def _kick(self, uid: str) -> None:
        """Decide about a pod and do it, unless something is under way for it: then that comes back here at its end."""
        pod = self._pods.get(uid)
        if pod is None or uid in self._busy or podlife.is_mirror(pod):
            return
        self._cancel_timer(uid)
        now = self._clock.now()
        step = podlife.decide(pod, now=now, host=self._host, addresses=self._addresses_of(pod), rules=self._rules)
        if isinstance(step, Wait):
            self._later(uid, (step.until - now).total_seconds())
        elif isinstance(step, Write | Delete) and self._settled.get(uid) != pod["metadata"]["resourceVersion"]:
            self._busy.add(uid)
            self._tasks.start(self._act(uid, pod, step))
        if podlife.is_over(pod):
            self._release(uid)

    async def _act(self, uid: str, pod: Object, step: Step) -> None:
        try:
            await self._send(uid, pod, step)
        except NotFound:
            self._busy.discard(uid)
            self._forget(uid)
        except APIError:
            self._busy.discard(uid)
            self._later(uid, _RETRY)
        else:
            self._busy.discard(uid)
            self._kick(uid)

    async def _send(self, uid: str, pod: Object, step: Step) -> None:
        namespace, name = _key(pod)
        if isinstance(step, Write):
            body = {"metadata": {"uid": uid}, "status": step.status}
            answer = await self._api().patch(POD, name, body, namespace, subresource="status")
            if _version(answer) == _version(pod):
                self._settled[uid] = answer["metadata"]["resourceVersion"]  # the API has its own idea of this: do not insist
            self._see(answer)
        else:
            await self._api().delete(POD, name, namespace, grace_seconds=0, uid=uid)
            self._settled[uid] = pod["metadata"]["resourceVersion"]

    def _addresses_of(self, pod: Object) -> tuple[str, ...]:
        if podlife.on_host_network(pod):
            return self._host
        if podlife.is_over(pod) or podlife.is_deleting(pod):
            return podlife.pod_addresses(pod)
        uid = pod["metadata"]["uid"]
        found = self._addresses.of(uid)
        if not found:
            self._starved.add(uid)
        return found

    def _claim(self, pods: Iterable[Object]) -> None:
        """Note which addresses are in use before any is given out."""
        for pod in pods:
            addresses = podlife.pod_addresses(pod)
            if addresses and not podlife.on_host_network(pod) and not podlife.is_over(pod):
                self._addresses.claim(pod["metadata"]["uid"], addresses)

    def _release(self, uid: str) -> None:
        if self._addresses.release(uid) and self._starved:
            waiting, self._starved = self._starved, set()
            self._kick_all(list(waiting))

    def _kick_all(self, uids: list[str]) -> None:
        for uid in uids:
            self._kick(uid)

    def _later(self, uid: str, seconds: float) -> None:
        if uid in self._pods:
            self._timers[uid] = asyncio.get_running_loop().call_later(max(0.0, seconds), self._kick, uid)

    def _cancel_timer(self, uid: str) -> None:
        timer = self._timers.pop(uid, None)
        if timer is not None:
            timer.cancel()


def _key(pod: Object) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def _version(obj: Object) -> int:
    """Return the resource version as a number: since Kubernetes 1.35 they may be compared."""
    text = str(obj["metadata"].get("resourceVersion") or "0")
    return int(text) if text.isdigit() else 0
