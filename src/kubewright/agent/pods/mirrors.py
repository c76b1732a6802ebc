"""Mirror pods: the representation of a machine's static pods in the API. Observe, plan (pure), act.

Source: kubelet v1.36: pkg/kubelet/pod/mirror_client.go. Something else runs the static pods (the protocol is
`StaticPods`); this module only makes the API show them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from kubewright.agent.pods import lifecycle
from kubewright.agent.pods import status as podstatus
from kubewright.agent.pods.manager import PodManager
from kubewright.base.clock import Clock, rfc3339
from kubewright.base.errors import APIError
from kubewright.base.records import dataclass, field
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object
from kubewright.kube.resources import POD


@dataclass(frozen=True, kw_only=True)
class StaticPodState:
    """One static pod as it is now.

    `manifest` is the Pod as in its file; the mirror pod is called `NAME-NODE`. `hash` changes whenever the manifest does.
    `containers` are `status.containerStatuses` in the API's form, one for each container of the manifest; `phase` is `status.phase`.
    Conditions and addresses are added by the agent.
    """

    manifest: Mapping[str, Any]
    hash: str
    containers: Sequence[Mapping[str, Any]] = field(default=())
    phase: str = "Running"


class StaticPods(Protocol):
    """Runs the static pods of a machine."""

    changed: asyncio.Event
    """Set by the provider whenever the list has changed; cleared by its only reader."""

    def list(self) -> Sequence[StaticPodState]:
        """Return all static pods of the machine."""
        ...


Key = tuple[str, str]
"""Namespace and name."""

_HASH: Final = "kubernetes.io/config.hash"
_SEEN: Final = "kubernetes.io/config.seen"
_SOURCE: Final = "kubernetes.io/config.source"
_TOLERATION: Final = {"effect": "NoExecute", "operator": "Exists"}
"""The toleration of every static pod: no taint evicts a pod that the API did not schedule (kubelet v1.36: kubelet/config/common.go)."""


@dataclass(frozen=True)
class Create:
    """Create this mirror pod."""

    pod: Object


@dataclass(frozen=True)
class Remove:
    """Delete this mirror pod at once: its static pod no longer exists, or is a different one."""

    pod: Mapping[str, Any]


@dataclass(frozen=True)
class Show:
    """Patch the status of this mirror pod."""

    pod: Mapping[str, Any]
    status: Object


MirrorAction = Create | Remove | Show


def plan_mirrors(
    static: Iterable[StaticPodState], mirrors: Iterable[Mapping[str, Any]], *, node: Mapping[str, Any], host: Sequence[str], now: str
) -> list[MirrorAction]:
    """Return the actions that make a node's mirror pods match its static pods: removals, creations, statuses.

    `mirrors` are the node's pods with the mirror annotation. One that is removed is created again when it no longer
    exists.
    """
    wanted = {key_of(pod, node_name=node["metadata"]["name"]): pod for pod in static}
    found = {(pod["metadata"]["namespace"], pod["metadata"]["name"]): pod for pod in mirrors}
    stale = {key for key, pod in found.items() if key not in wanted or _is_stale(pod, wanted[key])}
    removals = [Remove(found[key]) for key in found if key in stale]
    creations = [Create(mirror_pod(pod, node=node, now=now)) for key, pod in wanted.items() if key not in found]
    shown = [
        (found[key], podstatus.of_containers(found[key], pod.containers, phase=pod.phase, host=host, now=now))
        for key, pod in wanted.items()
        if key in found and key not in stale
    ]
    return [*removals, *creations, *(Show(pod, status) for pod, status in shown if not podstatus.says(pod, status))]


def key_of(static: StaticPodState, *, node_name: str) -> Key:
    """Return the namespace and name of a static pod's mirror."""
    metadata = static.manifest["metadata"]
    return metadata.get("namespace") or "default", f"{metadata['name']}-{node_name}"


def mirror_pod(static: StaticPodState, *, node: Mapping[str, Any], now: str) -> Object:
    """Return the Pod to create. NodeRestriction accepts it only with exactly one owner, the Node itself, as its controller."""
    name = node["metadata"]["name"]
    namespace, pod_name = key_of(static, node_name=name)
    metadata, spec = static.manifest["metadata"], static.manifest["spec"]
    annotations = {_HASH: static.hash, lifecycle.MIRROR: static.hash, _SEEN: now, _SOURCE: "file"}
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"], "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name,
            "namespace": namespace,
            "labels": dict(metadata.get("labels") or {}),
            "annotations": {**(metadata.get("annotations") or {}), **annotations},
            "ownerReferences": [owner],
        },
        "spec": {**spec, "nodeName": name, "tolerations": [*(spec.get("tolerations") or ()), _TOLERATION]},
    }


def _is_stale(mirror: Mapping[str, Any], static: StaticPodState) -> bool:
    return lifecycle.is_deleting(mirror) or mirror["metadata"]["annotations"][lifecycle.MIRROR] != static.hash


_RETRY = 1.0
"""Seconds after which a refused action is retried."""


class MirrorPods:
    """Makes the API show the static pods of one machine.

    Runs once its Node is registered, because the Node owns them.
    """

    def __init__(
        self, api: Callable[[], AsyncKubeAPI], static: StaticPods, pods: PodManager, *, host: tuple[str, ...], clock: Clock
    ) -> None:
        self._api = api
        self._static = static
        self._pods = pods
        self._host = host
        self._clock = clock

    async def run(self, node: Callable[[], Object]) -> None:
        """Follow the provider endlessly; `node` returns the known Node."""
        await self._pods.listed.wait()
        self._static.changed.set()
        while True:
            await self._static.changed.wait()
            self._static.changed.clear()
            if not await self._sync(node()):
                asyncio.get_running_loop().call_later(_RETRY, self._static.changed.set)

    async def _sync(self, node: Object) -> bool:
        """Do what is due. Returns whether everything succeeded."""
        mirrors = [pod for pod in self._pods.all() if lifecycle.is_mirror(pod)]
        actions = plan_mirrors(self._static.list(), mirrors, node=node, host=self._host, now=rfc3339(self._clock.now()))
        done = [await self._try(action) for action in actions]
        return all(done)

    async def _try(self, action: MirrorAction) -> bool:
        try:
            await self._act(action)
        except APIError:
            return False
        return True

    async def _act(self, action: MirrorAction) -> None:
        if isinstance(action, Create):
            await self._api().create(action.pod)
            return
        metadata = action.pod["metadata"]
        name, namespace, uid = metadata["name"], metadata["namespace"], metadata["uid"]
        if isinstance(action, Remove):
            await self._api().delete(POD, name, namespace, grace_seconds=0, uid=uid)
        else:
            body = {"metadata": {"uid": uid}, "status": action.status}
            await self._api().patch(POD, name, body, namespace, subresource="status")
