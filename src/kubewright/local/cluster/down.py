"""`down`: stop a local cluster and remove its files.

Works in any state: a daemon that hangs or died, components without a daemon.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Coroutine
from pathlib import Path, PurePosixPath
from typing import Any, Final

from kubewright.base.clock import Clock, SystemClock
from kubewright.base.errors import APIError, HostError, KubewrightError
from kubewright.base.events import Reporter, SilentReporter
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass
from kubewright.base.wait import PollingWaiter
from kubewright.host.filesystem.trees import remove_tree
from kubewright.host.locks import Lock
from kubewright.host.processes import Identity, RealProcesses
from kubewright.local import daemon_process
from kubewright.local.cluster import kubeconfig
from kubewright.local.cluster.daemon_client import ControlClient
from kubewright.local.paths import ClusterPaths
from kubewright.local.state_directory import remove_empty
from kubewright.local.supervisor.process import stop_orphans
from kubewright.local.supervisor.procfs import find_components

_KEPT: Final = ("cluster.json", "contexts.json", "lock")
_KEPT_OF_MACHINE: Final = ("etcd", "kubernetes/pki")
_KEPT_OF_SEVERAL: Final = ("kubernetes/manifests/etcd.yaml", "kubernetes/kubelet.conf", "kubelet/pki")
"""The files that etcd members need to find each other, and nodes to keep their identity: nothing answers before most members are up."""
_ENDS_WITHIN: Final = 120.0
"""Seconds after which processes that were killed count as hung; on an idle machine they end at once."""


@dataclass(frozen=True, kw_only=True)
class DownResult:
    """The result of `down`. `existed` is False if there was no such cluster; `kubeconfigs` are those that named it."""

    existed: bool
    kubeconfigs: tuple[Path, ...] = ()
    seconds: float = 0.0


def down(paths: ClusterPaths, *, keep_data: bool = False, reporter: Reporter | None = None, clock: Clock | None = None) -> DownResult:
    """Stop a cluster and remove its files.

    With `keep_data`, etcd's data and the certificates stay, and the next `up` resumes. A cluster that does not exist is
    not an error. Raises Locked while an `up` or another `down` is running.
    """
    clock = clock or SystemClock()
    from kubewright.local.whole import down as machines  # most clusters have none

    if machines.exist(paths):
        return _down_machines(paths, keep_data=keep_data, reporter=reporter, clock=clock)
    from kubewright.local.whole import owner

    with owner.acting_as(owner.of_cluster(paths)):  # root must not follow the links of another user
        return _down_processes(paths, keep_data=keep_data, reporter=reporter, clock=clock)


def _down_processes(paths: ClusterPaths, *, keep_data: bool, reporter: Reporter | None, clock: Clock) -> DownResult:
    start = clock.monotonic()
    if not _exists(paths.root):
        existed = bool(daemon_process.marked_processes(paths))  # the files of a running cluster were removed
        stop(paths, reporter=reporter, clock=clock)
        return DownResult(existed=existed, seconds=clock.monotonic() - start)
    _require_own(paths)
    lock = Lock(PurePosixPath(paths.lock), doing=f"down of cluster {paths.name}", clock=clock)
    lock.acquire()
    try:
        stop(paths, reporter=reporter, clock=clock)
        named = clear(paths, keep_data=keep_data, reporter=reporter)
    finally:
        lock.release(remove=not keep_data)
    if not keep_data:
        remove_empty(paths.root)
    return DownResult(existed=True, kubeconfigs=tuple(named), seconds=clock.monotonic() - start)


def _exists(root: Path) -> bool:
    """Return whether a cluster's directory exists. Raises HostError if its owner cannot reach it."""
    try:
        return root.is_dir()
    except PermissionError as error:
        raise HostError(
            f"{root} cannot be reached by its owner, user {os.geteuid()}",
            detail=str(error),
            remedy="let this user search the directories above it (`namei -l` shows their modes), or remove it by hand",
        ) from error


def _require_own(paths: ClusterPaths) -> None:
    """Refuse a directory of something else, such as that of `--state-dir / --name home`. Raises HostError."""
    ours = (paths.record, paths.lock, paths.machines, paths.nodes)
    if _entries(paths.root) and not any(map(os.path.lexists, ours)):
        raise HostError(
            f"{paths.root} is not the directory of a cluster",
            detail=f"it contains none of {', '.join(path.name for path in ours)}",
            remedy="check --name and --state-dir; nothing was removed",
        )


def _down_machines(paths: ClusterPaths, *, keep_data: bool, reporter: Reporter | None, clock: Clock) -> DownResult:
    """Stop the machines of a cluster; its files are removed as their owner. With `keep_data`, all of them stay."""
    from kubewright.local.whole import down as machines
    from kubewright.local.whole import owner

    start = clock.monotonic()
    machines.require_root(paths)
    machines.require_disks(paths)
    user, named = owner.of_cluster(paths), list[Path]()
    with owner.changing_as(user, paths, doing=f"down of cluster {paths.name}"):
        machines.sweep(paths, keep_data=keep_data)
        if not keep_data:
            with owner.acting_as(user):
                named = clear(paths, keep_data=False, reporter=reporter)
    return DownResult(existed=True, kubeconfigs=tuple(named), seconds=clock.monotonic() - start)


