"""bootstrapsigner and tokencleaner: they sign cluster-info, and delete expired bootstrap tokens.

Source: Kubernetes v1.36: pkg/controller/bootstrap.

kube-controller-manager signs with any token secret that is not empty; `tokens.secrets.parse_secret` requires 16
characters. The lenient rule applies here, because otherwise signatures that kube-controller-manager keeps would be
removed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from kubewright.base.clock import Clock
from kubewright.base.encoding import decode_base64
from kubewright.base.errors import Conflict, NotFound
from kubewright.base.masking import remember
from kubewright.base.records import dataclass
from kubewright.controllers.requests import Nothing
from kubewright.controllers.telemetry import Telemetry
from kubewright.kube import core
from kubewright.kube.answers import EventType, WatchEvent
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object, identity_of
from kubewright.kube.daemons.controller import Again, SharedInformer, Workers
from kubewright.kube.daemons.queueing import WorkQueue, default_limiter
from kubewright.kube.resources import SECRET
from kubewright.tokens import cluster_info, secrets, strings
from kubewright.tokens.secrets import SIGNING, StoredToken
from kubewright.tokens.strings import BootstrapTokenString

_log = logging.getLogger(__name__)

LONGEST_SLEEP = 3600.0
"""Seconds after which the wall clock is read again: it may have been set, or the machine may have slept."""


@dataclass(frozen=True, kw_only=True)
class Update:
    """Write this ConfigMap."""

    config_map: Object


@dataclass(frozen=True, kw_only=True)
class Delete:
    """Delete the Secret if it is unchanged since it was observed."""

    uid: str
    version: str


@dataclass(frozen=True, kw_only=True)
class LookAgain:
    """The token expires after this many seconds."""

    after: float


def signatures(config_map: Object | None, token_secrets: Iterable[Mapping[str, Any]], *, now: datetime) -> Update | Nothing:
    """Decide whether to write cluster-info, so that it has exactly the signatures of the tokens that may sign now."""
    if config_map is None:
        return Nothing(reason="there is no cluster-info")
    changed = cluster_info.signed(config_map, signing_tokens(token_secrets), now=now)
    return Nothing(reason="its signatures are right, or it contains nothing to sign") if changed is None else Update(config_map=changed)


def signing_tokens(token_secrets: Iterable[Mapping[str, Any]]) -> Iterator[StoredToken]:
    """Yield the tokens of the Secrets that may be used for signing, whether or not they have expired."""
    for secret in token_secrets:
        name, _ = core.identity_of(secret)
        id_, key = _value(secret, "token-id"), _value(secret, "token-secret")
        named = name.removeprefix(secrets.PREFIX)
        if secret.get("type") != secrets.TYPE or name == named or not strings.ID.fullmatch(named) or id_ != named or not key:
            continue
        signs = _value(secret, "usage-bootstrap-signing") == "true"
        yield StoredToken(
            token=BootstrapTokenString(id_, remember(key)),
            expiration=_expiration(secret),
            usages=(SIGNING,) if signs else (),
        )


def expiry(secret: Mapping[str, Any], *, now: datetime) -> Delete | LookAgain | Nothing:
    """Decide about a token Secret.

    Its name and token are not checked: an expired Secret is deleted even if it is malformed.
    """
    if secret.get("type") != secrets.TYPE:
        return Nothing(reason="it is not a bootstrap token")
    text = _expiration(secret)
    if not text:
        return Nothing(reason="it does not expire")
    end = secrets.parse_moment(text)
    if end is None or end <= now:
        seen = core.metadata(secret)
        return Delete(uid=str(seen.get("uid") or ""), version=str(seen.get("resourceVersion") or ""))
    return LookAgain(after=(end - now).total_seconds())


def _expiration(secret: Mapping[str, Any]) -> str:
    """Return when a token expires. Bytes that are not text are no time either, and do not mean that it never expires."""
    return _value(secret, "expiration", errors="replace")


def _value(secret: Mapping[str, Any], key: str, *, errors: str = "strict") -> str:
    """Return one value as text; '' if it is missing or not text."""
    data = secret.get("data")
    value = data.get(key) if isinstance(data, Mapping) else None
    try:
        return decode_base64(value).decode(errors=errors) if isinstance(value, str) else ""
    except ValueError:
        return ""


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
        decision = signatures(found, self._secrets.objects.values(), now=self._clock.now())
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
        match expiry(found, now=self._clock.now()):
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
