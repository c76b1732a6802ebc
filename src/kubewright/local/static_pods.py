"""What the supervisor runs, as the agent of its machine shows it in the API."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kubewright.agent.static_pods import StaticPod
from kubewright.local.pods import container_statuses
from kubewright.local.supervisor import Supervisor


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
                phase="Running" if any(state.pod == pod.name and state.started_at for state in states) else "Pending",
            )
            for pod in self._supervisor.pods()
        ]
