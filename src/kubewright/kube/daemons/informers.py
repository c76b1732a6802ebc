"""Track the objects of one kind: list, then watch, for as long as the caller reads.

Level-triggered: after an error the caller gets the differences from its last known state, never the history. Mirrors
client-go's reflector: the first list may come from the server's cache, but not one after "too old"; a watch continues
from the last version that an event or bookmark named.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Final

from kubewright.base import unexpected
from kubewright.base.errors import APIError, Flooded, Gone
from kubewright.base.randomness import Random, SystemRandom
from kubewright.base.wait import Backoff
from kubewright.kube.answers import EventType, WatchEvent, asked_to_wait
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import FROM_CACHE, Object, footprint, identity_of
from kubewright.kube.resources import Resource

Key = tuple[str | None, str]
"""Namespace and name."""

BACKOFF: Final = Backoff(first=0.1, factor=2.0, limit=5.0, jitter=0.5)
_SHORTEST_WATCH: Final = 300
"""Seconds after which the server has to end a watch; up to twice as many, as in client-go."""
_LONGEST_WAIT: Final = 60.0
"""The longest wait in seconds that a server can request."""
_HASTY: Final = 1.0
"""Seconds; a watch that ends sooner is not reopened at once, even if it had events: a server must not keep us busy."""


class Allowance:
    """The memory that the objects of several informers may take together: bytes, as `core.footprint` estimates them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0

    @property
    def left(self) -> int:
        """What may still be taken; at least 1."""
        return max(1, self._most - self._taken)

    def change(self, size: int) -> None:
        """Take more, or give something back. Raises Flooded for more than is left."""
        self._taken += size
        if size > 0 and self._taken > self._most:
            raise Flooded("the API server has more objects than are kept in memory", detail=f"more than {self._most} bytes")


