"""One pod's place on the machine: what its manifest asks for, what runs of it, and how one becomes the other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from kubewright.base.errors import ValidationError
from kubewright.base.records import dataclass, replace
from kubewright.local.supervisor.leftovers import DEFAULT, Key, Leftovers
from kubewright.local.supervisor.manifestfiles import one_line
from kubewright.local.supervisor.model import ComponentPhase, ComponentState
from kubewright.local.supervisor.pod import Container, StaticPod
from kubewright.local.supervisor.translation import Launch, translate
from kubewright.local.supervisor.unit import Unit
from kubewright.local.supervisor.workshop import Workshop


@dataclass(frozen=True, eq=False)
class _Goal:
    """What should run."""

    pod: StaticPod
    launches: tuple[tuple[Container, Launch], ...]

    def same(self, other: _Goal) -> bool:
        """Whether nothing has to be started anew."""
        return self.pod.hash == other.pod.hash and self.launches == other.launches


class Slot:
    """Level-triggered: whatever was wanted in between, what is wanted last is what runs in the end.

    A manifest that cannot be used changes nothing but `problem`; only one that is gone stops its pod.
    """

    def __init__(self, name: str, workshop: Workshop, leftovers: Leftovers, programs: Mapping[str, Path]) -> None:
        self.name = name
        self.problem = ""
        self.units: list[Unit] = []
        self._workshop, self._leftovers, self._programs = workshop, leftovers, programs
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
        return self._removed and not self.units and (self._task is None or self._task.done())

    @property
    def ready(self) -> bool:
        """Whether what is wanted runs and all of it serves."""
        return bool(self.units) and self._goal is self._reached and all(unit.ready for unit in self.units)

    def want(self, pod: StaticPod) -> None:
        """Run this pod."""
        self._removed = False
        try:
            launches = tuple(
                (container, translate(pod, container, node=self._workshop.node, programs=self._programs)) for container in pod.containers
            )
        except ValidationError as error:
            self.trouble(one_line(error))
            return
        goal = _Goal(pod, launches)
        if self._goal is None or not self._goal.same(goal):
            self._goal = goal
        self.trouble("")
        self._converge_soon()

    def trouble(self, problem: str) -> None:
        """Take note that the manifest cannot be used; what runs goes on."""
        self._removed = False
        if problem != self.problem:
            self.problem = problem
            self._workshop.changed()

    def remove(self) -> None:
        """Run nothing: the manifest is gone."""
        self._removed, self._goal, self.problem = True, None, ""
        self._converge_soon()

    async def stop(self, grace: float | None) -> None:
        """End everything now."""
        await self._cancel()
        await asyncio.gather(*(unit.stop(grace) for unit in self.units))
        await self._leftovers.end(self.name, grace=DEFAULT if grace is None else grace)

    async def release(self) -> None:
        """Leave every process alone."""
        await self._cancel()
        await asyncio.gather(*(unit.release() for unit in self.units))

    def states(self) -> list[ComponentState]:
        """Return the state of every container; of the manifest, where nothing runs of it."""
        found = [unit.state() for unit in self.units]
        if not found and (self.problem or self._goal is not None):
            found = [self._nothing()]
        return [replace(state, reason=_joined(state.reason, self.problem)) for state in found]

    def _nothing(self) -> ComponentState:
        wanted = self._goal.pod.hash if self._goal is not None else ""
        return ComponentState(name=self.name, pod=self.name, container="", phase=ComponentPhase.WAITING, manifest_hash=wanted)

    def _converge_soon(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._converge(), name=f"pod {self.name}")

    async def _converge(self) -> None:
        while self._goal is not self._reached or (self._removed and self._leftovers.of_pod(self.name)):
            goal = self._goal
            await asyncio.gather(*(unit.stop() for unit in self.units))
            self.units = []
            await self._leftovers.end(self.name, grace=goal.pod.grace if goal is not None else DEFAULT, keep=_wanted(goal))
            if goal is not None:
                self._start(goal)
            self._reached = goal
        self._workshop.changed()

    def _start(self, goal: _Goal) -> None:
        for container, launch in goal.launches:
            unit = Unit(goal.pod, container, launch, self._workshop)
            self.units.append(unit)
            unit.start(self._leftovers.take(self.name, (unit.name, goal.pod.hash, launch.digest)))

    async def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None


def _wanted(goal: _Goal | None) -> frozenset[Key]:
    if goal is None:
        return frozenset()
    return frozenset((goal.pod.component(container), goal.pod.hash, launch.digest) for container, launch in goal.launches)


def _joined(*reasons: str) -> str:
    return "; ".join(reason for reason in reasons if reason)
