"""Events about objects, shown by `kubectl describe` (client-go: tools/record). Best effort: work never waits for an event."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final, Literal

from kubewright.apis import formats
from kubewright.base.clock import Clock, rfc3339
from kubewright.base.errors import KubewrightError
from kubewright.base.randomness import Random
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object, metadata
from kubewright.kube.daemons.queueing import TokenBucket

_log = logging.getLogger(__name__)

WAITING: Final = 1000
"""How many events may wait to be sent; further ones are dropped."""
RATE: Final = 10.0
"""Events per second, after the first hundred."""
_BURST: Final = 100
_LONGEST: Final = 1024
"""The API's limit for the characters of a message."""
_DEFAULT: Final = "default"
"""The namespace of events about objects without a namespace."""


class EventRecorder:
    """Sends events as one component. `instance` identifies the process among those of the component, `host` the machine.

    made ── event() ──> waiting ── run() ──> sent, or dropped
    """

    def __init__(self, api: AsyncKubeAPI, *, component: str, instance: str, clock: Clock, random: Random, host: str = "") -> None:
        self._api = api
        self._component = component
        self._instance = instance
        self._source = {"component": component, **({"host": host} if host else {})}
        self._clock = clock
        self._random = random
        self._bucket: TokenBucket[str] = TokenBucket(rate=RATE, burst=_BURST)
        self._waiting: asyncio.Queue[Object] = asyncio.Queue(WAITING)

    def event(self, about: Mapping[str, Any], *, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Queue an event about an object. Returns at once and raises nothing."""
        try:
            self._waiting.put_nowait(self._body(about, kind=kind, reason=reason, message=message))
        except asyncio.QueueFull:
            _log.debug("an event is dropped: %s %s", reason, message)

    async def run(self) -> None:
        """Send until cancelled. An event that cannot be sent is dropped."""
        while True:
            body = await self._waiting.get()
            await asyncio.sleep(self._bucket.delay(""))
            try:
                await self._api.create(body)
            except KubewrightError as error:
                _log.info("an event is dropped: %s %s: %s", body["reason"], body["message"], error)
            self._waiting.task_done()

    async def settled(self) -> None:
        """Wait until all queued events are sent or dropped."""
        await self._waiting.join()

    def _body(self, about: Mapping[str, Any], *, kind: str, reason: str, message: str) -> Object:
        found = metadata(about)
        name, suffix = str(found.get("name") or ""), self._random.token_bytes(8).hex()
        whole = f"{name}.{suffix}"
        now = rfc3339(self._clock.now())
        namespace = str(found.get("namespace") or _DEFAULT)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            # names of CertificateSigningRequests have no fixed form, those of events have
            "metadata": {"name": suffix if formats.subdomain_problems(whole) else whole, "namespace": namespace},
            "involvedObject": {
                "apiVersion": about.get("apiVersion"),
                "kind": about.get("kind"),
                "name": name,
                **{key: found[key] for key in ("namespace", "uid", "resourceVersion") if found.get(key)},
            },
            "type": kind,
            "reason": reason,
            "message": message[:_LONGEST],
            "source": dict(self._source),
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
