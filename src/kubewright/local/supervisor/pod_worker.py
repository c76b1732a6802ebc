"""One pod of the machine: its desired and its actual state, and the transition between them.

Source: kubelet: pkg/kubelet/pod_workers.go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from kubewright.base.errors import ValidationError
from kubewright.base.records import dataclass, replace
from kubewright.base.unexpected import keep_running
from kubewright.local.supervisor.container_worker import ContainerWorker
from kubewright.local.supervisor.manifests import one_line
from kubewright.local.supervisor.pod import Container, StaticPod
from kubewright.local.supervisor.process import ORPHAN_GRACE, OrphanedProcesses, ProcessKey
from kubewright.local.supervisor.runtime import ProcessSpec, Runtime, translate
from kubewright.local.supervisor.state import ComponentPhase, ComponentState


@dataclass(frozen=True, eq=False)
class _Goal:
    """The desired state."""

    pod: StaticPod
    specs: tuple[tuple[Container, ProcessSpec], ...]

    def same(self, other: _Goal) -> bool:
        """Return whether nothing must be restarted."""
        return self.pod.hash == other.pod.hash and self.specs == other.specs


class PodWorker:
    """Reconciles a pod's running containers with the desired ones. Level-triggered: only the last desired state counts.

    A manifest that cannot be used changes nothing but `problem`; only removing it stops its pod.
    """

    def __init__(self, name: str, runtime: Runtime, orphans: OrphanedProcesses, programs: Mapping[str, Path]) -> None:
        self.name = name
        self.problem = ""
        self.workers: list[ContainerWorker] = []
        self._runtime, self._orphans, self._programs = runtime, orphans, programs
        self._goal: _Goal | None = None
        self._reached: _Goal | None = None
        self._removed = False
        self._task: asyncio.Task[None] | None = None

    @property
    def pod(self) -> StaticPod | None:
        """The pod that should run, if any."""
        return self._goal.pod if self._goal is not None else None

    @property
    def gone(self) -> bool:
        """Whether there is nothing left to show."""
        return self._removed and not self.workers and (self._task is None or self._task.done())

    @property
    def ready(self) -> bool:
        """Whether the desired containers run and all of them serve."""
        return bool(self.workers) and self._goal is self._reached and all(worker.ready for worker in self.workers)

    def want(self, pod: StaticPod) -> None:
        """Run this pod."""
        self._removed = False
        try:
            specs = tuple(
                (container, translate(pod, container, node=self._runtime.node, programs=self._programs)) for container in pod.containers
            )
        except ValidationError as error:
            self.trouble(one_line(error))
            return
        goal = _Goal(pod, specs)
        if self._goal is None or not self._goal.same(goal):
            self._goal = goal
        self.trouble("")
        self._converge_soon()

    def trouble(self, problem: str) -> None:
        """Note that the manifest is unusable; running containers continue."""
        self._removed = False
        if problem != self.problem:
            self.problem = problem
            self._runtime.changed()

    def remove(self) -> None:
        """Run nothing: the manifest is gone."""
        self._removed, self._goal, self.problem = True, None, ""
        self._converge_soon()

    async def stop(self, grace: float | None) -> None:
        """Stop everything now."""
        await self._cancel()
        await asyncio.gather(*(worker.stop(grace) for worker in self.workers))
        await self._orphans.end(self.name, grace=ORPHAN_GRACE if grace is None else grace)

    async def release(self) -> None:
        """Leave every process alone."""
        await self._cancel()
        await asyncio.gather(*(worker.release() for worker in self.workers))

    def states(self) -> list[ComponentState]:
        """Return the state of every container, or of the manifest if none of its containers runs."""
        found = [worker.state() for worker in self.workers]
        if not found and (self.problem or self._goal is not None):
            found = [self._nothing()]
        return [replace(state, reason=_joined(state.reason, self.problem)) for state in found]

    def _nothing(self) -> ComponentState:
        wanted = self._goal.pod.hash if self._goal is not None else ""
        return ComponentState(name=self.name, pod=self.name, container="", phase=ComponentPhase.WAITING, manifest_hash=wanted)

    def _converge_soon(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(keep_running("a static pod", self._converge, expected=()), name=f"pod {self.name}")

    async def _converge(self) -> None:
        while self._goal is not self._reached or (self._removed and self._orphans.of_pod(self.name)):
            goal = self._goal
            await asyncio.gather(*(worker.stop() for worker in self.workers))
            self.workers = []
            await self._orphans.end(self.name, grace=goal.pod.grace if goal is not None else ORPHAN_GRACE, keep=_wanted(goal))
            if goal is not None:
                self._start(goal)
            self._reached = goal
        self._runtime.changed()

    def _start(self, goal: _Goal) -> None:
        for container, spec in goal.specs:
            worker = ContainerWorker(goal.pod, container, spec, self._runtime)
            self.workers.append(worker)
            worker.start(self._orphans.take(self.name, (worker.name, goal.pod.hash, spec.digest)))

    async def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None


def _wanted(goal: _Goal | None) -> frozenset[ProcessKey]:
    if goal is None:
        return frozenset()
    return frozenset((goal.pod.component(container), goal.pod.hash, spec.digest) for container, spec in goal.specs)


def _joined(*reasons: str) -> str:
    return "; ".join(reason for reason in reasons if reason)
