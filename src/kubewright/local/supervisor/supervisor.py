"""The supervisor: one per local machine, in the cluster's daemon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from kubewright.base.clock import SystemClock
from kubewright.base.events import Reporter, Warned
from kubewright.base.unexpected import keep_running
from kubewright.local.mark import Mark
from kubewright.local.supervisor.container_worker import ContainerWorker
from kubewright.local.supervisor.logs import parts, read_log, rotate
from kubewright.local.supervisor.manifests import DirectoryWatch, ManifestDirectory
from kubewright.local.supervisor.pod import StaticPod
from kubewright.local.supervisor.pod_worker import PodWorker
from kubewright.local.supervisor.probes import NetworkProber
from kubewright.local.supervisor.process import ORDERLY, OrphanedProcesses, StopStage, stages_of
from kubewright.local.supervisor.runtime import Runtime
from kubewright.local.supervisor.state import ComponentPhase, ComponentState, NodeAddress, ProbeIdentity, RecordStore
from kubewright.local.supervisor.termination import MESSAGE_LINES

ROTATE_EVERY: Final = 5.0
"""Seconds between two checks of the logs' sizes."""
AFTER_ANYWAY: Final = 20.0
"""Seconds after which a pod is started even if the pods on which it depends are not ready: they may depend on it."""


