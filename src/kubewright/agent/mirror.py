"""Mirror pods: the shadows in the API of a machine's static pods (kubelet v1.36: pkg/kubelet/pod/mirror_client.go). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kubewright.agent import podlife, podstatus
from kubewright.agent.static_pods import StaticPod
from kubewright.base.records import dataclass

JsonMap = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name."""

_HASH: Final = "kubernetes.io/config.hash"
_SEEN: Final = "kubernetes.io/config.seen"
_SOURCE: Final = "kubernetes.io/config.source"
_TOLERATION: Final = {"effect": "NoExecute", "operator": "Exists"}
"""Every static pod gets it: no taint drives out what the API did not place (kubelet v1.36: pkg/kubelet/config/common.go)."""


@dataclass(frozen=True)
class Create:
    """Create this mirror pod."""

    pod: JsonMap


@dataclass(frozen=True)
class Remove:
    """Delete this mirror pod at once: its static pod is gone or another one."""

    pod: Mapping[str, Any]


@dataclass(frozen=True)
class Show:
    """Patch the status of this mirror pod."""

    pod: Mapping[str, Any]
    status: JsonMap


Action = Create | Remove | Show


def plan(
    static: Iterable[StaticPod], mirrors: Iterable[Mapping[str, Any]], *, node: Mapping[str, Any], host: Sequence[str], now: str
) -> list[Action]:
    """Return what makes the mirror pods of a node those of its static pods, in order: removals, creations, statuses.

    `mirrors` are the node's pods with the mirror annotation. One that is removed is created again when it is gone.
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


def key_of(static: StaticPod, *, node_name: str) -> Key:
    """Return the namespace and name of a static pod's mirror."""
    metadata = static.manifest["metadata"]
    return metadata.get("namespace") or "default", f"{metadata['name']}-{node_name}"


def mirror_pod(static: StaticPod, *, node: Mapping[str, Any], now: str) -> JsonMap:
    """Return the Pod to create. NodeRestriction accepts it only with exactly one owner, the Node itself, as its controller."""
    name = node["metadata"]["name"]
    namespace, pod_name = key_of(static, node_name=name)
    metadata, spec = static.manifest["metadata"], static.manifest["spec"]
    annotations = {_HASH: static.hash, podlife.MIRROR: static.hash, _SEEN: now, _SOURCE: "file"}
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


def _is_stale(mirror: Mapping[str, Any], static: StaticPod) -> bool:
    return podlife.is_deleting(mirror) or mirror["metadata"]["annotations"][podlife.MIRROR] != static.hash