class _Pauses:
    """Decides how long an informer waits after its watch has ended or failed."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._growing = BACKOFF.pauses(random)
        self._too_old = False

    def after(self, failure: Exception | None, *, answered: bool, seconds: float) -> float:
        """Return the pause in seconds after an attempt that took some `seconds`; 0 to continue at once.

        `answered`: the server has sent at least one event.
        """
        hasty = seconds < _HASTY
        if isinstance(failure, Gone):
            # a new list helps at once, but a server for which even a new list is too old must not be asked in a tight loop
            waits, self._too_old = self._too_old, True
        elif failure is None:
            waits, self._too_old = hasty, False
        else:
            waits = True
        if answered and not hasty and not self._too_old:
            self._growing = BACKOFF.pauses(self._random)
        return max(next(self._growing), asked_to_wait(failure, most=_LONGEST_WAIT)) if waits else 0.0


class Informer:
    """The objects of one kind, kept up to date while `events` is being read. One reader at a time.

    `failed` is called for every failure that is retried; to give up, stop reading. `slim` reduces each object to what its
    readers need. `allowance` is for servers that are not trusted: `events` raises Flooded for more.
    """

    def __init__(
        self,
        api: AsyncKubeAPI,
        resource: Resource,
        *,
        namespace: str | None = None,
        field_selector: str = "",
        label_selector: str = "",
        random: Random | None = None,
        failed: Callable[[APIError], None] | None = None,
        known: Sequence[Object] = (),
        version: str = "",
        slim: Callable[[Object], Object] | None = None,
        allowance: Allowance | None = None,
    ) -> None:
        """Keep the arguments. With `version` the first list is skipped: `known` is the state at that version."""
        self._api = api
        self._resource = resource
        self._namespace = namespace
        self._fields = field_selector
        self._labels = label_selector
        self._random = random or SystemRandom()
        self._failed = failed
        self._version = version
        self._from_cache = not version
        self._slim = slim
        self._allowance = allowance
        self._sizes: dict[Key, int] = {}
        self.objects: dict[Key, Object] = {key_of(obj): obj for obj in known}
        self.synced = False

    async def events(self) -> AsyncGenerator[WatchEvent, None]:
        """Yield ADDED for existing objects, SYNCED, and then every change, endlessly; after each new list SYNCED again.

        After a gap an object is repeated only if it differs; one that has disappeared is DELETED with its last known
        content.
        """
        loop = asyncio.get_running_loop()
        pauses = _Pauses(self._random)
        while True:
            answered = False
            failure: Exception | None = None
            started = loop.time()
            try:
                async with aclosing(self._list_and_watch()) as events:
                    async for event in events:
                        answered = True
                        if event.type is not EventType.BOOKMARK:
                            yield event
            except Flooded:
                self._forget()
                raise
            except Exception as caught:
                failure = caught
                self._prepare_retry(caught)
            if pause := pauses.after(failure, answered=answered, seconds=loop.time() - started):
                await asyncio.sleep(pause)

    def _prepare_retry(self, failure: Exception) -> None:
        """Report a failure, and decide whether the next attempt begins with a list."""
        if isinstance(failure, Gone):
            self._version, self._from_cache = "", False
        elif isinstance(failure, APIError):
            if self._failed is not None:
                self._failed(failure)
        else:  # a retry would fail in the same way: list everything again
            self._version = ""
            unexpected.report(f"a watch of {self._resource.plural}", failure)

    async def _list_and_watch(self) -> AsyncGenerator[WatchEvent, None]:
        """List if necessary, then watch until the server ends the watch."""
        if not self._version:
            items, version = await self._api.list_versioned(
                self._resource,
                self._namespace,
                label_selector=self._labels,
                field_selector=self._fields,
                resource_version=FROM_CACHE if self._from_cache else "",
                slim=self._slim,
                most=self._allowance.left if self._allowance is not None else 0,
            )
            for event in self._differences(items):
                yield event
            self._version, self.synced = version, True
            yield WatchEvent(EventType.SYNCED, {})
        watch = self._api.watch(
            self._resource,
            namespace=self._namespace,
            field_selector=self._fields,
            label_selector=self._labels,
            resource_version=self._version,
            seconds=_SHORTEST_WATCH + round(_SHORTEST_WATCH * self._random.uniform()),
        )
        async with aclosing(watch) as events:
            async for found in events:
                event = found if self._slim is None else found._replace(object=self._slim(found.object))
                self._version = event.resource_version or self._version
                self._remember(event)
                yield event

    def _differences(self, items: list[Object]) -> Iterator[WatchEvent]:
        """Yield the differences between a fresh list and the known objects, and update these."""
        fresh = {key_of(item): item for item in items}
        for key in [key for key in self.objects if key not in fresh]:
            yield WatchEvent(EventType.DELETED, self._drop(key))
        for key, item in fresh.items():
            known = self.objects.get(key)
            self._keep(key, item)
            if known is None:
                yield WatchEvent(EventType.ADDED, item)
            elif _stamp(known) != _stamp(item):
                yield WatchEvent(EventType.MODIFIED, item)

    def _remember(self, event: WatchEvent) -> None:
        if event.type is EventType.DELETED:
            self._drop(key_of(event.object))
        elif event.type in {EventType.ADDED, EventType.MODIFIED}:
            self._keep(key_of(event.object), event.object)

    def _keep(self, key: Key, obj: Object) -> None:
        if self._allowance is not None:
            size = footprint(obj)
            change, self._sizes[key] = size - self._sizes.get(key, 0), size
            self._allowance.change(change)
        self.objects[key] = obj

    def _drop(self, key: Key) -> Object:
        if self._allowance is not None:
            self._allowance.change(-self._sizes.pop(key, 0))
        return self.objects.pop(key, {})

    def _forget(self) -> None:
        for key in list(self._sizes):
            self._drop(key)


def key_of(obj: Object) -> Key:
    """Return namespace and name of an object."""
    name, namespace = identity_of(obj)
    return namespace, name


def _stamp(obj: Object) -> tuple[object, object]:
    about = obj.get("metadata") or {}
    return about.get("uid"), about.get("resourceVersion")
