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
import signal
import sys
from pathlib import Path
from typing import Final

from kubewright.base.clock import SystemClock
from kubewright.base.errors import KubewrightError
from kubewright.base.unexpected import keep_running
from kubewright.host.processes import Identity, RealProcesses
from kubewright.http.tls import serves_async
from kubewright.local import daemon_main, daemon_process, record
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
    """Run until stopped, with the exit codes of `daemon_main.run`."""
    paths = ClusterPaths(Path(sys.argv[1]))
    return daemon_main.run(paths, lambda: _serve(paths), cluster=paths.name)


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
        keep_running(
            "the state directory", lambda: daemon_main.watch_directory(paths.root, removed, every=DIRECTORY_CHECK_EVERY), expected=()
        ),
        name="state directory",
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


async def _first(*waited: asyncio.Event) -> None:
    tasks = [asyncio.create_task(event.wait()) for event in waited]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    sys.exit(main())
