"""The pods that are scheduled to a node: one watch, and a short task per write.

A `PodLife` decides what is written; it simulates pods, or provides them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import aclosing
from datetime import datetime
from functools import partial

from kubewright.agent.dependencies import Seams
from kubewright.agent.periodic import Tasks
from kubewright.agent.pods import lifecycle
from kubewright.agent.pods.lifecycle import Delete, PodAction, Wait, Write
from kubewright.agent.pods.provider import PodLife
from kubewright.base import unexpected
from kubewright.base.errors import APIError, NotFound
from kubewright.kube.answers import EventType, WatchEvent
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object
from kubewright.kube.daemons.informers import Informer
from kubewright.kube.resources import POD

_RETRY = 2.0
"""Seconds after which a refused write of a pod is retried."""


class PodManager:
    """The pods of one node. `mirrors_changed` is called when a mirror pod was added, changed or removed.

        made ── run() ──> watching ── (run is cancelled) ──> stop() ──> stopped

    Level-triggered: decisions about a pod use its newest object, one write at a time.
    """

    def __init__(
        self,
        api: Callable[[], AsyncKubeAPI],
        node_name: str,
        *,
        life: PodLife,
        seams: Seams,
        mirrors_changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._api = api
        self._selector = f"spec.nodeName={node_name}"
        self._life = life
        self._seams = seams
        self._mirrors_changed = mirrors_changed
        self._pods: dict[str, Object] = {}
        self._busy: set[str] = set()
        self._settled: dict[str, str] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks = Tasks()
        self.listed = asyncio.Event()
        """Set once the pods of the node are known."""
        life.begin(self._hear)

    def __len__(self) -> int:
        """Return the number of the node's pods."""
        return len(self._pods)

    def all(self) -> list[Object]:
        """Return the known pods of the node."""
        return list(self._pods.values())

    def find(self, namespace: str, name: str) -> Object | None:
        """Return one pod, or None."""
        return next((pod for pod in self._pods.values() if _key(pod) == (namespace, name)), None)

    def give_ranges(self, cidrs: Iterable[str]) -> None:
        """Set the ranges of pod addresses. Idempotent."""
        self._life.give_ranges(tuple(cidrs), self._pods.values())

    async def run(self) -> None:
        """List and watch the node's pods for ever, through errors and new connections."""
        informer = Informer(self._api(), POD, field_selector=self._selector, random=self._seams.random)
        async with aclosing(informer.events()) as events:
            async for event in events:
                unexpected.attempted("a pod of a node", self._apply, event)  # a malformed pod must not affect the others

    async def stop(self) -> None:
        """Cancel the work in progress. Idempotent."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        await self._life.stop()
        await self._tasks.stop()

    def _apply(self, event: WatchEvent) -> None:
        if event.type is EventType.SYNCED:
            self._know_all()
        elif event.type is EventType.DELETED:
            self._forget(event.object["metadata"]["uid"])
        else:
            self._see(event.object)

    def _know_all(self) -> None:
        """Start, now that all pods are known: addresses in use must be known before any is assigned."""
        if not self.listed.is_set():
            self.listed.set()
            self._life.listed([pod for pod in self._pods.values() if not lifecycle.is_mirror(pod)])
            for uid in list(self._pods):
                unexpected.attempted("a pod of a node", self._kick, uid)

    def _see(self, pod: Object) -> None:
        """Store a pod's newest object; an older one than the known one is dropped."""
        uid = pod["metadata"]["uid"]
        known = self._pods.get(uid)
        if known is not None and _version(known) > _version(pod):
            return
        pod["metadata"].pop("managedFields", None)
        self._pods[uid] = pod
        if lifecycle.is_mirror(pod):
            self._mirrors_changed()
        self._kick(uid)

    def _forget(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        self._cancel_timer(uid)
        self._settled.pop(uid, None)
        if pod is not None:
            self._mirrors_changed() if lifecycle.is_mirror(pod) else self._life.forget(pod)

    def _hear(self, uid: str) -> None:
        """Decide about a pod again because something other than its object has changed."""
        self._settled.pop(uid, None)
        self._kick(uid)

    def _kick(self, uid: str) -> None:
        """Decide about a pod and act, unless work for it is in progress, which calls this again at its end."""
        pod = self._pods.get(uid)
        if pod is None or not self.listed.is_set() or uid in self._busy or lifecycle.is_mirror(pod):
            return
        self._cancel_timer(uid)
        step = self._life.decide(pod)
        if isinstance(step, Wait):
            self._later(uid, self._seconds_until(step.until))
        elif isinstance(step, Write | Delete) and self._settled.get(uid) != pod["metadata"]["resourceVersion"]:
            early = self._seconds_until(step.earliest) if isinstance(step, Delete) and step.earliest is not None else 0.0
            if early > 0:
                self._later(uid, early)
            else:
                self._busy.add(uid)
                self._tasks.start("reporting on a pod", partial(self._act, uid, pod, step))

    def _seconds_until(self, moment: datetime) -> float:
        return (moment - self._seams.clock.now()).total_seconds()

    async def _act(self, uid: str, pod: Object, step: PodAction) -> None:
        try:
            await self._send(uid, pod, step)
        except NotFound:
            self._busy.discard(uid)
            self._forget(uid)
        except Exception as error:
            if not isinstance(error, APIError):
                unexpected.report("reporting on a pod", error, again=_RETRY)
            self._busy.discard(uid)
            self._later(uid, _RETRY)
        else:
            self._busy.discard(uid)
            self._kick(uid)

    async def _send(self, uid: str, pod: Object, step: PodAction) -> None:
        namespace, name = _key(pod)
        if isinstance(step, Write):
            body = {"metadata": {"uid": uid}, "status": step.status}
            answer = await self._api().patch(POD, name, body, namespace, subresource="status")
            if _version(answer) == _version(pod):
                self._settled[uid] = answer["metadata"]["resourceVersion"]  # the API has decided otherwise: do not insist
            self._see(answer)
        else:
            await self._api().delete(POD, name, namespace, grace_seconds=0, uid=uid)
            self._settled[uid] = pod["metadata"]["resourceVersion"]

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
    """Return the resource version as a number: since Kubernetes 1.35 versions may be compared."""
    text = str(obj["metadata"].get("resourceVersion") or "0")
    return int(text) if text.isdigit() else 0
