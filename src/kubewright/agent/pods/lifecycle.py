"""The life of a simulated pod: what an agent that runs no containers writes about a pod, and when. Pure.

Everything is derived from the Pod itself, so that an agent that is restarted continues where the last one stopped.
Shapes and condition texts are the kubelet's (v1.36: pkg/kubelet/kubelet_pods.go, pkg/kubelet/status);
docs/compat/kubelet.md lists what the simulation leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

from kubewright.agent.pods import status as podstatus
from kubewright.base.clock import rfc3339
from kubewright.base.records import dataclass
from kubewright.kube.core import Object

MIRROR: Final = "kubernetes.io/config.mirror"
"""The annotation of a pod that represents a static pod; `mirrors` maintains those."""

_TERMINAL: Final = ("Succeeded", "Failed")
_CUT_OFF: Final = timedelta(seconds=10)
"""How long after its grace period became 0 a pod that still exists is deleted again."""


@dataclass(frozen=True, kw_only=True)
class SimulationRules:
    """How simulated containers behave. Seconds."""

    run_for: float = 1.0
    """Seconds after which containers of pods with restartPolicy Never or OnFailure end successfully."""
    stop_within: float = 0.0
    """How long a container takes to end after SIGTERM; never longer than the pod's grace period."""
    plays: bool = True
    """False: the node does not even simulate pods.

    Pods that are bound to it anyway stay as they are, and can be deleted.
    """


@dataclass(frozen=True)
class Nothing:
    """The pod is as it should be."""


@dataclass(frozen=True)
class Wait:
    """Check again at this time."""

    until: datetime


@dataclass(frozen=True)
class Write:
    """Patch the pod's status with this map."""

    status: Object


@dataclass(frozen=True)
class Delete:
    """Remove the pod: its containers have ended. Grace period 0, its UID as the precondition."""

    earliest: datetime | None = None
    """The API server is removing the pod already; only if it still exists at this time, that request was cut off."""


PodAction = Nothing | Wait | Write | Delete


def decide(pod: Mapping[str, Any], *, now: datetime, host: Sequence[str], addresses: Sequence[str], rules: SimulationRules) -> PodAction:
    """Return what to do about a pod of this node.

    `host` are the node's addresses. `addresses` are the pod's own; they may be empty if none are available (the pod
    then stays Pending) or the pod has ended. Mirror pods are left alone.
    """
    if is_mirror(pod):
        return Nothing()
    if not rules.plays:
        return _end_if_never_run(pod)
    if is_deleting(pod):
        return _end(pod, now=now, rules=rules)
    if is_over(pod) or not addresses:
        return Nothing()
    due = _completion(pod, rules)
    if due is not None and now >= due:
        return Write(podstatus.ended(pod, now=rfc3339(now)))
    status = podstatus.running(pod, now=rfc3339(now), host=host, addresses=addresses)
    if not podstatus.says(pod, status):
        return Write(status)
    return Nothing() if due is None else Wait(due)


def is_mirror(pod: Mapping[str, Any]) -> bool:
    """Whether the pod represents a static pod."""
    return MIRROR in (pod["metadata"].get("annotations") or {})


def is_deleting(pod: Mapping[str, Any]) -> bool:
    """Whether the pod's deletion was requested."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_over(pod: Mapping[str, Any]) -> bool:
    """Whether all containers have ended permanently; the pod's address is then free."""
    return pod.get("status", {}).get("phase") in _TERMINAL


def on_host_network(pod: Mapping[str, Any]) -> bool:
    """Whether the pod has the node's addresses instead of its own."""
    return bool(pod["spec"].get("hostNetwork"))


def runs_to_completion(pod: Mapping[str, Any]) -> bool:
    """Whether the pod's containers are expected to end by themselves (those of a Job, for example)."""
    return bool(pod["spec"].get("restartPolicy", "Always") != "Always")


def grace_of(pod: Mapping[str, Any]) -> float:
    """Return the grace period of a pod that is being deleted, in seconds."""
    return float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)


def remove(pod: Mapping[str, Any]) -> PodAction:
    """Return how to complete the deletion of a pod that has ended.

    Without a grace period the API server removes the pod: once no finalizer is left, or at once. It first writes that
    there is no grace period, so a request that takes too long may end between the two.
    """
    if grace_of(pod) > 0:
        return Delete()
    if pod["metadata"].get("finalizers"):
        return Nothing()
    return Delete(datetime.fromisoformat(pod["metadata"]["deletionTimestamp"]) + _CUT_OFF)


def pod_addresses(pod: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the addresses that the pod's status names."""
    status = pod.get("status", {})
    one = status.get("podIP")
    return tuple(row["ip"] for row in status.get("podIPs") or ()) or ((one,) if one else ())


def _end_if_never_run(pod: Mapping[str, Any]) -> PodAction:
    """Complete the deletion of a pod that never ran: nothing else would.

    A pod that ran on this machine under a kubelet is left alone, because it may still have containers.
    """
    status = pod.get("status", {})
    began = status.get("phase", "Pending") != "Pending" or status.get("containerStatuses") or status.get("initContainerStatuses")
    return remove(pod) if is_deleting(pod) and not began else Nothing()


def _end(pod: Mapping[str, Any], *, now: datetime, rules: SimulationRules) -> PodAction:
    metadata, grace = pod["metadata"], grace_of(pod)
    if is_over(pod):
        return remove(pod)
    with suppress(OverflowError):  # the API has no limit for grace periods, and its own times overflow
        asked = datetime.fromisoformat(metadata["deletionTimestamp"]) - timedelta(seconds=grace)
        stopped = asked + timedelta(seconds=min(grace, rules.stop_within))
        if now < stopped:
            return Wait(stopped)
    return Write(podstatus.stopped(pod, now=rfc3339(now), well=not runs_to_completion(pod)))


def _completion(pod: Mapping[str, Any], rules: SimulationRules) -> datetime | None:
    started = podstatus.started_at(pod)
    if started is None or not runs_to_completion(pod):
        return None
    return datetime.fromisoformat(started) + timedelta(seconds=rules.run_for)
