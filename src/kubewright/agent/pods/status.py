"""Pod statuses in the kubelet's form: running, ended, stopped. Pure; `lifecycle` decides which one is due."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kubewright.kube.core import Object

RUNTIME: Final = "kubewright"
"""The scheme of container IDs."""

_SIGTERM_EXIT: Final = 143
_LOST_EXIT: Final = 137
_LISTS: Final = (
    ("initContainers", "initContainerStatuses"),
    ("containers", "containerStatuses"),
    ("ephemeralContainers", "ephemeralContainerStatuses"),
)
_OVER: Final = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}


def running(pod: Mapping[str, Any], *, now: str, host: Sequence[str], addresses: Sequence[str]) -> Object:
    """Return the status of a pod whose init containers have ended, and whose containers are running and ready."""
    status: Object = {
        "phase": "Running",
        **_addresses(host, addresses),
        "startTime": pod.get("status", {}).get("startTime") or now,
    }
    return _complete(pod, status, now=now, state=_run)


def ended(pod: Mapping[str, Any], *, now: str) -> Object:
    """Return the status of a pod whose containers have all ended successfully."""
    return _complete(pod, {"phase": "Succeeded"}, now=now, state=_end_with(0, "Completed"))


def stopped(pod: Mapping[str, Any], *, now: str, well: bool) -> Object:
    """Return the status of a pod that was stopped for its deletion.

    `well`: its containers end with code 0 on SIGTERM; otherwise the signal ends them and the pod has failed. A pod
    that never started has failed with containers that could not be located.
    """
    if started_at(pod) is None:
        return _complete(pod, {"phase": "Failed"}, now=now, state=_never_ran)
    if well:
        return _complete(pod, {"phase": "Succeeded"}, now=now, state=_end_with(0, "Completed"))
    return _complete(pod, {"phase": "Failed"}, now=now, state=_end_with(_SIGTERM_EXIT, "Error"))


def of_containers(pod: Mapping[str, Any], containers: Sequence[Mapping[str, Any]], *, phase: str, host: Sequence[str], now: str) -> Object:
    """Return the status of a pod on the host network, whose containers are run by another program.

    `containers` are their statuses.
    """
    status: Object = {
        "phase": phase,
        **_addresses(host, host),
        "startTime": pod.get("status", {}).get("startTime") or now,
        "containerStatuses": [dict(row) for row in containers],
    }
    return _with_conditions(pod, status, now=now)


def started_at(pod: Mapping[str, Any]) -> str | None:
    """Return when the pod's first container was started, None if none has run."""
    states = [row.get("state") or {} for row in pod.get("status", {}).get("containerStatuses") or ()]
    moments = [state.get("running", {}).get("startedAt") or state.get("terminated", {}).get("startedAt") for state in states]
    return min((moment for moment in moments if moment), default=None)


