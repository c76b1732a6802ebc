"""The shared context of the work for one tenant cluster: the cluster, its API, the hub's state of it, and reporting."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Any

from kubewright.apis.join_records import JoinRecord
from kubewright.base.clock import Clock, rfc3339
from kubewright.base.errors import NotFound
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass
from kubewright.enrollment.hub.expiry import CertificateEnds
from kubewright.enrollment.hub.telemetry import HubMetrics
from kubewright.enrollment.state.clusters import LoadedCluster, TenantCluster
from kubewright.enrollment.state.store import Event, Overtaken
from kubewright.enrollment.state.store_thread import StoreThread
from kubewright.enrollment.vpn.hub_tunnels import HubTunnel
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object
from kubewright.kube.daemons.controller import NotNow

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, eq=False)
class TenantContext:
    """One cluster, and the means to work for it.

    `ends` are its certificates' expiry times, once the records have been read.
    """

    loaded: LoadedCluster
    api: AsyncKubeAPI
    store: StoreThread
    clock: Clock
    random: Random
    ends: CertificateEnds
    metrics: HubMetrics | None = None
    tunnel: HubTunnel | None = None

    @property
    def cluster(self) -> TenantCluster:
        """The stored cluster."""
        return self.loaded.cluster

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.cluster.name

    def event(self, event: str, node: str, **details: Any) -> Event:
        """Return a journal event about this cluster."""
        return Event(at=rfc3339(self.clock.now()), cluster=self.name, event=event, node=node, details=details)

    async def keep(self, record: JoinRecord, event: Event, *, before: JoinRecord | None, digest: str = "") -> None:
        """Save a record over the record `before` that it was decided on.

        Raises Taken, and NotNow if something has changed since.
        """
        generation = self.cluster.generation
        try:
            await self.store.ask(lambda store: store.keep(record, event, before=before, digest=digest, generation=generation))
        except Overtaken as error:
            raise NotNow(str(error), quiet=True) from error

    async def ignoring_gone(self, call: Awaitable[Object]) -> None:
        """Make a call about an object that may have been deleted or replaced; the watch reports that."""
        try:
            await call
        except NotFound:
            _log.debug("%s: an object was deleted in the meantime", self.name)
