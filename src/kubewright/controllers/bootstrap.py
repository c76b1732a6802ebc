"""The bootstrap controllers: they sign cluster-info, and delete expired bootstrap tokens."""

from __future__ import annotations

import logging

from kubewright.base.clock import Clock
from kubewright.base.errors import Conflict, NotFound
from kubewright.controllers import bootstrap_tokens
from kubewright.controllers.bootstrap_tokens import Delete, LookAgain, Update
from kubewright.controllers.telemetry import Telemetry
from kubewright.kube.answers import EventType, WatchEvent
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import identity_of
from kubewright.kube.daemons.controller import Again, SharedInformer, Workers
from kubewright.kube.daemons.queueing import WorkQueue, default_limiter
from kubewright.kube.resources import SECRET
from kubewright.tokens import cluster_info, secrets

_log = logging.getLogger(__name__)

LONGEST_SLEEP = 3600.0
"""Seconds after which the wall clock is read again: it may have been set, or the machine may have slept."""


class BootstrapSigner:
    """Keeps the signatures of cluster-info up to date.

    All events map to one key, so that one pass handles many.
    """

    name = "bootstrapsigner"

    def __init__(
        self, api: AsyncKubeAPI, config_maps: SharedInformer, token_secrets: SharedInformer, *, clock: Clock, telemetry: Telemetry
    ) -> None:
        self._api = api
        self._config_maps = config_maps
        self._secrets = token_secrets
        self._clock = clock
        self._telemetry = telemetry
        self._queue: WorkQueue[str] = WorkQueue(default_limiter(), name="bootstrap_signer_queue", metrics=telemetry.queues)

    async def run(self) -> None:
        """Work until cancelled."""
        for informer in (self._config_maps, self._secrets):
            await informer.wait_synced()
        for informer in (self._config_maps, self._secrets):
            informer.subscribe(self._on_event)
        await Workers(self.name, queue=self._queue, handle=self._handle, count=1).run()

    def _on_event(self, event: WatchEvent) -> None:
        self._queue.add(f"{cluster_info.NAMESPACE}/{cluster_info.NAME}")

    async def _handle(self, key: str) -> None:
        """Sign again if needed.

        A conflict is retried, whereas kube-controller-manager waits for the next event.
        """
        found = self._config_maps.get(cluster_info.NAME, cluster_info.NAMESPACE)
        decision = bootstrap_tokens.signatures(found, self._secrets.objects.values(), now=self._clock.now())
        if isinstance(decision, Update):
            await self._api.update(decision.config_map)
            _log.info("configmap %s has new signatures", key)
            self._telemetry.outcome(self.name, "updated")


class TokenCleaner:
    """Deletes bootstrap tokens when they have expired."""

    name = "tokencleaner"

    def __init__(self, api: AsyncKubeAPI, token_secrets: SharedInformer, *, clock: Clock, telemetry: Telemetry) -> None:
        self._api = api
        self._secrets = token_secrets
        self._clock = clock
        self._telemetry = telemetry
        self._queue: WorkQueue[str] = WorkQueue(default_limiter(), name="token_cleaner", metrics=telemetry.queues)

    async def run(self) -> None:
        """Work until cancelled."""
        self._secrets.subscribe(self._on_event)
        await self._secrets.wait_synced()
        await Workers(self.name, queue=self._queue, handle=self._handle, count=1).run()

    def _on_event(self, event: WatchEvent) -> None:
        name, _ = identity_of(event.object)
        if event.type is not EventType.DELETED:
            self._queue.add(name)

    async def _handle(self, name: str) -> Again | None:
        """Delete a token if it has expired; the queue retries failures, unlike in kube-controller-manager."""
        found = self._secrets.get(name, secrets.NAMESPACE)
        if found is None:
            return None
        match bootstrap_tokens.expiry(found, now=self._clock.now()):
            case LookAgain(after=after):
                return min(after, LONGEST_SLEEP)
            case Delete(uid=uid, version=version):
                try:
                    await self._api.delete(SECRET, name, secrets.NAMESPACE, uid=uid, resource_version=version)
                    _log.info("secret %s is deleted: the token has expired", name)
                    self._telemetry.outcome(self.name, "deleted")
                except (NotFound, Conflict):
                    _log.debug("secret %s was deleted or changed: its event will follow", name)
        return None