def says(pod: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Whether the pod's status already says all of this; conditions of other authors are ignored."""
    found = pod.get("status", {})
    conditions = {row["type"]: row for row in found.get("conditions") or ()}
    if any(not _agrees(conditions.get(row["type"], {}), row) for row in status.get("conditions") or ()):
        return False
    return all(found.get(key) == value for key, value in status.items() if key != "conditions")


def _addresses(host: Sequence[str], own: Sequence[str]) -> Object:
    return {
        "hostIP": host[0],
        "hostIPs": [{"ip": address} for address in host],
        "podIP": own[0],
        "podIPs": [{"ip": address} for address in own],
    }


def _agrees(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(found.get(key) == value for key, value in wanted.items())


ContainerState = Callable[[Mapping[str, Any], Mapping[str, Any], str], Object]
"""Takes the container, its status so far and the time; returns `state`, `ready` and `started` of the new status."""


def _complete(pod: Mapping[str, Any], status: Object, *, now: str, state: ContainerState) -> Object:
    found = pod.get("status", {})
    for containers, statuses in _LISTS:
        rows = pod["spec"].get(containers) or ()
        old = {row["name"]: row for row in found.get(statuses) or ()}
        if rows:
            status[statuses] = [_container(pod, row, old.get(row["name"], {}), now, _state_of(containers, row, state)) for row in rows]
    return _with_conditions(pod, status, now=now)


def _with_conditions(pod: Mapping[str, Any], status: Object, *, now: str) -> Object:
    if generation := pod["metadata"].get("generation"):
        status["observedGeneration"] = generation
    status["conditions"] = _conditions(pod, status, now=now)
    return status


def _state_of(containers: str, row: Mapping[str, Any], state: ContainerState) -> ContainerState:
    """Init containers have ended once the others run.

    Those with restartPolicy Always are sidecars and end like the others.
    """
    if containers == "initContainers" and row.get("restartPolicy") != "Always" and state is not _never_ran:
        return _initialised
    return state


def _container(pod: Mapping[str, Any], row: Mapping[str, Any], old: Mapping[str, Any], now: str, state: ContainerState) -> Object:
    identifier = hashlib.sha256(f"{pod['metadata']['uid']}/{row['name']}".encode()).hexdigest()
    status: Object = {
        "name": row["name"],
        "lastState": {},
        "restartCount": old.get("restartCount", 0),
        "image": row.get("image", ""),
        "imageID": "",
        "containerID": f"{RUNTIME}://{identifier}",
        **state(row, old, now),
    }
    if terminated := status["state"].get("terminated"):
        terminated.setdefault("containerID", status["containerID"])
    if wanted := row.get("resources"):
        status["resources"] = wanted
        if requests := wanted.get("requests"):
            status["allocatedResources"] = requests
    return status


def _run(_: Mapping[str, Any], old: Mapping[str, Any], now: str) -> Object:
    started = (old.get("state") or {}).get("running", {}).get("startedAt") or now
    return {"state": {"running": {"startedAt": started}}, "ready": True, "started": True}


def _initialised(_: Mapping[str, Any], old: Mapping[str, Any], now: str) -> Object:
    before = (old.get("state") or {}).get("terminated")
    state = before or {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
    return {"state": {"terminated": dict(state)}, "ready": True, "started": False}


def _end_with(code: int, reason: str) -> ContainerState:
    def end(_: Mapping[str, Any], old: Mapping[str, Any], now: str) -> Object:
        started = (old.get("state") or {}).get("running", {}).get("startedAt") or now
        state = {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now}
        return {"state": {"terminated": state}, "ready": False, "started": False}

    return end


def _never_ran(_: Mapping[str, Any], __: Mapping[str, Any], ___: str) -> Object:
    message = "The container could not be located when the pod was terminated"
    state = {"exitCode": _LOST_EXIT, "reason": "ContainerStatusUnknown", "message": message, "startedAt": None, "finishedAt": None}
    return {"state": {"terminated": state}, "ready": False, "started": False, "containerID": ""}


ConditionRow = tuple[str, bool, str, str]
"""Type, whether it is True, reason, message."""


def _conditions(pod: Mapping[str, Any], status: Mapping[str, Any], *, now: str) -> list[Object]:
    rows: list[ConditionRow] = [("PodReadyToStartContainers", status["phase"] not in _OVER, "", "")]
    rows.append(("Initialized", True, "PodCompleted" if status["phase"] == "Succeeded" else "", ""))
    rows += [*_readiness(pod, status), ("PodScheduled", True, "", "")]
    old = {row["type"]: row for row in pod.get("status", {}).get("conditions") or ()}
    return [_condition(old.get(row[0], {}), row, now=now, generation=pod["metadata"].get("generation")) for row in rows]


def _readiness(pod: Mapping[str, Any], status: Mapping[str, Any]) -> list[ConditionRow]:
    if status["phase"] in _OVER:
        reason = _OVER[status["phase"]]
        return [("Ready", False, reason, ""), ("ContainersReady", False, reason, "")]
    if unready := [row["name"] for row in status["containerStatuses"] if not row["ready"]]:
        why = ("ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")
        return [("Ready", False, *why), ("ContainersReady", False, *why)]
    unmet = _unmet_gates(pod)
    ready = ("Ready", False, "ReadinessGatesNotReady", unmet) if unmet else ("Ready", True, "", "")
    return [ready, ("ContainersReady", True, "", "")]


def _unmet_gates(pod: Mapping[str, Any]) -> str:
    """Say which readiness gates are not True, in the kubelet's words; '' if all are."""
    found = {row["type"]: row.get("status") for row in pod.get("status", {}).get("conditions") or ()}
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates") or ()]
    texts = [
        f'the status of pod readiness gate "{gate}" is not "True", but {found[gate]}'
        if gate in found
        else f'corresponding condition of pod readiness gate "{gate}" does not exist.'
        for gate in gates
        if found.get(gate) != "True"
    ]
    return ", ".join(texts)


def _condition(old: Mapping[str, Any], row: ConditionRow, *, now: str, generation: int | None) -> Object:
    kind, true, reason, message = row
    status = "True" if true else "False"
    kept = old.get("lastTransitionTime") if old.get("status") == status else None
    condition: Object = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": kept or now}
    if generation:
        condition["observedGeneration"] = generation
    if reason or old.get("reason"):
        condition["reason"] = reason or None
    if message or old.get("message"):
        condition["message"] = message or None
    return condition
