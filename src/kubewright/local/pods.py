"""Static pods as the API shows them: mirror Pods and their status, as the kubelet writes them. Pure.

A mirror pod is created with the node's own identity, once its Node is registered, and has to pass NodeRestriction (spec/node.md 15):
`spec.nodeName` is the node itself, the annotation `kubernetes.io/config.mirror` is there, exactly one owner reference names the Node.
When the manifest changed its hash did too: the kubelet deletes the mirror pod and creates it again, because a pod's spec is immutable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from kubewright.base.clock import rfc3339
from kubewright.local.supervisor.model import ComponentPhase, ComponentState, LastExit, NodeFacts
from kubewright.local.supervisor.pod import StaticPod

HASH: Final = "kubernetes.io/config.hash"
MIRROR: Final = "kubernetes.io/config.mirror"
SEEN: Final = "kubernetes.io/config.seen"
SOURCE: Final = "kubernetes.io/config.source"

_TOLERATION: Final = {"operator": "Exists", "effect": "NoExecute"}
"""The kubelet adds it to every static pod: no taint drives out what the API did not place (pkg/kubelet/config/common.go)."""
_RUNNING: Final = frozenset({ComponentPhase.RUNNING, ComponentPhase.READY, ComponentPhase.UNHEALTHY})
_MESSAGE_LIMIT: Final = 2048
"""Bytes of last words in a status; the kubelet keeps 80 lines or 2048 bytes (FallbackToLogsOnError)."""

Json = dict[str, Any]


def mirror_name(pod: StaticPod, *, node: str) -> str:
    """Return the name of a static pod in the API: `etcd-node1`."""
    return f"{pod.name}-{node.lower()}"


def mirror_pod(pod: StaticPod, *, node: NodeFacts, node_uid: str, seen: datetime) -> Json:
    """Return the mirror Pod to create. `node_uid` is that of the registered Node; `seen` is when the manifest was first read."""
    meta: Mapping[str, Any] = pod.body.get("metadata") or {}
    spec: Mapping[str, Any] = pod.body["spec"]
    kept = {key: value for key, value in meta.items() if key in {"labels", "finalizers"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **kept,
            "name": mirror_name(pod, node=node.name),
            "namespace": pod.namespace,
            "annotations": {
                **(meta.get("annotations") or {}),
                HASH: pod.hash,
                MIRROR: pod.hash,
                SEEN: _nano(seen),
                SOURCE: "file",
            },
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node_uid, "controller": True}],
        },
        "spec": {**spec, "nodeName": node.name, "tolerations": [*(spec.get("tolerations") or []), _TOLERATION]},
    }


def is_mirror_of(found: Mapping[str, Any], pod: StaticPod) -> bool:
    """Whether a Pod read from the API is the mirror of this very manifest; if not it has to be deleted and created again."""
    meta: Mapping[str, Any] = found.get("metadata") or {}
    annotations: Mapping[str, Any] = meta.get("annotations") or {}
    return annotations.get(MIRROR) == pod.hash and not meta.get("deletionTimestamp")


def pod_status(pod: StaticPod, states: Sequence[ComponentState], *, node: NodeFacts, seen: datetime) -> Json:
    """Return the status of a mirror pod. `states` are the components of this pod; those of others are ignored.

    Condition times are when the components changed, so an unchanged pod gives an equal status. Write it as a JSON merge patch of the
    status subresource: that replaces the lists, where a strategic one would keep the reasons of conditions that hold again.
    """
    mine = {state.container: state for state in states if state.pod == pod.name}
    containers: list[Mapping[str, Any]] = list(pod.body["spec"]["containers"])
    ready = all((state := mine.get(row["name"])) is not None and state.ready for row in containers)
    started = any(state.started_at is not None or state.last_exit is not None for state in mine.values())
    changed = max((state.changed_at for state in mine.values() if state.changed_at is not None), default=seen)
    return {
        "phase": "Running" if started else "Pending",
        "conditions": _conditions(pod, mine, ready=ready, changed=changed, seen=seen),
        "hostIP": node.ip,
        "hostIPs": [{"ip": node.ip}],
        "podIP": node.ip,
        "podIPs": [{"ip": node.ip}],
        "startTime": rfc3339(seen),
        "containerStatuses": [_container(row, mine.get(row["name"])) for row in containers],
    }


def container_statuses(pod: StaticPod, states: Sequence[ComponentState]) -> list[Json]:
    """Return `status.containerStatuses` of a static pod, one for each container of its manifest."""
    mine = {state.container: state for state in states if state.pod == pod.name}
    return [_container(row, mine.get(row["name"])) for row in pod.body["spec"]["containers"]]


def _conditions(pod: StaticPod, states: Mapping[str, ComponentState], *, ready: bool, changed: datetime, seen: datetime) -> list[Json]:
    unready = [container.name for container in pod.containers if container.name not in states or not states[container.name].ready]
    why: Json = {} if ready else {"reason": "ContainersNotReady", "message": f"containers with unready status: [{' '.join(unready)}]"}
    begun: Json = {"status": "True", "lastTransitionTime": rfc3339(seen)}
    now: Json = {"status": "True" if ready else "False", "lastTransitionTime": rfc3339(changed), **why}
    return [
        {"type": "PodReadyToStartContainers", "lastProbeTime": None, **begun},
        {"type": "Initialized", "lastProbeTime": None, **begun},
        {"type": "Ready", "lastProbeTime": None, **now},
        {"type": "ContainersReady", "lastProbeTime": None, **now},
        {"type": "PodScheduled", "lastProbeTime": None, **begun},
    ]


def _container(row: Mapping[str, Any], state: ComponentState | None) -> Json:
    image = row.get("image") or ""
    status: Json = {
        "name": row["name"],
        "image": image,
        "imageID": "",
        "ready": state is not None and state.ready,
        "started": state is not None and state.phase in {ComponentPhase.READY, ComponentPhase.UNHEALTHY},
        "restartCount": state.restarts if state is not None else 0,
        "state": _state(state),
        "lastState": {},
    }
    if state is not None and state.pid is not None and state.started_at is not None:
        status["containerID"] = f"process://{state.pid}-{int(state.started_at.timestamp())}"
    if state is not None and state.last_exit is not None:
        status["lastState"] = {"terminated": _terminated(state.last_exit)}
    return status


def _state(state: ComponentState | None) -> Json:
    if state is not None and state.phase in _RUNNING and state.started_at is not None:
        return {"running": {"startedAt": rfc3339(state.started_at)}}
    if state is None or not state.reason:
        return {"waiting": {"reason": "ContainerCreating"}}
    if state.phase is ComponentPhase.STOPPED and state.last_exit is not None:
        return {"terminated": _terminated(state.last_exit)}
    reason = "CrashLoopBackOff" if state.phase is ComponentPhase.CRASH_LOOP else "ContainerCreating"
    return {"waiting": {"reason": reason, "message": state.reason}}


def _terminated(last: LastExit) -> Json:
    code = last.code if last.code is not None else 128 + last.signal if last.signal is not None else 137
    found: Json = {
        "exitCode": code,
        "reason": "Completed" if code == 0 else "Error",
        "message": "\n".join((last.reason, *last.last_words))[-_MESSAGE_LIMIT:],
        "startedAt": rfc3339(last.started_at),
        "finishedAt": rfc3339(last.finished_at),
    }
    if last.signal is not None:
        found["signal"] = last.signal
    return found


def _nano(moment: datetime) -> str:
    """Format as Go's RFC3339Nano, which drops zeros at the end of the fraction."""
    whole = rfc3339(moment)
    fraction = f"{moment.microsecond:06d}".rstrip("0")
    return whole if not fraction else f"{whole.removesuffix('Z')}.{fraction}Z"
