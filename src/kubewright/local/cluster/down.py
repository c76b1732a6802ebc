"""`down`: stop a local cluster and remove what it left. Works whatever is left: a daemon that hangs, one that died, components alone."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, Final

from kubewright.base.clock import Clock, SystemClock
from kubewright.base.errors import APIError, HostError, KubewrightError
from kubewright.base.events import Reporter, SilentReporter
from kubewright.base.records import dataclass
from kubewright.base.wait import PollingWaiter
from kubewright.host.locks import Lock
from kubewright.host.processes import Identity, RealProcesses
from kubewright.host.trees import remove_tree
from kubewright.local import daemon_process
from kubewright.local.cluster import kubeconfig
from kubewright.local.cluster.daemon_client import ControlClient
from kubewright.local.paths import ClusterPaths
from kubewright.local.supervisor.process import stop_orphans
from kubewright.local.supervisor.procfs import find_components

_KEPT: Final = ("cluster.json", "contexts.json", "lock")
_KEPT_OF_MACHINE: Final = ("etcd", "kubernetes/pki")
_KEPT_OF_SEVERAL: Final = ("kubernetes/manifests/etcd.yaml", "kubernetes/kubelet.conf", "kubelet/pki")
"""What the members of etcd need to find each other, and the nodes to be who they were: nothing answers before most members are up."""


@dataclass(frozen=True, kw_only=True)
class DownResult:
    """The result of `down`.

    `existed` is False if there was no such cluster; `kubeconfigs` are those that named it.
    """

    existed: bool
    kubeconfigs: tuple[Path, ...] = ()
    seconds: float = 0.0


def down(paths: ClusterPaths, *, keep_data: bool = False, reporter: Reporter | None = None, clock: Clock | None = None) -> DownResult:
    """Stop a cluster and remove its files; with `keep_data` etcd's data and the certificates stay, and the next `up` resumes.

    A cluster that does not exist is not an error. Raises Locked while an `up` or another `down` is at work.
    """
    clock = clock or SystemClock()
    start = clock.monotonic()
    if not paths.root.is_dir():
        existed = bool(daemon_process.marked_processes(paths))  # the files of a running cluster were removed
        stop(paths, reporter=reporter, clock=clock)
        return DownResult(existed=existed, seconds=clock.monotonic() - start)
    lock = Lock(PurePosixPath(paths.lock), doing=f"down of cluster {paths.name}", clock=clock)
    lock.acquire()
    try:
        stop(paths, reporter=reporter, clock=clock)
        named = clear(paths, keep_data=keep_data, reporter=reporter)
    finally:
        lock.release(remove=not keep_data)
    if not keep_data:
        _remove_root(paths)
    return DownResult(existed=True, kubeconfigs=tuple(named), seconds=clock.monotonic() - start)


def stop(paths: ClusterPaths, *, reporter: Reporter | None = None, clock: Clock | None = None) -> None:
    """End every process of a cluster: through its daemon where it answers, one by one where not. Changes nothing if none runs."""
    clock = clock or SystemClock()
    waiter = PollingWaiter(clock=clock, reporter=reporter or SilentReporter())
    daemon = daemon_process.identity(paths)
    if daemon is not None:
        asked = _ask(paths)
        if not asked:
            RealProcesses().signal(daemon, signal.SIGKILL)
        waiter.until(
            lambda: "it still runs" if RealProcesses().alive(daemon) else None,
            within=20.0,
            saying=f"the daemon of cluster {paths.name!r} to end",
            every=0.01,
            at_most=0.05,
            remedy=f"kill -9 {daemon.pid}, then run the same command again",
        )
        daemon_process.reap(daemon)
    waiter.until(lambda: _sweep(paths), within=20.0, saying=f"all of cluster {paths.name!r} to end", every=0.01, at_most=0.05)


def _sweep(paths: ClusterPaths) -> str | None:
    """End what no daemon ended; None when nothing is left. First whatever is no component: a daemon that began a moment ago would go on."""
    found = daemon_process.marked_processes(paths)
    if not found:
        return None
    if _kill_daemons(paths):
        _apart(stop_orphans(daemon_process.mark_of(paths)))
        for one in daemon_process.marked_processes(paths):
            RealProcesses().signal(one, signal.SIGKILL)
    return f"pid {found[0].pid} still runs"


def _kill_daemons(paths: ClusterPaths) -> set[Identity]:
    """Kill what is marked and is no component; returns the components."""
    components = {one.identity for one in find_components(daemon_process.mark_of(paths))}
    for one in daemon_process.marked_processes(paths):
        if one not in components:
            RealProcesses().signal(one, signal.SIGKILL)
    return components


def end_daemons(paths: ClusterPaths) -> None:
    """End every daemon of a cluster, known or not, at once; components go on."""
    _kill_daemons(paths)


def _apart(work: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine to its end in a thread: `down` is for programs too, and those may have an event loop of their own."""

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
    except (APIError, HostError):  # it hangs, or is from before an update: it is ended without its help
        return False
    return True


def clear(paths: ClusterPaths, *, keep_data: bool, reporter: Reporter | None = None) -> list[Path]:
    """Remove the files of a cluster that does not run; the lock stays with its holder. Raises HostError for what cannot be removed.

    Unless its data is kept, it is taken out of its user's kubeconfigs; those that named it are returned.
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
    """Remove the files of a cluster whose daemon ends by itself, because its owner has ended. Left alone while an `up` or `down` is at work."""
    lock = Lock(PurePosixPath(paths.lock), doing=f"end of cluster {paths.name}")
    if lock.try_acquire() is not None:
        return
    try:
        clear(paths, keep_data=False)
    finally:
        lock.release(remove=True)
    _remove_root(paths)


def _remove_root(paths: ClusterPaths) -> None:
    with suppress(OSError):  # the next `up` of this name has begun already
        paths.root.rmdir()


def _remove_below(directory: Path, kept: set[Path]) -> None:
    """Remove what is in a directory, but for what is kept and the directories that lead there."""
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
    """Do what `down` does without telling of anything that cannot be done: for clean-up at the end of a program."""
    try:
        down(paths)
    except KubewrightError:  # nothing is left to report it to
        return
