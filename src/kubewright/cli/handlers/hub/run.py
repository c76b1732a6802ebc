"""`hub run`: the daemon."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final

from kubewright.base import logs
from kubewright.base.clock import SystemClock
from kubewright.base.randomness import SystemRandom
from kubewright.cli.handlers import machine
from kubewright.cli.handlers.daemons import leader_election, running, serving
from kubewright.cli.handlers.hub import state
from kubewright.cli.handlers.hub.leading import Leading
from kubewright.cli.parsing.parser import Parsed
from kubewright.enrollment.hub.hub import Hub
from kubewright.enrollment.hub.telemetry import HubMetrics
from kubewright.enrollment.state.clusters import TenantCluster
from kubewright.enrollment.state.store import TAKEN_OVER, HubStore
from kubewright.enrollment.state.store_thread import StoreThread
from kubewright.host.filesystem.files import Files
from kubewright.host.notify import Notifier
from kubewright.http.messages import MIB, Limits
from kubewright.http.proxies import Proxies
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.client import AsyncKubeClient
from kubewright.kube.daemons.electing import FencedKube

FIELD_MANAGER: Final = "kubewright-hub"
_LIMITS: Final = Limits(connections=32, body=8 * MIB)
"""A tenant has twelve watches, each with a separate connection, and answers several requests at a time.

Its API server is not trusted: a list of empty objects takes a hundred times its text in memory, so larger lists are read
page by page.
"""


def run(parsed: Parsed) -> int:
    """Serve until a signal stops the hub; then complete work in flight."""
    found, parsed = state.state_of(parsed), state.CONFIG.with_file(parsed)
    store = found.open(state.event("", TAKEN_OVER), retention=state.retention(parsed))
    leading = _close_on_error(
        store, lambda: found.lead(lambda name, namespace: leader_election.election(parsed, name=name, namespace=namespace))
    )
    logs.configure(max(1, parsed.number("v") or 0))
    from kubewright.http import loop

    return loop.run(lambda: _serve(parsed, store, leading))


def _close_on_error(store: HubStore, make: Callable[[], Leading]) -> Leading:
    """Close the state if it cannot be used."""
    try:
        return make()
    except BaseException:
        store.close()
        raise


async def _serve(parsed: Parsed, store: HubStore, leading: Leading) -> int:
    from kubewright.http.metrics import Registry

    registry, thread, notifier = Registry(), StoreThread(store, require=leading.require), Notifier(os.environ)

    def connect(cluster: TenantCluster) -> AsyncKubeAPI:
        access = state.access(cluster)
        client = AsyncKubeClient(access, field_manager=FIELD_MANAGER, proxies=Proxies.from_environment(os.environ), limits=_LIMITS)
        return FencedKube(client, require=leading.require)

    hub = Hub(thread, connect=connect, clock=SystemClock(), random=SystemRandom(), metrics=HubMetrics(registry), host=machine.host())

    def unready() -> str:
        return "" if leading.waits else hub.unready

    stop_serving = await serving.serve(parsed, files=Files(), ready=unready, metrics=registry, own=None)

    async def alongside() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(leading.maintain(), name="credentials of the state")
            group.create_task(running.report_status(notifier, ready=lambda: not unready(), status=status), name="service manager")

    def status() -> str:
        return "waiting for the lease" if leading.waits else "serving"

    try:
        await running.until_stopped(lambda: leading.run(hub.run), alongside=alongside, stopping=notifier.stopping)
    finally:
        await stop_serving()
        thread.close()
        await leading.close()
    return 0
