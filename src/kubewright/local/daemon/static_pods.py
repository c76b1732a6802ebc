"""The supervisor's components as their machine's agent shows them in the API: static pods with statuses like the kubelet's, and logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from kubewright.agent.logs import LogOptions, NoLog
from kubewright.agent.pods.mirrors import StaticPodState
from kubewright.base.clock import rfc3339
from kubewright.kube.core import Object
from kubewright.local.supervisor.pod import StaticPod
from kubewright.local.supervisor.state import ComponentPhase, ComponentState, LastExit
from kubewright.local.supervisor.supervisor import Supervisor

_RUNNING: Final = frozenset({ComponentPhase.RUNNING, ComponentPhase.READY, ComponentPhase.UNHEALTHY})
_MESSAGE_LIMIT: Final = 2048
"""Bytes of a termination message in a status; the kubelet keeps 80 lines or 2048 bytes (FallbackToLogsOnError)."""


def container_statuses(pod: StaticPod, states: Sequence[ComponentState]) -> list[Object]:
    """Return one status for each container of a manifest.

    `states` are those of all components; those of other pods are ignored.
    """
    mine = {state.container: state for state in states if state.pod == pod.name}
    return [_container(row, mine.get(row["name"])) for row in pod.body["spec"]["containers"]]


def _container(row: Mapping[str, Any], state: ComponentState | None) -> Object:
    image = row.get("image") or ""
    status: Object = {
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


def _state(state: ComponentState | None) -> Object:
    if state is not None and state.phase in _RUNNING and state.started_at is not None:
        return {"running": {"startedAt": rfc3339(state.started_at)}}
    if state is None or not state.reason:
        return {"waiting": {"reason": "ContainerCreating"}}
    if state.phase is ComponentPhase.STOPPED and state.last_exit is not None:
        return {"terminated": _terminated(state.last_exit)}
    reason = "CrashLoopBackOff" if state.phase is ComponentPhase.CRASH_LOOP else "ContainerCreating"
    return {"waiting": {"reason": reason, "message": state.reason}}


def _terminated(last: LastExit) -> Object:
    code = last.code if last.code is not None else 128 + last.signal if last.signal is not None else 137
    found: Object = {
        "exitCode": code,
        "reason": "Completed" if code == 0 else "Error",
        "message": "\n".join((last.reason, *last.last_lines))[-_MESSAGE_LIMIT:],
        "startedAt": rfc3339(last.started_at),
        "finishedAt": rfc3339(last.finished_at),
    }
    if last.signal is not None:
        found["signal"] = last.signal
    return found


class SupervisedPods:
    """The supervisor's pods for an agent. `follow` runs for as long as the agent does."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self.changed = asyncio.Event()

    async def follow(self) -> None:
        """Wake the agent after every change."""
        async for _ in self._supervisor.changes():
            self.changed.set()

    def list(self) -> Sequence[StaticPodState]:
        states = self._supervisor.snapshot()
        return [
            StaticPodState(
                manifest=pod.body,
                hash=pod.hash,
                containers=container_statuses(pod, states),
                phase="Running" if any(state.pod == pod.name and _has_run(state) for state in states) else "Pending",
            )
            for pod in self._supervisor.pods()
        ]


def _has_run(state: ComponentState) -> bool:
    return state.started_at is not None or state.last_exit is not None


class ComponentLogs:
    """The logs of the supervisor's components, for the kubelet API."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    async def read(self, pod: Mapping[str, Any], container: str, options: LogOptions) -> AsyncIterator[bytes]:
        if options.previous:
            raise NoLog(f"the log of {container} contains all of its runs, one after the other; read it without --previous")
        names = [state.name for state in self._supervisor.snapshot() if state.container == container and _is_of(state, pod)]
        if not names:
            raise NoLog(f"there is no component {container} on this machine")
        async for line in self._supervisor.read_log(names[0], tail=options.tail, since=options.since, follow=options.follow):
            yield line


def _is_of(state: ComponentState, pod: Mapping[str, Any]) -> bool:
    """Return whether a component belongs to a mirror pod, whose name consists of the static pod's and the node's."""
    return str(pod["metadata"]["name"]).startswith(f"{state.pod}-")
