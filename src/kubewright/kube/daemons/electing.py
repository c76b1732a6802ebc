"""Leader election by a Lease (client-go: tools/leaderelection, with kube-controller-manager's times).

    candidate ── acquired ──> leader ── renewed in time ──> leader
                                 ├── not renewed for 10 s ──> LeadershipLost
                                 └── stopped ──> the lease is given back

The age of the leadership is measured by the loop's clock from just before each renewal was sent. A leader calls
`require` before each write: a process that was paused for longer than the deadline finds out there, not when its next
renewal fails.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final

from kubewright.base import unexpected
from kubewright.base.clock import Clock
from kubewright.base.errors import AlreadyExists, APIError, Conflict, KubewrightError, NotFound
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass
from kubewright.http.messages import Request, Response
from kubewright.kube import lease_rules
from kubewright.kube.answers import WatchEvent
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Call, Object
from kubewright.kube.lease_rules import LeaseTerms, LeaseWatch
from kubewright.kube.resources import LEASE

_log = logging.getLogger(__name__)

JITTER: Final = 1.2
"""A candidate prolongs the retry period between two attempts by up to this many times; a renewal has more time than that."""
_READS: Final = frozenset({"get", "list", "watch"})
_HARMLESS: Final = frozenset({"SubjectAccessReview", "TokenReview", "Lease"})
"""Kinds that a process may write without leading: reviews change nothing, and the lease is how it becomes the leader."""


class LeadershipLost(KubewrightError):
    """Another process may lead by now: nothing may be written from now on."""


@dataclass(frozen=True, kw_only=True)
class Election:
    """A lease and its times in seconds. It is valid for `lease` seconds, renewed each `retry`, and given up after `renew` without success."""

    name: str
    namespace: str = "kube-system"
    lease: float = 15.0
    renew: float = 10.0
    retry: float = 2.0


class LeaderElector:
    """One candidate. `identity` differs between processes."""

    def __init__(self, api: AsyncKubeAPI, election: Election, *, identity: str, clock: Clock, random: Random) -> None:
        self._api = api
        self._election = election
        self._identity = identity
        self._clock = clock
        self._random = random
        self._terms = LeaseTerms(name=election.name, namespace=election.namespace, seconds=election.lease)
        self._watch = LeaseWatch(self._terms)
        self._renewed_at: float | None = None
        self.holder = ""
        """The holder of the lease, as far as known."""

    @property
    def leads(self) -> bool:
        """Whether no other process can be the leader now."""
        return self._renewed_at is not None and _now() - self._renewed_at < self._election.renew

    def require(self) -> None:
        """Raise LeadershipLost if another process may be the leader now."""
        if not self.leads:
            raise LeadershipLost(
                f"the lease {self._election.namespace}/{self._election.name} was not renewed in time",
                remedy="nothing: another replica leads, or this one starts again",
            )

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Become the leader, then lead until that ends. Raises LeadershipLost when the lease cannot be renewed in time."""
        await self._acquire()
        _log.info("%s leads by the lease %s/%s", self._identity, self._election.namespace, self._election.name)
        work = asyncio.ensure_future(lead())
        renewing = asyncio.create_task(self._renew(), name="leader election")
        try:
            await asyncio.wait((work, renewing), return_when=asyncio.FIRST_COMPLETED)
            for task in (renewing, work):
                if task.done():
                    task.result()
        finally:
            renewing.cancel()
            work.cancel()
            await asyncio.wait((work, renewing))
            await self._release()

    async def _acquire(self) -> None:
        while not await self._attempt():
            await asyncio.sleep(self._election.retry * (1 + JITTER * self._random.uniform()))

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._election.retry)
            await self._attempt()
            self.require()

    async def _attempt(self) -> bool:
        """Try once to take or renew the lease, and return whether it is ours."""
        started = _now()
        try:
            async with asyncio.timeout(self._election.renew):
                ours = await self._take()
        except (APIError, TimeoutError) as error:
            _log.warning("the lease %s/%s: %s", self._election.namespace, self._election.name, str(error) or "no answer in time")
            return False
        except Exception as error:
            unexpected.report("leader election", error, again=self._election.retry)
            return False
        if ours:
            self._renewed_at = started
        return ours

    async def _take(self) -> bool:
        try:
            found = await self._api.get(LEASE, self._election.name, self._election.namespace)
        except NotFound:
            return await self._write(self._api.create, self._body({}))
        spec: dict[str, Any] = found.get("spec") or {}
        if not self._watch.is_free(spec, identity=self._identity, now=_now()):
            self.holder = str(spec.get(lease_rules.HOLDER) or "")
            return False
        return await self._write(self._api.update, self._body(found))

    def _body(self, found: Object) -> Object:
        return lease_rules.taken(found, self._terms, identity=self._identity, now=self._clock.now())

    async def _write(self, write: Callable[[Object], Awaitable[Object]], body: Object) -> bool:
        try:
            await write(body)
        except (AlreadyExists, Conflict):
            return False  # another candidate was faster
        self.holder = self._identity
        return True

    async def _release(self) -> None:
        """Release the lease, so that the next leader need not wait until it expires."""
        if not self.leads:
            return
        self._renewed_at = None
        try:
            async with asyncio.timeout(self._election.retry):
                found = await self._api.get(LEASE, self._election.name, self._election.namespace)
                if (found.get("spec") or {}).get(lease_rules.HOLDER) == self._identity:
                    await self._api.update(lease_rules.given_back(found))
        except (APIError, TimeoutError) as error:
            _log.info("the lease is not given back: %s", error)


class FencedKube(AsyncKubeAPI):
    """A client that checks before each write that this process is the leader."""

    def __init__(self, inner: AsyncKubeAPI, *, require: Callable[[], None]) -> None:
        self._inner = inner
        self._require = require

    async def send(self, call: Call, /) -> Object:
        if call.verb not in _READS and call.resource.kind not in _HARMLESS:
            self._require()
        return await self._inner.send(call)

    def stream(self, call: Call, /) -> AsyncGenerator[WatchEvent, None]:
        return self._inner.stream(call)

    async def exchange(self, request: Request, /) -> Response:
        if request.method != "GET":
            self._require()
        return await self._inner.exchange(request)

    async def close(self) -> None:
        await self._inner.close()


def _now() -> float:
    return asyncio.get_running_loop().time()
