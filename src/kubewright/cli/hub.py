"""`hub run`: the daemon."""

from __future__ import annotations

import os
from typing import Final

from kubewright.base import logs
from kubewright.base.clock import SystemClock
from kubewright.base.randomness import SystemRandom
from kubewright.cli import daemon_serving, daemons, hub_state, machine
from kubewright.cli.parser import Parsed
from kubewright.enrollment.clusters import TenantCluster
from kubewright.enrollment.hub import Hub
from kubewright.enrollment.store import HubStore
from kubewright.enrollment.store_thread import StoreThread
from kubewright.enrollment.telemetry import HubMetrics
from kubewright.host.files import Files
from kubewright.host.notify import Notifier
from kubewright.http.messages import Limits
from kubewright.http.proxies import Proxies
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.client import AsyncKubeClient

FIELD_MANAGER: Final = "kubewright-hub"
_LIMITS: Final = Limits(connections=32)
"""A tenant has ten watches, each with a connection of its own, and answers several requests at a time."""


def run(parsed: Parsed) -> int:
    """Serve until a signal stops it; then end what is in flight."""
    parsed = hub_state.CONFIG.with_file(parsed)
    store = hub_state.open_store(parsed, retention=hub_state.retention(parsed))
    logs.configure(max(1, parsed.number("v") or 0))
    from kubewright.http import loop

    return loop.run(lambda: _serve(parsed, store))


async def _serve(parsed: Parsed, store: HubStore) -> int:
    from kubewright.http.metrics import Registry

    registry, thread, notifier = Registry(), StoreThread(store), Notifier(os.environ)
    hub = Hub(thread, connect=_connect, clock=SystemClock(), random=SystemRandom(), metrics=HubMetrics(registry), host=machine.host())
    stop_serving = await daemon_serving.serve(parsed, files=Files(), ready=lambda: hub.unready, metrics=registry, own=None)

    async def beside() -> None:
        await daemons.keep_told(notifier, ready=lambda: not hub.unready, status=lambda: "serving")

    try:
        await daemons.until_stopped(hub.run, beside=beside, stopping=notifier.stopping)
    finally:
        await stop_serving()
        thread.close()
    return 0


def _connect(cluster: TenantCluster) -> AsyncKubeAPI:
    access = hub_state.access(cluster)
    return AsyncKubeClient(access, field_manager=FIELD_MANAGER, proxies=Proxies.from_environment(os.environ), limits=_LIMITS)
