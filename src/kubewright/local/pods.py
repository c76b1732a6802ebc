"""The state of components in the API's form: `status.containerStatuses` of static pods, as the kubelet writes them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubewright.base.clock import rfc3339
from kubewright.local.supervisor.model import ComponentPhase, ComponentState, LastExit
from kubewright.local.supervisor.pod import StaticPod

_RUNNING: Final = frozenset({ComponentPhase.RUNNING, ComponentPhase.READY, ComponentPhase.UNHEALTHY})
_MESSAGE_LIMIT: Final = 2048
"""Bytes of last words in a status; the kubelet keeps 80 lines or 2048 bytes (FallbackToLogsOnError)."""

Json = dict[str, Any]


def container_statuses(pod: StaticPod, states: Sequence[ComponentState]) -> list[Json]:
    """Return one status for each container of a manifest. `states` are those of all components; of other pods they do not count."""
    mine = {state.container: state for state in states if state.pod == pod.name}
    return [_container(row, mine.get(row["name"])) for row in pod.body["spec"]["containers"]]


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