class Supervisor:
    """Runs the static pods of a manifest directory as processes.

        constructed ── start() ──> supervising ── stop() ─────> stopped    every process ended, `run` is empty
                                        │
                                        └───── release() ──> released      the processes continue, for the next supervisor to adopt

    A new manifest is started, a changed one restarted, a removed one stopped; an invalid one changes only the reported
    reason. Processes outlive a supervisor that dies: the next one with the same `mark` and `node` adopts those whose
    manifest is unchanged and stops the others. `stop` and `release` may be called at any time and more than once.
    """

    def __init__(
        self,
        manifests: Path,
        run: Path,
        logs: Path,
        programs: Mapping[str, Path],
        *,
        node: NodeAddress,
        mark: Mark,
        reporter: Reporter,
        probe_identity: ProbeIdentity | None = None,
        after: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        """Store the arguments; nothing happens before `start`.

        `manifests`, `run` (state files and working directories) and `logs` are directories, created with mode 0700 if
        missing. `programs` maps the program names of manifests (`etcd`) to executables. All processes carry `mark` in
        their environment. `after` maps a pod to those that must be ready before it is started, if they have a manifest.
        """
        self._notifier = ChangeNotifier()
        self._after = after or {}
        self._programs = programs
        self._reporter = reporter
        self._files = ManifestDirectory(manifests, node.name)
        self._watch = DirectoryWatch(manifests, self._sync)
        self._pod_workers: dict[str, PodWorker] = {}
        self._orphans = OrphanedProcesses()
        self._rotation: asyncio.Task[None] | None = None
        self._open = False
        self._runtime = Runtime(
            run=run,
            logs=logs,
            node=node,
            mark=mark,
            clock=SystemClock(),
            prober=NetworkProber(default_host=node.ip, identity=probe_identity),
            records=RecordStore(run),
            emit=reporter.emit,
            changed=self._notifier.notify,
            may_start=self._may_start,
        )

    async def start(self) -> None:
        """Adopt processes of an earlier supervisor, start those of the manifests, and watch.

        Returns without waiting for readiness.
        """
        runtime = self._runtime
        fresh = not runtime.run.exists()
        if not self._files.directory.parent.exists():  # of kubeadm's mode, whether init or we are first; our umask would make it private
            self._files.directory.parent.mkdir(parents=True, exist_ok=True)
            self._files.directory.parent.chmod(0o755)
        for directory in (self._files.directory, runtime.run, runtime.logs):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not fresh:
            self._orphans = OrphanedProcesses.of(runtime.mark, runtime.node.name)
        self._open = True
        self._watch.start()
        self._sync()
        self._rotation = asyncio.create_task(keep_running("log rotation", self._rotate_logs, expected=()), name="log rotation")

    async def stop(self, stages: Sequence[StopStage] = ORDERLY) -> None:
        """Stop every process, stage after stage (`DOWN` for a quick end), and stop watching."""
        await self._close()
        for stage, pods in stages_of(sorted(self._pod_workers), stages):
            await asyncio.gather(*(self._pod_workers[pod].stop(stage.grace) for pod in pods))
        self._notifier.notify()

    async def release(self) -> None:
        """Stop watching and leave the processes alone."""
        await self._close()
        await asyncio.gather(*(pod_worker.release() for pod_worker in self._pod_workers.values()))
        self._notifier.notify()

    def snapshot(self) -> list[ComponentState]:
        """Return the state of every component, sorted by name, with its current memory and CPU time."""
        return sorted((state for pod_worker in self._pod_workers.values() for state in pod_worker.states()), key=lambda state: state.name)

    def pods(self) -> list[StaticPod]:
        """Return the static pods that should run, sorted by name."""
        return [pod_worker.pod for _, pod_worker in sorted(self._pod_workers.items()) if pod_worker.pod is not None]

    async def changes(self) -> AsyncIterator[list[ComponentState]]:
        """Yield a snapshot at once, and another whenever a component's phase, pid or reason changed.

        Ends when the supervisor does.
        """
        seen = -1
        while True:
            seen = self._notifier.count
            yield self.snapshot()
            if not self._open:
                return
            await self._notifier.changed_since(seen)

    def retry(self) -> None:
        """Forget earlier failures, and start everything in back-off, because the cause may have been fixed."""
        for pod_worker in self._pod_workers.values():
            for worker in pod_worker.workers:
                worker.try_now()

    def refused(self) -> dict[str, str]:
        """Return the pods that do not run because their manifests cannot be used, and why."""
        return {name: pod_worker.problem for name, pod_worker in self._pod_workers.items() if pod_worker.problem and not pod_worker.workers}

    def last_lines(self, name: str, *, lines: int = MESSAGE_LINES) -> list[str]:
        """Return the last lines of a component: of the current process, or the previous one if there is none.

        Empty if unknown.
        """
        return [line for worker in self._workers(name) for line in worker.last_lines(lines)]

    def read_log(self, name: str, *, tail: int | None = None, since: datetime | None = None, follow: bool = False) -> AsyncIterator[bytes]:
        """Yield the lines of a component's log with newlines, rotated parts first.

        `tail` keeps only the last lines, `since` those from a time on (as far as lines have one); `follow` continues
        until the component is stopped, across rotations. Raises KeyError if neither the component nor its log exists.
        """
        log = self._runtime.log(name)
        if not self._workers(name) and not parts(log):
            raise KeyError(name)
        return read_log(log, clock=self._runtime.clock, tail=tail, since=since, follow=follow, ended=lambda: self._log_ended(name))

    def _sync(self) -> None:
        """Compare the directory with the running pods. Called whenever something may have changed; idempotent."""
        if not self._open:
            return
        manifests = self._files.scan()
        if manifests is None:
            return
        for manifest in manifests:
            pod_worker = self._pod_worker(manifest.pod_name)
            pod_worker.want(manifest.pod) if manifest.pod is not None else pod_worker.trouble(manifest.problem)
        present = {manifest.pod_name for manifest in manifests}
        for pod in (set(self._pod_workers) | set(self._orphans.pods)) - present:
            self._pod_worker(pod).remove()
        for pod in [pod for pod, pod_worker in self._pod_workers.items() if pod_worker.gone]:
            del self._pod_workers[pod]
        self._notifier.notify()

    def _pod_worker(self, pod: str) -> PodWorker:
        if pod not in self._pod_workers:
            self._pod_workers[pod] = PodWorker(pod, self._runtime, self._orphans, self._programs)
        return self._pod_workers[pod]

    def _workers(self, name: str) -> list[ContainerWorker]:
        return [
            worker for pod_worker in self._pod_workers.values() for worker in pod_worker.workers if name in {worker.name, pod_worker.name}
        ]

    def _ready(self, pod: str) -> bool:
        return pod in self._pod_workers and self._pod_workers[pod].ready

    async def _may_start(self, pod: str) -> None:
        """Wait for the pods on which this one depends."""
        try:
            async with asyncio.timeout(AFTER_ANYWAY):
                while any(other in self._pod_workers and not self._ready(other) for other in self._after.get(pod, ())):
                    await self._notifier.changed_since(self._notifier.count)
        except TimeoutError:
            return

    def _log_ended(self, name: str) -> bool:
        return not self._open or all(worker.state().phase is ComponentPhase.STOPPED for worker in self._workers(name))

    async def _rotate_logs(self) -> None:
        while True:
            await asyncio.sleep(ROTATE_EVERY)
            for pod_worker in list(self._pod_workers.values()):
                for worker in pod_worker.workers:
                    await self._rotate(worker)

    async def _rotate(self, worker: ContainerWorker) -> None:
        log = self._runtime.log(worker.name)
        try:
            if log.exists() and await asyncio.to_thread(rotate, log):
                worker.log_was_rotated()
        except OSError as error:
            self._reporter.emit(Warned(text=f"the log {log} could not be rotated: {error.strerror}"))

    async def _close(self) -> None:
        self._open = False
        await self._watch.stop()
        if self._rotation is not None:
            self._rotation.cancel()
            await asyncio.wait({self._rotation})
            self._rotation = None


class ChangeNotifier:
    """Wakes all waiters after a change, without a queue for each: only the current state matters, not each step to it.

    It counts changes. A waiter that remembers the last count it saw never misses one.
    """

    def __init__(self) -> None:
        self.count = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        """Count a change and wake all waiters."""
        self.count += 1
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def changed_since(self, seen: int) -> int:
        """Return the count as soon as it differs from `seen`."""
        if self.count == seen:
            future = asyncio.get_running_loop().create_future()
            self._waiting.add(future)
            try:
                await future
            finally:
                self._waiting.discard(future)
        return self.count
