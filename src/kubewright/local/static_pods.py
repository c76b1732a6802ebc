"""What the supervisor runs, as the agent of its machine shows it in the API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from kubewright.agent.logs import LogOptions, NoLog
from kubewright.agent.static_pods import StaticPod
from kubewright.local.pods import container_statuses
from kubewright.local.supervisor.model import ComponentState
from kubewright.local.supervisor.supervisor import Supervisor


class SupervisedPods:
    """The supervisor's pods for an agent. `follow` runs for as long as the agent does."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self.changed = asyncio.Event()

    async def follow(self) -> None:
        """Tell the agent of every change."""
        async for _ in self._supervisor.changes():
            self.changed.set()

    def list(self) -> Sequence[StaticPod]:
        states = self._supervisor.snapshot()
        return [
            StaticPod(
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
            raise NoLog(f"the log of {container} holds all its runs, one after the other; ask for it without --previous")
        names = [state.name for state in self._supervisor.snapshot() if state.container == container and _is_of(state, pod)]
        if not names:
            raise NoLog(f"there is no component {container} on this machine")
        async for line in self._supervisor.read_log(names[0], tail=options.tail, since=options.since, follow=options.follow):
            yield line


def _is_of(state: ComponentState, pod: Mapping[str, Any]) -> bool:
    """Whether a component belongs to a mirror pod, which is called after its static pod and the node."""
    return str(pod["metadata"]["name"]).startswith(f"{state.pod}-")
