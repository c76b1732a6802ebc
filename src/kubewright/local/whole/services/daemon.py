"""The daemon of one cluster of machines.

    python -m kubewright.local.whole.services.daemon RUNTIME_DIRECTORY CLUSTER_DIRECTORY OWNER OUTLIVED

    starting ──> serving ── SIGTERM, or its directory was removed ──> stopping ──> gone

OWNER is the user who may call it besides root. OUTLIVED is the identity of a process that the cluster must not outlive,
'' if there is none: when it has ended in any way, `down` is started, which also stops the daemon.

It runs as root. What it creates on the host disappears with it (listening ports) or with the bridge of the cluster
(routes); everything else is an object of the cluster. A daemon that is started again takes over existing routes and
objects.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from kubewright.base.errors import HostError
from kubewright.base.unexpected import keep_running
from kubewright.host.detached import DetachedProcess
from kubewright.host.processes import Identity, RealProcesses
from kubewright.http import loop
from kubewright.local import daemon_main
from kubewright.local.paths import ClusterPaths
from kubewright.local.whole import members
from kubewright.local.whole.services import commands
from kubewright.machines import firewall
from kubewright.machines.group import bridge_of

_log = logging.getLogger(__name__)

FIREWALL_CHECK_EVERY: Final = 5.0
"""Seconds between two checks of the host's firewalls."""
_LOOK_EVERY: Final = 0.2
DIRECTORY_CHECK_EVERY: Final = 5.0
"""Seconds between two checks whether the daemon's directory still exists."""


def main() -> int:
    """Run until stopped, with the exit codes of `daemon_main.run`."""
    own, paths = ClusterPaths(Path(sys.argv[1])), ClusterPaths(Path(sys.argv[2]))
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:  # `up` was started by nohup, or in the background: programs would inherit that
            signal.signal(number, signal.SIG_DFL)
    return daemon_main.run(own, lambda: _serve(own, paths, owner=int(sys.argv[3]), outlived=sys.argv[4]), cluster=paths.name)


async def _serve(own: ClusterPaths, paths: ClusterPaths, *, owner: int, outlived: str) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    from kubewright.http.serving import serve_unix
    from kubewright.local.whole.services import control_server
    from kubewright.local.whole.services.cluster import ClusterServices
    from kubewright.local.whole.services.forwarding import Forwarder
    from kubewright.local.whole.services.program_server import ProgramServer
    from kubewright.local.whole.services.states import MachineStates

    states = MachineStates(paths)
    forwarder = Forwarder(lambda: [address for addresses in states.running.values() for address in addresses])
    states.subscribe(forwarder.look_again)
    programs = ProgramServer(own, states.found, owner=owner)
    server = await serve_unix(control_server.routes(own, paths, states, forwarder), path=own.socket, owner=owner)
    works: dict[str, Callable[[], Awaitable[None]]] = {
        "machines": states.run,
        "programs of the owner": programs.run,
        "services of the cluster": ClusterServices(paths, states).run,
        "the host's firewalls": lambda: _keep_exceptions(bridge_of(members.group_name(paths))),
        "the daemon's directory": lambda: daemon_main.watch_directory(own.root, stopping, every=DIRECTORY_CHECK_EVERY),
    }
    if outlived:
        works["the end of the cluster"] = lambda: _remove_after(Identity.parse(outlived), own, paths)
    tasks = [asyncio.create_task(keep_running(name, run, expected=()), name=name) for name, run in works.items()]
    try:
        await stopping.wait()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        programs.close()
        await forwarder.close()
        await server.stop()


async def _keep_exceptions(bridge: str) -> None:
    """Add the exceptions of the host's firewalls again that a reload has removed."""
    while True:
        await asyncio.sleep(FIREWALL_CHECK_EVERY)
        try:
            changed = await asyncio.to_thread(firewall.ensure, bridge)
        except HostError as error:
            _log.warning("the host's firewalls: tried again in %.0f s: %s", FIREWALL_CHECK_EVERY, error)
            continue
        if changed:
            _log.info("the exceptions for %s in %s were missing and have been added again", bridge, ", ".join(changed))


async def _remove_after(process: Identity, own: ClusterPaths, paths: ClusterPaths) -> None:
    """Run `down` when a process has ended, until it succeeds: something else may hold the lock of the cluster."""
    handle = RealProcesses().handle(process)
    if handle is not None:
        try:
            await loop.readable(handle)
        finally:
            os.close(handle)
    _log.info("the process that the cluster must not outlive has ended: the cluster is removed")
    argv, environment = commands.argv(paths, "down"), commands.environment(own)
    while True:
        down = DetachedProcess(argv, stdin=subprocess.DEVNULL, start_new_session=True, cwd="/", env=environment)
        while down.poll() is None:
            await asyncio.sleep(_LOOK_EVERY)
        await asyncio.sleep(DIRECTORY_CHECK_EVERY)


if __name__ == "__main__":
    sys.exit(main())
