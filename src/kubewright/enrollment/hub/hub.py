"""A hub: one process that serves any number of tenant clusters, isolated from each other.

made ── run() ──> a task for each cluster ── a cluster is added, changed or removed ──> its task is restarted, or ends
                                          ── a task fails ──> it is restarted after a pause; the others are not affected
                                          ── cancelled ──> work in flight ends
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from kubewright.base import unexpected
from kubewright.base.clock import Clock
from kubewright.base.errors import KubewrightError
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass
from kubewright.base.wait import Backoff
from kubewright.enrollment.hub.expiry import CertificateEnds
from kubewright.enrollment.hub.telemetry import HubMetrics
from kubewright.enrollment.hub.tenant_context import TenantContext
from kubewright.enrollment.hub.tenants import Tenant
from kubewright.enrollment.state.clusters import LoadedCluster, TenantCluster
from kubewright.enrollment.state.store_thread import StoreThread
from kubewright.enrollment.vpn import hub_tunnels
from kubewright.enrollment.vpn.hub_tunnels import HubTunnel
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.daemons.controller import first_error
from kubewright.pki.keys import KeyPool

if TYPE_CHECKING:
    from kubewright.host.seam import Host

_log = logging.getLogger(__name__)

LOOK: Final = 0.5
"""Seconds between two checks whether a command has changed the state.

The check reads a number in memory-mapped files.
"""
AGAIN: Final = Backoff(first=1.0, factor=2.0, limit=60.0, jitter=0.5)

Connect = Callable[[TenantCluster], AsyncKubeAPI]
"""Makes the client of a tenant cluster. Raises the error of an unusable kubeconfig."""


@dataclass(kw_only=True, eq=False)
class _Served:
    """A cluster that is served. `tenant` is None while it cannot be served."""

    cluster: TenantCluster
    task: asyncio.Task[None]
    tenant: Tenant | None = None


class Hub:
    """Serves the clusters of a store. Nothing is read or written before `run`."""

    def __init__(
        self,
        store: StoreThread,
        *,
        connect: Connect,
        clock: Clock,
        random: Random,
        metrics: HubMetrics | None = None,
        host: Host | None = None,
    ) -> None:
        self._store = store
        self._connect = connect
        self._clock = clock
        self._random = random
        self._metrics = metrics
        self._host = host
        self._keys = KeyPool()
        self._served: dict[str, _Served] = {}
        self._read = False
        if metrics is not None:
            metrics.follow_clusters(lambda: float(len(self._served)))

    @property
    def unready(self) -> str:
        """Why the hub is not ready, '' if it is. A hub that cannot reach one cluster is ready for the others."""
        return "" if self._read else "the state has not been read yet"

    async def run(self) -> None:
        """Run until cancelled.

        Raises if the state cannot be read at the start; later such errors are logged and retried.
        """
        try:
            await unexpected.keep_running("the state of the hub", self._follow_state, random=self._random)
        finally:
            await self._end(list(self._served))
            self._keys.close()

    async def _follow_state(self) -> None:
        version: int | None = None
        pauses = AGAIN.pauses(self._random)
        while True:
            try:
                found = await self._store.ask(lambda store: store.version())
                if found != version:
                    await self._follow()
                    version, pauses = found, AGAIN.pauses(self._random)
                pause = LOOK
            except KubewrightError as error:
                if not self._read:
                    raise
                pause = next(pauses)
                _log.warning("the state cannot be read; trying again in %.1f s: %s", pause, error)
            await asyncio.sleep(pause)

    async def _follow(self) -> None:
        """Serve the clusters that are currently in the store."""
        wanted = {cluster.name: cluster for cluster in await self._store.ask(lambda store: store.clusters())}
        ended = [served.cluster for name, served in self._served.items() if not _same(wanted.get(name), served.cluster)]
        await self._end([cluster.name for cluster in ended])
        for cluster in ended:
            await self._remove_tunnel(cluster, wanted.get(cluster.name))
        for name, cluster in wanted.items():
            served = self._served.get(name)
            if served is None:
                self._serve(cluster)
            elif served.tenant is not None:
                served.tenant.look_again()
        self._read = True

    def _serve(self, cluster: TenantCluster) -> None:
        _log.info("%s is served at %s, approval: %s", cluster.name, cluster.server, cluster.approval)
        task = asyncio.create_task(self._keep_serving(cluster), name=f"tenant {cluster.name}")
        self._served[cluster.name] = _Served(cluster=cluster, task=task)

    async def _keep_serving(self, cluster: TenantCluster) -> None:
        """Serve one cluster, restarting after each failure: its errors do not affect the others."""
        pauses = AGAIN.pauses(self._random)
        while True:
            started = asyncio.get_running_loop().time()
            try:
                await self._serve_once(cluster)
            except* KubewrightError as errors:
                _log.warning("%s cannot be served: %s", cluster.name, first_error(errors))
            except* Exception as errors:
                _log.error("%s is not served for now", cluster.name)
                unexpected.report("serving a cluster", errors)
            if asyncio.get_running_loop().time() - started > unexpected.LASTED:
                pauses = AGAIN.pauses(self._random)
            await asyncio.sleep(next(pauses))

    async def _serve_once(self, cluster: TenantCluster) -> None:
        loaded = await asyncio.to_thread(LoadedCluster, cluster)
        api = self._connect(cluster)
        try:
            ctx = TenantContext(
                loaded=loaded,
                api=api,
                store=self._store,
                clock=self._clock,
                random=self._random,
                ends=CertificateEnds(cluster.kubelet_config),
                metrics=self._metrics,
                tunnel=self._tunnel(cluster),
            )
            tenant = Tenant(ctx, keys=self._keys)
            self._served[cluster.name].tenant = tenant
            if self._metrics is not None:
                self._metrics.follow_ends(cluster.name, partial(self._first_end, cluster.name))
            await tenant.run()
        finally:
            await api.close()

    def _first_end(self, name: str) -> float:
        served = self._served.get(name)
        return served.tenant.ends.first if served is not None and served.tenant is not None else float("inf")

    def _tunnel(self, cluster: TenantCluster) -> HubTunnel | None:
        return HubTunnel(cluster.vpn, cluster.vpn_key, host=self._host) if cluster.vpn is not None and self._host is not None else None

    async def _remove_tunnel(self, before: TenantCluster, now: TenantCluster | None) -> None:
        """Remove the interface of a cluster whose VPN was removed or renamed."""
        kept = now.vpn.interface if now is not None and now.vpn is not None else ""
        if before.vpn is None or self._host is None or before.vpn.interface == kept:
            return
        try:
            await asyncio.to_thread(hub_tunnels.remove, self._host, before.vpn)
        except KubewrightError as error:
            _log.warning("%s: %s stays: %s", before.name, before.vpn.interface, error)

    async def _end(self, names: list[str]) -> None:
        tasks = [self._served.pop(name).task for name in names]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _same(now: TenantCluster | None, served: TenantCluster) -> bool:
    """Whether the served cluster is the stored one, unchanged: the store refuses decisions made for an older one."""
    return now == served and now.generation == served.generation
