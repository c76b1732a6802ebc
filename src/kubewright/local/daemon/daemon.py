"""The daemon of one local cluster: `python -m kubewright.local.daemon.daemon STATE_DIRECTORY`.

    starting ──> supervising ──> serving ── stop request ────> stopping ──> gone (components stopped)
                                    ├────── the owner ended ──> stopping ──> gone (components stopped, files removed)
                                    ├────── files removed ────> stopping ──> gone (components stopped)
                                    └────── SIGTERM ──────────> released (components keep running)

The supervisor starts first and imports nothing heavy, because etcd waits for it. The HTTP libraries, the node agents
and the control socket are loaded while the API server starts. A daemon that dies leaves the components running; the
next one adopts them.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from pathlib import Path, PurePosixPath
from typing import Final

from kubewright.base import logs
from kubewright.base.clock import SystemClock
from kubewright.base.errors import KubewrightError, Locked
from kubewright.base.unexpected import keep_running
from kubewright.host.locks import Lock
from kubewright.host.processes import Identity, RealProcesses
from kubewright.http import loop
from kubewright.http.tls import serves_async
from kubewright.local import daemon_process, record
from kubewright.local.daemon.machines import MachineSupervisors
from kubewright.local.paths import ClusterPaths

DIRECTORY_CHECK_EVERY: Final = 2.0
"""Seconds between two checks whether the state directory still exists."""
HEAD_START: Final = 1.2
"""Seconds that the API server gets at most before the daemon loads its remaining parts.

No client can ask about the cluster until then.
"""
_PORT_CHECK_EVERY: Final = 0.02


def main() -> int:
    """Run until stopped.

    Exit code 75 if another daemon serves this cluster, 1 on an error of ours, which is in the log.
    """
    logs.configure()
    paths = ClusterPaths(Path(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # we hold keys: write no core dumps
    os.umask(0o077)
    lock = Lock(PurePosixPath(paths.root / "daemon.lock"), doing=f"daemon of cluster {paths.name}")
    try:
        lock.acquire()
        daemon_process.write_identity(paths)
        loop.run(lambda: _serve(paths))
    except Locked as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except KubewrightError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


async def _serve(paths: ClusterPaths) -> None:
    cluster = record.load(paths.record)
    if cluster is None:
        raise KubewrightError(f"{paths.root} contains no cluster")
    settings = daemon_process.read_settings(paths)
    stopping = asyncio.Event()
    released = asyncio.Event()
    running = asyncio.get_running_loop()
    running.add_signal_handler(signal.SIGTERM, released.set)
    machines = MachineSupervisors(paths, cluster, settings)
    await machines.start()
    await _head_start(machines.first)
    from kubewright.local.daemon.control_server import ControlServer  # loads the HTTP libraries: only now

    server = ControlServer(paths, cluster, machines, stopping=stopping, clock=SystemClock())
    await server.start()
    orphaned = asyncio.Event()
    owner = _watch_owner(settings.owner, orphaned)
    removed = asyncio.Event()
    watch = asyncio.create_task(
        keep_running("the state directory", lambda: _watch_directory(paths.root, removed), expected=()), name="state directory"
    )
    try:
        await _first(stopping, released, orphaned, removed)
    finally:
        watch.cancel()
        if owner is not None:
            running.remove_reader(owner)
            os.close(owner)
        await server.stop()
        ending = stopping.is_set() or orphaned.is_set() or removed.is_set() or not released.is_set()
        await (machines.stop() if ending else machines.release())
        await server.close()
        if orphaned.is_set() and not stopping.is_set() and not removed.is_set():
            from kubewright.local.cluster.down import remove_own

            await asyncio.to_thread(remove_own, paths)


async def _head_start(machine: record.LocalMachineRecord) -> None:
    """Leave the processors to the API server until it serves: loading the rest would delay it by a fifth of a second."""
    end = asyncio.get_running_loop().time() + HEAD_START
    while (left := end - asyncio.get_running_loop().time()) > 0:
        if await serves_async(machine.address, machine.ports["api_server"], within=left):
            return
        await asyncio.sleep(_PORT_CHECK_EVERY)


def _watch_owner(owner: str, orphaned: asyncio.Event) -> int | None:
    """Stop the cluster when its owner process ends in any way."""
    if not owner:
        return None
    handle = RealProcesses().handle(Identity.parse(owner))
    if handle is None:
        orphaned.set()
        return None
    asyncio.get_running_loop().add_reader(handle, orphaned.set)
    return handle


async def _watch_directory(root: Path, gone: asyncio.Event) -> None:
    """Detect the removal of the state directory: then no other program can find and stop the processes."""
    mine = _inode(root)
    while _inode(root) == mine:
        await asyncio.sleep(DIRECTORY_CHECK_EVERY)
    gone.set()


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


async def _first(*waited: asyncio.Event) -> None:
    tasks = [asyncio.create_task(event.wait()) for event in waited]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    sys.exit(main())
