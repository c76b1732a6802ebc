"""The processes of components: a single process, those that an earlier daemon left running, and the order in which they are stopped.

A process is started by us or adopted, watched through a pidfd, and signalled as a process group.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kubewright.base.records import dataclass, field
from kubewright.host.processes import Identity, RealProcesses
from kubewright.local.mark import Mark
from kubewright.local.supervisor.procfs import ComponentProcess, find_components, identity_of_child

ProcessKey = tuple[str, str, str]
"""The identity of a container's desired process: the component's name, the manifest's hash, the digest of its process."""
_GROUP_CHECKS: Final = 100
_GROUP_PAUSE: Final = 0.01


ORPHAN_GRACE: Final = 5.0
"""Seconds of grace if neither a stage nor a manifest sets them."""


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How a process ended. Both are None if it was not our child: only a parent learns the code."""

    code: int | None = None
    signal: int | None = None

    @property
    def failed(self) -> bool:
        """Whether the process reported a failure itself; its log does not contain the reason of an external kill."""
        return self.code is not None and self.code != 0

    def __str__(self) -> str:
        if self.signal is not None:
            known = {number.value: number.name for number in signal.Signals}
            return f"killed by {known.get(self.signal, f'signal {self.signal}')}"
        return "ended, exit code not known" if self.code is None else f"exit code {self.code}"


class Process:
    """A process and its group.

    `exited` becomes done once it has ended; SIGKILL was sent to the rest of its group by then.

    spawn() or adopt() ──> running ──> exited ──> close()
    """

    def __init__(self, identity: Identity, pidfd: int, *, child: bool, inherited: bool) -> None:
        self.identity = identity
        self.inherited = inherited
        self._child = child
        self._pidfd = pidfd
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[Exit] = self._loop.create_future()
        self._loop.add_reader(pidfd, self._ended)

    @property
    def pid(self) -> int:
        """The process id, which is also that of its group and session."""
        return self.identity.pid

    @classmethod
    def spawn(cls, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, log: Path) -> Process:
        """Start a program in its own session.

        Its output is appended to `log`; its environment is exactly `env`.
        """
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=cwd,
                env=dict(env),
                start_new_session=True,
                umask=0o077,
            )
        finally:
            os.close(output)
        # We reap it through the pidfd; a Popen without a return code would warn, and compete for the code, when it is
        # freed.
        child.returncode = 0
        return cls(identity_of_child(child.pid), os.pidfd_open(child.pid), child=True, inherited=False)

    @classmethod
    def adopt(cls, identity: Identity) -> Process | None:
        """Watch a process that an earlier daemon started; None if it has ended."""
        pidfd = RealProcesses().handle(identity)
        return None if pidfd is None else cls(identity, pidfd, child=_is_child(identity.pid), inherited=True)

    def send(self, number: signal.Signals) -> None:
        """Signal the whole group, unless it has ended."""
        if not self.exited.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    async def end(self, grace: float) -> Exit:
        """Send SIGTERM, and SIGKILL after `grace` seconds. Returns once nothing of its group is left."""
        self.send(signal.SIGTERM)
        done, _ = await asyncio.wait({self.exited}, timeout=grace)
        if not done:
            self.send(signal.SIGKILL)
        result = await asyncio.shield(self.exited)
        await self._group_gone()
        return result

    async def _group_gone(self) -> None:
        """Wait for the processes that were killed with the leader: a killed process releases its ports slightly later."""
        for _ in range(_GROUP_CHECKS):
            try:
                os.killpg(self.pid, 0)
            except OSError:
                return
            if not RealProcesses().group(self.pid):  # the kernel counts zombies as members
                return
            await asyncio.sleep(_GROUP_PAUSE)

    def close(self) -> None:
        """Stop watching. The process itself is left alone."""
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _ended(self) -> None:
        """Kill the rest of the group before reaping the leader: until then the group's number cannot be reused."""
        self._loop.remove_reader(self._pidfd)
        if not self._child:
            _kill_group_of_nobody(self.pid)
            self._finish(Exit())
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        try:
            info = os.waitid(os.P_PID, self.pid, os.WEXITED)
        except ChildProcessError:
            self._finish(Exit())
            return
        if info is not None and info.si_code == os.CLD_EXITED:
            self._finish(Exit(code=info.si_status))
        else:
            self._finish(Exit(signal=info.si_status if info is not None else None))

    def _finish(self, result: Exit) -> None:
        if not self.exited.done():
            self.exited.set_result(result)


