"""The supervisor: one per local machine, in the cluster's daemon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from kubewright.base.clock import Clock, SystemClock
from kubewright.base.durations import format_seconds
from kubewright.base.errors import ComponentFailed, WaitTimeout
from kubewright.base.events import Reporter, Warned
from kubewright.local.supervisor.bell import Bell
from kubewright.local.supervisor.identities import Mark
from kubewright.local.supervisor.lastwords import LINES, readable
from kubewright.local.supervisor.leftovers import Leftovers
from kubewright.local.supervisor.logreader import read_log
from kubewright.local.supervisor.logs import parts, rotate
from kubewright.local.supervisor.manifestfiles import ManifestFiles
from kubewright.local.supervisor.model import ComponentPhase, ComponentState, NodeFacts, ProbeIdentity
from kubewright.local.supervisor.pod import StaticPod
from kubewright.local.supervisor.probing import Prober
from kubewright.local.supervisor.records import Records
from kubewright.local.supervisor.slot import Slot
from kubewright.local.supervisor.stopping import ORDERLY, Stage, stages_of
from kubewright.local.supervisor.unit import Unit
from kubewright.local.supervisor.watching import DirectoryWatch
from kubewright.local.supervisor.workshop import Workshop

ROTATE_EVERY: Final = 5.0
"""Seconds between two looks at the sizes of the logs."""
AFTER_ANYWAY: Final = 20.0
"""Seconds after which a pod is started even if those that it comes after are not ready: it may be what they lack."""


class Supervisor:
    """Runs the static pods of a manifest directory as processes.

        constructed ── start() ──> supervising ── stop() ─────> stopped    every process ended, nothing left in `run`
                                        │
                                        └───── release() ──> released      the processes go on, for the next supervisor to adopt

    A new manifest is started, a changed one restarted, a removed one stopped; a broken one changes nothing but the reported reason.
    Processes outlive a supervisor that dies: the next one with the same `mark` and `node` adopts those whose manifest is still the
    same and stops the others. `stop` and `release` may be called at any time and more than once.
    """

    def __init__(
        self,
        manifests: Path,
        run: Path,
        logs: Path,
        programs: Mapping[str, Path],
        *,
        node: NodeFacts,
        mark: Mark,
        reporter: Reporter,
        probe_identity: ProbeIdentity | None = None,
        after: Mapping[str, Collection[str]] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Keep the arguments; nothing happens before `start`.

        `manifests`, `run` (state files and working directories) and `logs` are directories, made with mode 0700 where missing.
        `programs` maps the program names of manifests (`etcd`) to executables. `mark` is what all processes carry
        in their environment. `after` names for a pod those that have to be ready before it is started,
        as far as they have a manifest.
        """
        self._bell = Bell()
        self._after = after or {}
        self._programs = programs
        self._reporter = reporter
        self._files = ManifestFiles(manifests, node.name)
        self._watch = DirectoryWatch(manifests, self._look)
        self._slots: dict[str, Slot] = {}
        self._left = Leftovers()
        self._rotation: asyncio.Task[None] | None = None
        self._open = False
        self._workshop = Workshop(
            run=run,
            logs=logs,
            node=node,
            mark=mark,
            clock=clock or SystemClock(),
            prober=Prober(default_host=node.ip, identity=probe_identity),
            records=Records(run),
            emit=reporter.emit,
            changed=self._bell.ring,
            may_start=self._may_start,
        )

    async def start(self) -> None:
        """Adopt what an earlier supervisor left, start what the manifests ask for, and go on watching. Returns without waiting for readiness."""
        shop = self._workshop
        fresh = not shop.run.exists()
        for directory in (self._files.directory, shop.run, shop.logs):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not fresh:
            self._left = Leftovers.of(shop.mark, shop.node.name)
        self._open = True
        self._watch.start()
        self._look()
        self._rotation = asyncio.create_task(self._rotate_logs(), name="log rotation")

    async def stop(self, stages: Sequence[Stage] = ORDERLY) -> None:
        """Stop every process, stage after stage (`DOWN` for a quick end), and the watching."""
        await self._close()
        for stage, pods in stages_of(sorted(self._slots), stages):
            await asyncio.gather(*(self._slots[pod].stop(stage.grace) for pod in pods))
        self._bell.ring()

    async def release(self) -> None:
        """Stop watching and leave the processes alone."""
        await self._close()
        await asyncio.gather(*(slot.release() for slot in self._slots.values()))
        self._bell.ring()

    def snapshot(self) -> list[ComponentState]:
        """Return the state of every component, sorted by name, with memory and CPU time as of now."""
        return sorted((state for slot in self._slots.values() for state in slot.states()), key=lambda state: state.name)

    def pods(self) -> list[StaticPod]:
        """Return the static pods that should run, sorted by name."""
        return [slot.pod for _, slot in sorted(self._slots.items()) if slot.pod is not None]

    async def changes(self) -> AsyncIterator[list[ComponentState]]:
        """Yield a snapshot at once, and another whenever a component's phase, pid or reason changed. Ends when the supervisor does."""
        seen = -1
        while True:
            seen = self._bell.count
            yield self.snapshot()
            if not self._open:
                return
            await self._bell.heard(seen)

    async def wait_ready(self, names: Collection[str], *, within: float) -> None:
        """Wait until all these pods are ready; a pod whose manifest is not there yet is waited for. One in its back-off is tried at once.

        Raises ComponentFailed, with its last words, as soon as one cannot become ready: its manifest is refused, or it ended three times
        in a row. Raises WaitTimeout with each one's state otherwise.
        """
        for unit in [unit for name in names for unit in self._units(name)]:
            unit.try_now()
        try:
            async with asyncio.timeout(within):
                while not all(self._ready(name) for name in names):
                    seen = self._bell.count
                    self._raise_if_hopeless(names)
                    await self._bell.heard(seen)
        except TimeoutError:
            raise WaitTimeout(
                f"gave up waiting for {', '.join(sorted(names))} after {format_seconds(within)}",
                detail="\n".join(self._account(name) for name in names if not self._ready(name)),
                remedy="see the logs of the components",
            ) from None

    def retry(self) -> None:
        """Forget earlier failures, and start at once what waits for the end of its back-off: somebody may have removed the reason."""
        for slot in self._slots.values():
            for unit in slot.units:
                unit.try_now()

    def refused(self) -> dict[str, str]:
        """Return the pods of which nothing runs because their manifests cannot be used, and why."""
        return {name: slot.problem for name, slot in self._slots.items() if slot.problem and not slot.units}

    def last_words(self, name: str, *, lines: int = LINES) -> list[str]:
        """Return the last lines that a component wrote: the present process, or the one before while there is none. Empty if unknown."""
        return [line for unit in self._units(name) for line in unit.last_words(lines)]

    def read_log(self, name: str, *, tail: int | None = None, since: datetime | None = None, follow: bool = False) -> AsyncIterator[bytes]:
        """Yield the lines of a component's log, line ends included, rotated parts first.

        `tail` keeps the last lines only, `since` those from a time on (as far as lines carry one); `follow` goes on until the component
        is stopped, over rotations. Raises KeyError if there is no such component and no log of it.
        """
        log = self._workshop.log(name)
        if not self._units(name) and not parts(log):
            raise KeyError(name)
        return read_log(log, clock=self._workshop.clock, tail=tail, since=since, follow=follow, ended=lambda: self._log_ended(name))

    # -- inside

    def _look(self) -> None:
        """Compare the directory with what runs. Called whenever something may have changed; doing so once more changes nothing."""
        if not self._open:
            return
        manifests = self._files.scan()
        if manifests is None:
            return
        for manifest in manifests:
            slot = self._slot(manifest.pod_name)
            slot.want(manifest.pod) if manifest.pod is not None else slot.trouble(manifest.problem)
        present = {manifest.pod_name for manifest in manifests}
        for pod in (set(self._slots) | set(self._left.pods)) - present:
            self._slot(pod).remove()
        for pod in [pod for pod, slot in self._slots.items() if slot.gone]:
            del self._slots[pod]
        self._bell.ring()

    def _slot(self, pod: str) -> Slot:
        if pod not in self._slots:
            self._slots[pod] = Slot(pod, self._workshop, self._left, self._programs)
        return self._slots[pod]

    def _units(self, name: str) -> list[Unit]:
        return [unit for slot in self._slots.values() for unit in slot.units if name in {unit.name, slot.name}]

    def _ready(self, pod: str) -> bool:
        return pod in self._slots and self._slots[pod].ready

    async def _may_start(self, pod: str) -> None:
        """Wait for the pods that this one comes after."""
        try:
            async with asyncio.timeout(AFTER_ANYWAY):
                while any(other in self._slots and not self._ready(other) for other in self._after.get(pod, ())):
                    await self._bell.heard(self._bell.count)
        except TimeoutError:
            return

    def _raise_if_hopeless(self, names: Collection[str]) -> None:
        for name in names:
            slot = self._slots.get(name)
            if slot is not None and slot.problem and not slot.units:
                raise ComponentFailed(f"{name} cannot be started", detail=slot.problem, remedy="correct its manifest")
            for unit in slot.units if slot is not None else ():
                if unit.hopeless:
                    raise ComponentFailed(
                        f"{unit.name} does not stay up: {unit.state().reason}",
                        detail="\n".join(readable(line) for line in unit.last_words(LINES)),
                        remedy=f"correct what its last words name; all of them are in {self._workshop.log(unit.name)}",
                    )

    def _account(self, pod: str) -> str:
        """Say how a pod is, for somebody who waited in vain."""
        states = self._slots[pod].states() if pod in self._slots else []
        lines = [f"{state.name}: {state.phase.value}{f', {state.reason}' if state.reason else ''}" for state in states]
        return "\n".join([*(lines or [f"{pod}: no manifest"]), *map(readable, self.last_words(pod))])

    def _log_ended(self, name: str) -> bool:
        return not self._open or all(unit.state().phase is ComponentPhase.STOPPED for unit in self._units(name))

    async def _rotate_logs(self) -> None:
        while True:
            await asyncio.sleep(ROTATE_EVERY)
            for slot in list(self._slots.values()):
                for unit in slot.units:
                    await self._rotate(unit)

    async def _rotate(self, unit: Unit) -> None:
        log = self._workshop.log(unit.name)
        try:
            if log.exists() and await asyncio.to_thread(rotate, log):
                unit.log_was_rotated()
        except OSError as error:
            self._reporter.emit(Warned(text=f"the log {log} could not be rotated: {error.strerror}"))

    async def _close(self) -> None:
        self._open = False
        await self._watch.stop()
        if self._rotation is not None:
            self._rotation.cancel()
            await asyncio.wait({self._rotation})
            self._rotation = None
