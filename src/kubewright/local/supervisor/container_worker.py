"""The supervision of one container: starting, probing, restarting and stopping it."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime, timedelta

from kubewright.base.clock import rfc3339_micro
from kubewright.base.errors import HostError
from kubewright.base.events import State, Warned
from kubewright.base.records import replace
from kubewright.base.unexpected import keep_running
from kubewright.local.supervisor.logs import size, tail
from kubewright.local.supervisor.pod import Container, StaticPod
from kubewright.local.supervisor.probes import ProbeFailure, ProbeStatus, ProbeWorker
from kubewright.local.supervisor.process import Process
from kubewright.local.supervisor.procfs import age, stat_of
from kubewright.local.supervisor.runtime import ProcessSpec, Runtime
from kubewright.local.supervisor.state import ComponentPhase, ComponentRecord, ComponentState, LastExit
from kubewright.local.supervisor.termination import CRASH_LOOP, failure_summary, failures_after, restart_delay, termination_message

_SEARCHED_LINES = 200
"""The number of lines in which the reason is searched."""


class ContainerWorker:
    """Keeps one container's process running.

        start() ──> Waiting ──> Running ──> Ready <──> Unhealthy
                      ^  ^         │          │            │
                      │  └ CrashLoop <────────┴────────────┘  the process ended: wait, then start it again
                      │
        stop() in any state ──> Stopped (the process ended);  release() ──> the process continues without supervision

    `stop` and `release` may be called more than once.
    """

    def __init__(self, pod: StaticPod, container: Container, spec: ProcessSpec, runtime: Runtime) -> None:
        self.name = pod.component(container)
        self.failures = 0
        self._pod, self._container, self._spec, self._runtime = pod, container, spec, runtime
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready_at: float | None = None
        self._spawned = False
        self._log_start = 0
        self._wake = asyncio.Event()
        self._state = ComponentState(
            name=self.name,
            pod=pod.name,
            container=container.name,
            phase=ComponentPhase.WAITING,
            manifest_hash=pod.hash,
        )

    def start(self, process: Process | None = None) -> None:
        """Start, with the process of an earlier daemon if it still matches."""
        record = self._runtime.records.read(self.name)
        if record is not None and record.manifest_hash == self._pod.hash:
            self._spawned = True
            self._state = replace(self._state, restarts=record.restarts)
        if process is not None:
            self._adopt(process, record)
        self._task = asyncio.create_task(keep_running("a component", self._run, expected=()), name=f"component {self.name}")

    async def stop(self, grace: float | None = None) -> None:
        """Stop the process, with SIGTERM and then SIGKILL after `grace` seconds (the pod's own by default), and forget it."""
        await self._cancel()
        if self._process is not None:
            self._set(ComponentPhase.STOPPED, reason="stopping")
            await self._process.end(self._pod.grace if grace is None else grace)
            self._process.close()
            self._process = None
        self._runtime.forget(self.name)
        self._set(ComponentPhase.STOPPED, pid=None, started_at=None)

    async def release(self) -> None:
        """Leave the process alone."""
        await self._cancel()
        if self._process is not None:
            self._process.close()
            self._process = None

    def state(self) -> ComponentState:
        """Return the state of the component, with its current memory and CPU time."""
        facts = stat_of(self._state.pid) if self._state.pid is not None else None
        if facts is None:
            return self._state
        return replace(self._state, rss_bytes=facts.rss_bytes, cpu_seconds=facts.cpu_seconds)

    @property
    def ready(self) -> bool:
        """Whether the component serves."""
        return self._state.ready

    def try_now(self) -> None:
        """Forget earlier failures and do not wait for the back-off, because the cause may have been fixed."""
        if self._process is None:
            self.failures = 0
            self._set(ComponentPhase.WAITING, pid=None, started_at=None)
            self._wake.set()

    def last_lines(self, lines: int) -> list[str]:
        """Return the last lines of the current process, or of the previous one if there is none."""
        last = self._state.last_exit
        if self._process is None and last is not None:
            return list(last.last_lines[-lines:]) if lines > 0 else []
        return tail(self._runtime.log(self.name), lines=lines, start=self._log_start)

    def log_was_rotated(self) -> None:
        """Record that the log was rotated."""
        self._log_start = 0

    async def _run(self) -> None:
        """Supervise until cancelled. Reports an internal error instead of silently supervising nothing."""
        try:
            await self._supervise()
        except Exception as error:
            self._set(ComponentPhase.WAITING, reason=f"the supervisor failed: {error!r}")
            raise

    async def _supervise(self) -> None:
        while True:
            if self._process is None:
                await self._runtime.may_start(self._pod.name)
                self._start_process()
            if self._process is not None:
                await self._attend(self._process)
            await self._back_off()

    async def _back_off(self) -> None:
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(restart_delay(self.failures)):
                await self._wake.wait()

    def _start_process(self) -> None:
        restart = self._spawned
        self._log_start = size(self._runtime.log(self.name))
        try:
            process = self._runtime.spawn(self.name, self._spec, manifest=self._pod.hash)
        except (OSError, HostError) as error:
            self.failures += 1
            self._wait_after(f"{self._spec.argv[0]} cannot be started: {_reason_of(error)}")
            return
        self._spawned = True
        self._process = process
        count = self._state.restarts + (1 if restart else 0)
        self._begin(process, started=self._runtime.clock.now(), restarts=count)
        self._save_record()

    def _adopt(self, process: Process, record: ComponentRecord | None) -> None:
        known = record is not None and record.identity == process.identity
        count = self._state.restarts + (1 if self._spawned and not known else 0)  # started after the last record was written
        started = record.started if known and record is not None else self._runtime.clock.now() - timedelta(seconds=age(process.identity))
        self._process, self._spawned = process, True
        self._begin(process, started=started, restarts=count)
        self._save_record()

    def _begin(self, process: Process, *, started: datetime, restarts: int) -> None:
        self._ready_at = None
        self._set(ComponentPhase.RUNNING, reason="", pid=process.pid, started_at=started, restarts=restarts, adopted=process.inherited)

    async def _attend(self, process: Process) -> None:
        """Watch one process until it has ended, by itself or because its probes failed."""
        watcher = ProbeWorker(self._container, self._runtime.prober, changed=self._health_changed, running_for=age(process.identity))
        watch = asyncio.create_task(watcher.watch(), name=f"probes of {self.name}")
        failure = ""
        try:
            await asyncio.wait((process.exited, watch), return_when=asyncio.FIRST_COMPLETED)
            if not process.exited.done():
                failure = await self._end_unhealthy(process, watch.result())
        finally:
            watch.cancel()
            await asyncio.wait({watch})
        self._ended(process, failure)

    async def _end_unhealthy(self, process: Process, failure: ProbeFailure) -> str:
        self._set(ComponentPhase.UNHEALTHY, reason=failure.reason)
        await process.end(self._pod.grace if failure.grace is None else failure.grace)
        return failure.reason

    def _ended(self, process: Process, failure: str) -> None:
        process.close()
        self._process = None
        result, now = process.exited.result(), asyncio.get_running_loop().time()
        ready = now - self._ready_at if self._ready_at is not None else 0.0
        self.failures = failures_after(self.failures, ran=age(process.identity), ready=ready)
        said = tail(self._runtime.log(self.name), lines=_SEARCHED_LINES, start=self._log_start)
        reason = failure or str(result)
        finished = self._runtime.clock.now()
        last = LastExit(
            code=result.code,
            signal=result.signal,
            started_at=self._state.started_at or finished,
            finished_at=finished,
            reason=reason,
            last_lines=termination_message(said),
        )
        self._state = replace(self._state, last_exit=last)
        why = "" if failure or not result.failed else failure_summary(said)
        self._wait_after(f"{reason}: {why}" if why else reason)

    def _wait_after(self, reason: str) -> None:
        looping = self.failures >= CRASH_LOOP
        phase = ComponentPhase.CRASH_LOOP if looping else ComponentPhase.WAITING
        self._set(
            phase,
            reason=f"{reason} (next start after {restart_delay(self.failures):g} s)",
            pid=None,
            started_at=None,
            adopted=False,
        )

    def _health_changed(self, health: ProbeStatus) -> None:
        if health.ready and self._ready_at is None:
            self._ready_at = asyncio.get_running_loop().time()
        if health.ready:
            phase = ComponentPhase.READY
        else:
            phase = ComponentPhase.RUNNING if self._ready_at is None else ComponentPhase.UNHEALTHY
        self._set(phase, reason=health.reason)

    def _set(self, phase: ComponentPhase, **changes: object) -> None:
        """Set a new state, and report it unless it is the same."""
        before = self._state
        self._state = replace(before, phase=phase, **{"reason": "", **changes})
        if self._state == before:
            return
        if phase is not before.phase:
            self._runtime.emit(State(subject=f"{self._runtime.node.name}/{self.name}", state=phase.value, elapsed=self._elapsed()))
        self._runtime.changed()

    def _elapsed(self) -> float:
        return age(self._process.identity) if self._process is not None else 0.0

    def _save_record(self) -> None:
        if self._process is None or self._state.started_at is None:
            return
        identity = self._process.identity
        self._record(
            ComponentRecord(
                name=self.name,
                argv0=self._spec.argv[0],
                pid=identity.pid,
                start_time=identity.start_time,
                boot_id=identity.boot_id,
                manifest_hash=self._pod.hash,
                restarts=self._state.restarts,
                started_at=rfc3339_micro(self._state.started_at),
            )
        )

    def _record(self, record: ComponentRecord) -> None:
        try:
            self._runtime.records.write(record)
        except OSError as error:  # the process matters more than its record: the next daemon finds the rest in its environment
            self._runtime.emit(Warned(text=f"the state of {self.name} could not be saved: {error.strerror}"))

    async def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None


def _reason_of(error: OSError | HostError) -> str:
    if isinstance(error, HostError):
        return str(error)
    return error.strerror or str(error)
