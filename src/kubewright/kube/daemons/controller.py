"""The building blocks of a daemon's controllers: shared informers, and workers that take keys from a queue.

Source: client-go, tools/cache.

made ── run() ──> informers listed ──> working ── cancelled ──> queue closed, work in flight ended
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import aclosing
from typing import Final

from kubewright.base import unexpected
from kubewright.base.errors import Conflict, KubewrightError, NotFound
from kubewright.kube.answers import EventType, WatchEvent
from kubewright.kube.core import Object
from kubewright.kube.daemons.informers import Informer, Key
from kubewright.kube.daemons.queueing import WorkQueue

_log = logging.getLogger(__name__)

GRACE: Final = 5.0
"""Seconds that work in flight has to end when a controller stops."""


class SharedInformer:
    """One watch with many readers. A late subscriber is notified of all existing objects."""

    def __init__(self, informer: Informer) -> None:
        self._informer = informer
        self._readers: list[Callable[[WatchEvent], None]] = []
        self._synced = asyncio.Event()

    @property
    def objects(self) -> Mapping[Key, Object]:
        """The known objects."""
        return self._informer.objects

    @property
    def synced(self) -> bool:
        """Whether all objects that existed at the start are known."""
        return self._synced.is_set()

    def get(self, name: str, namespace: str | None = None) -> Object | None:
        """Return an object as it was last seen. It is shared: never change it."""
        return self._informer.objects.get((namespace, name))

    def subscribe(self, reader: Callable[[WatchEvent], None]) -> None:
        """Tell a reader of every change, beginning with ADDED for known objects.

        The reader must neither raise nor block.
        """
        self._readers.append(reader)
        for obj in list(self._informer.objects.values()):
            reader(WatchEvent(EventType.ADDED, obj))

    async def wait_synced(self) -> None:
        """Wait until all objects that existed at the start are known."""
        await self._synced.wait()

    async def run(self) -> None:
        """Watch until cancelled."""
        async with aclosing(self._informer.events()) as events:
            async for event in events:
                if event.type is EventType.SYNCED:
                    self._synced.set()
                    continue
                for reader in self._readers:
                    unexpected.attempted("a reader of a watch", reader, event)


Again = float
"""Seconds after which to process a key again."""


class NotNow(KubewrightError):
    """A key cannot be processed now. `quiet`: this is expected, and logged at high verbosity only."""

    def __init__(self, what: str, *, quiet: bool = False) -> None:
        super().__init__(what)
        self.quiet = quiet


class Workers:
    """Processes the keys of a queue, several at a time.

    Failures are retried with growing pauses; a key is never lost. `handle` returns the seconds after which to process
    the key again, or None.
    """

    def __init__(
        self,
        name: str,
        *,
        queue: WorkQueue[str],
        handle: Callable[[str], Awaitable[Again | None]],
        count: int,
        owner: Callable[[str], Hashable] = lambda _: None,
    ) -> None:
        self.name = name
        self._queue = queue
        self._handle = handle
        self._count = count
        self._owner = owner

    async def run(self) -> None:
        """Work until cancelled, then end what is in flight."""
        workers = [asyncio.create_task(self._work(), name=f"{self.name}-{number}") for number in range(self._count)]
        try:
            ended, _ = await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
            for worker in ended:
                worker.result()
        finally:
            self._queue.close()
            _, left = await asyncio.wait(workers, timeout=GRACE)
            for worker in left:
                worker.cancel()

    async def _work(self) -> None:
        while (key := await self._queue.get()) is not None:
            try:
                await self._once(key)
            finally:
                self._queue.done(key)

    async def _once(self, key: str) -> None:
        try:
            again = await self._handle(key)
        except KubewrightError as error:
            pause = self._queue.retry(key, owner=self._owner(key))
            _log.log(_level(error), "%s: %s is tried again in %.1f s: %s", self.name, key, pause, error)
            return
        except Exception as error:  # an error with one object must not stop the work on the others
            pause = self._queue.retry(key, owner=self._owner(key))
            _log.error("%s: the work on %s failed", self.name, key)
            unexpected.report(self.name, error, again=pause)
            return
        self._queue.forget(key)
        if again is not None:
            self._queue.add_after(key, again, owner=self._owner(key))


def _level(error: KubewrightError) -> int:
    """Return the log level: conflicts and the like are normal, because the cache was behind."""
    quiet = isinstance(error, (Conflict, NotFound)) or (isinstance(error, NotNow) and error.quiet)
    return logging.DEBUG if quiet else logging.WARNING


def first_error(errors: BaseExceptionGroup[KubewrightError]) -> KubewrightError:
    """Return the first error of a group, which may contain groups."""
    for error in errors.exceptions:
        return first_error(error) if isinstance(error, BaseExceptionGroup) else error
    raise AssertionError("an empty group")