def stop(paths: ClusterPaths, *, reporter: Reporter | None = None, clock: Clock | None = None) -> None:
    """Stop every process of a cluster: through its daemon if it answers, otherwise one by one.

    Changes nothing if none is running.
    """
    clock = clock or SystemClock()
    waiter = PollingWaiter(clock=clock, reporter=reporter or SilentReporter())
    daemon = daemon_process.identity(paths)
    if daemon is not None:
        asked = _ask(paths)
        if not asked:
            RealProcesses().signal(daemon, signal.SIGKILL)
        waiter.until(
            lambda: "it still runs" if RealProcesses().alive(daemon) else None,
            within=_ENDS_WITHIN,
            saying=f"the daemon of cluster {quoted(paths.name)} to end",
            every=0.01,
            at_most=0.05,
            remedy=f"kill -9 {daemon.pid}, then run the same command again",
        )
        daemon_process.reap(daemon)
    waiter.until(lambda: _sweep(paths), within=_ENDS_WITHIN, saying=f"all of cluster {quoted(paths.name)} to end", every=0.01, at_most=0.05)


def _sweep(paths: ClusterPaths) -> str | None:
    """Kill processes that no daemon stopped; None when none is left.

    Daemons are first: one that has just started would start components.
    """
    found = daemon_process.marked_processes(paths)
    if not found:
        return None
    if _kill_daemons(paths):
        _run_in_thread(stop_orphans(daemon_process.mark_of(paths)))
        for one in daemon_process.marked_processes(paths):
            RealProcesses().signal(one, signal.SIGKILL)
    return f"pid {found[0].pid} still runs"


def _kill_daemons(paths: ClusterPaths) -> set[Identity]:
    """Kill the cluster's processes that are not components; returns the components."""
    components = {one.identity for one in find_components(daemon_process.mark_of(paths))}
    for one in daemon_process.marked_processes(paths):
        if one not in components:
            RealProcesses().signal(one, signal.SIGKILL)
    return components


def end_daemons(paths: ClusterPaths) -> None:
    """Kill every daemon of a cluster at once, known or not; components keep running."""
    _kill_daemons(paths)


def _run_in_thread(work: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine to completion in a thread: programs that call `down` may have their own event loop."""

    def run() -> None:
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(work)
        finally:
            loop.close()

    thread = threading.Thread(target=run, name="sweep")
    thread.start()
    thread.join()


def _ask(paths: ClusterPaths) -> bool:
    try:
        ControlClient(paths).stop()
    except (APIError, HostError):  # it hangs, or is an older version: it is killed
        return False
    return True


def clear(paths: ClusterPaths, *, keep_data: bool, reporter: Reporter | None = None) -> list[Path]:
    """Remove the files of a stopped cluster; the lock stays with its holder.

    Raises HostError for files that cannot be removed. Unless its data is kept, it is removed from its user's
    kubeconfigs; those that named it are returned.
    """
    named: list[Path] = []
    if not keep_data and paths.contexts.exists():
        named = kubeconfig.take_out(paths, reporter=reporter)
    kept = {paths.root / name for name in _KEPT} if keep_data else {paths.lock}
    machines = [entry for entry in _entries(paths.machines) if entry.is_dir()]
    if keep_data:
        names = _KEPT_OF_MACHINE if len(machines) < 2 else (*_KEPT_OF_MACHINE, *_KEPT_OF_SEVERAL)
        kept |= {machine / name for machine in machines for name in names}
    _remove_below(paths.root, kept)
    return named


def remove_own(paths: ClusterPaths) -> None:
    """Remove the files of a cluster whose daemon exits because its owner has ended.

    Does nothing while an `up` or `down` is running.
    """
    lock = Lock(PurePosixPath(paths.lock), doing=f"end of cluster {paths.name}")
    if lock.try_acquire() is not None:
        return
    try:
        clear(paths, keep_data=False)
    finally:
        lock.release(remove=True)
    remove_empty(paths.root)


def _remove_below(directory: Path, kept: set[Path]) -> None:
    """Remove the contents of a directory, except the kept files and their parent directories."""
    for entry in _entries(directory):
        if entry in kept:
            continue
        if any(path.is_relative_to(entry) for path in kept):
            _remove_below(entry, kept)
        else:
            remove_tree(PurePosixPath(entry))


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def forget(paths: ClusterPaths) -> None:
    """Run `down` without reporting errors: for clean-up at the end of a program."""
    try:
        down(paths)
    except KubewrightError:  # there is nowhere to report it
        return