def _is_child(pid: int) -> bool:
    """Return whether a living process is our own child, for example after a supervisor was released and another one started in the same daemon."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _kill_group_of_nobody(group: int) -> None:
    """Kill the process group of a leader that has ended.

    Its number may be reused, but then by a group with a living leader.
    """
    members = [member.pid for member in RealProcesses().group(group)]
    if group not in members:
        for pid in members:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


@dataclass(frozen=True, kw_only=True)
class StopStage:
    """Pods that are stopped together. An empty `pods` means all that no other stage names.

    `grace` is the number of seconds between SIGTERM and SIGKILL; None uses the pod's own terminationGracePeriodSeconds.
    """

    pods: tuple[str, ...] = ()
    grace: float | None = None


ORDERLY: Final = (
    StopStage(),
    StopStage(pods=("kube-scheduler", "kube-controller-manager")),
    StopStage(pods=("kube-apiserver",)),
    StopStage(pods=("etcd",)),
)
"""Clients before servers, each with its pod's full grace period."""

DOWN: Final = (
    StopStage(grace=0.3),
    StopStage(pods=("kube-scheduler", "kube-controller-manager"), grace=0.3),
    StopStage(pods=("kube-apiserver",), grace=0.2),
    StopStage(pods=("etcd",), grace=2.0),
)
"""For `down`, which has two seconds. Components without data on disk are killed quickly; etcd may finish its writes."""


def stages_of(pods: Sequence[str], stages: Sequence[StopStage]) -> list[tuple[StopStage, list[str]]]:
    """Assign every pod to its stage, in the order of the stages; stages without pods are left out."""
    named = {name for stage in stages for name in stage.pods}
    rows = [(stage, [pod for pod in pods if (pod in stage.pods if stage.pods else pod not in named)]) for stage in stages]
    placed = {pod for _, members in rows for pod in members}
    rest = [pod for pod in pods if pod not in placed]
    return [row for row in [(StopStage(), rest), *rows] if row[1]]


@dataclass()
class OrphanedProcesses:
    """The processes that an earlier daemon left on one machine, by pod: adopted if they are still wanted, otherwise stopped."""

    _by_pod: dict[str, list[ComponentProcess]] = field(default_factory=dict)

    @classmethod
    def of(cls, mark: Mark, machine: str) -> OrphanedProcesses:
        """Find a machine's processes.

        Children whose leader has ended are killed at once, because nothing can wait for them.
        """
        found = [one for one in find_components(mark) if one.machine == machine]
        left = cls()
        for one in _leaders(found):
            left._by_pod.setdefault(pod_of(one.component), []).append(one)
        return left

    def of_pod(self, pod: str) -> list[ComponentProcess]:
        """Return the remaining processes of a pod."""
        return self._by_pod.get(pod, [])

    @property
    def pods(self) -> list[str]:
        """The pods with remaining processes."""
        return sorted(pod for pod, found in self._by_pod.items() if found)

    def take(self, pod: str, key: ProcessKey) -> Process | None:
        """Adopt the process of a component, if one runs that was started for exactly this manifest, program, arguments and environment."""
        for one in self.of_pod(pod):
            if _key(one) == key:
                self._by_pod[pod].remove(one)
                return Process.adopt(one.identity)
        return None

    async def end(self, pod: str, *, grace: float, keep: Collection[ProcessKey] = ()) -> None:
        """Stop the remaining processes of a pod, except one of each key in `keep`."""
        unwanted, kept = [], set()
        for one in self.of_pod(pod):
            if _key(one) in keep and _key(one) not in kept:
                kept.add(_key(one))
            else:
                unwanted.append(one)
        await end_all(unwanted, grace=grace)
        for one in unwanted:
            self._by_pod[pod].remove(one)


async def stop_orphans(mark: Mark) -> list[str]:
    """Stop every component process of a cluster whose daemon is gone, in the order of `DOWN`.

    Returns the components' names, sorted. For `down`. Changes nothing if none is left. Needs no state file: the
    processes carry the cluster's mark.
    """
    found = _leaders(find_components(mark))
    for stage, pods in stages_of(sorted({pod_of(one.component) for one in found}), DOWN):
        grace = ORPHAN_GRACE if stage.grace is None else stage.grace
        await end_all((one for one in found if pod_of(one.component) in pods), grace=grace)
    return sorted({one.component for one in found})


def pod_of(component: str) -> str:
    """Return the pod of a component."""
    return component.partition("/")[0]


async def end_all(found: Iterable[ComponentProcess], *, grace: float) -> None:
    """Stop processes concurrently."""
    processes = [process for one in found if (process := Process.adopt(one.identity)) is not None]
    await asyncio.gather(*(process.end(grace) for process in processes))
    for process in processes:
        process.close()


def _key(found: ComponentProcess) -> ProcessKey:
    return (found.component, found.manifest, found.launch)


def _leaders(found: Sequence[ComponentProcess]) -> list[ComponentProcess]:
    leaders = {one.identity.pid for one in found if one.leader}
    for one in found:
        if not one.leader and one.group not in leaders:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(one.identity.pid, signal.SIGKILL)
    return [one for one in found if one.leader]
