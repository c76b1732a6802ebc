"""Handle the requests of one tenant cluster.

Observe through informers, decide by a pure function, save the record, write once with the observed resourceVersion. A
record is saved before the answer is published: if the hub is killed in between, it issues again for the same object,
because the first answer was never published.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from kubewright.apis.join_records import JoinRecord, State
from kubewright.apis.node_join_requests import Condition
from kubewright.base.clock import rfc3339
from kubewright.base.errors import HostError
from kubewright.base.records import replace
from kubewright.enrollment.hub import issuing
from kubewright.enrollment.hub.issuing import Issued
from kubewright.enrollment.hub.tenant_context import TenantContext
from kubewright.enrollment.protocol import answers, decisions, requests
from kubewright.enrollment.protocol.decisions import Forget, Issue, Open, Outcome, Refuse, Seen, Wait
from kubewright.enrollment.protocol.fields import MalformedField
from kubewright.enrollment.protocol.requests import JoinRequest
from kubewright.enrollment.state.store import HubStore, Taken
from kubewright.enrollment.vpn import leases
from kubewright.enrollment.vpn.leases import NoAddressLeft
from kubewright.kube import core
from kubewright.kube.core import Object
from kubewright.kube.daemons.controller import Again, NotNow, SharedInformer
from kubewright.kube.daemons.known_nodes import KnownNodes
from kubewright.kube.daemons.queueing import WorkQueue
from kubewright.kube.resources import NODE_JOIN_REQUEST
from kubewright.pki.keys import Algorithm, KeyPool
from kubewright.tokens import secrets

_log = logging.getLogger(__name__)

PROTOCOL: Final = "oneinfra/v1alpha1"
AHEAD: Final = 8
"""Keys that are made in advance: making one takes longer than the rest of an answer."""
MOST_TIMES_TAKEN: Final = 4
"""The number of races that a request may lose to others before it is refused."""
LONGEST_SLEEP: Final = 3600.0
_FULL: Final = 60.0
"""Seconds between two checks whether a full VPN has a free address."""


class RequestHandler:
    """Answers requests by name.

    `aside` is the queue of requests to refuse or delete, whose workers call `turn_away`.
    """

    def __init__(
        self,
        ctx: TenantContext,
        *,
        requests: SharedInformer,
        evidence: Sequence[SharedInformer],
        known: KnownNodes,
        keys: KeyPool,
        aside: WorkQueue[str],
        crowd: int,
    ) -> None:
        """Keep the arguments.

        `known` is filled by `evidence`. Beyond `crowd` requests, refused ones are deleted at once.
        """
        self._ctx = ctx
        self._requests = requests
        self._evidence = evidence
        self._known = known
        self._keys = keys
        self._aside = aside
        self._crowd = crowd
        self._key_algorithm = Algorithm(ctx.cluster.key_algorithm)
        self._times_taken: dict[str, tuple[str, int]] = {}
        """How often the request with this uid lost a race to others, by name."""
        self._turned_away: dict[str, tuple[str, Condition | None]] = {}
        """What to do with requests that are turned away, with the uid of the request that it was decided for."""

    @property
    def _crowded(self) -> bool:
        return len(self._requests.objects) > self._crowd

    async def answer(self, name: str) -> Again | None:
        """Process a request; return when to check it again."""
        request = self._requests.get(name)
        if request is None:
            self._times_taken.pop(name, None)
            return None
        seen = decisions.look(request)
        record: JoinRecord | None = None
        if not seen.ended:
            approved, record, first = await self._ctx.store.ask(
                lambda store: (
                    store.verdict(self._ctx.name, seen.subject),
                    store.record(self._ctx.name, name),
                    store.first_request(self._ctx.name, seen.digest),
                )
            )
            seen = replace(seen, approved=approved, first=first)
        outcome = self._decide(seen, record, {})
        if isinstance(outcome, Open):
            seen, foreign = await self._opened(seen, request, record)
            outcome = self._decide(seen, record, foreign)
        match outcome:
            case Issue(request=wanted):
                return await self._issue(request, seen, wanted, record)
            case Refuse(reason=reason, message=message):
                self._put_aside(name, seen.uid, Condition(status="False", reason=reason, message=message))
            case Wait(after=after, reason=reason, message=message):
                await self._wait(request, seen, Condition(status="Unknown", reason=reason, message=message))
                return min(after, LONGEST_SLEEP)
            case Forget():
                self._put_aside(name, seen.uid, None)
        return None

    def _put_aside(self, name: str, uid: str, condition: Condition | None) -> None:
        """Queue a request to be refused, or deleted if there is no condition.

        It has a separate queue, because writes take longest, and many such requests must not delay the others.
        """
        self._turned_away[name] = (uid, condition)
        self._aside.add(name)

    def _overtaken(self, seen: Seen, error: Taken) -> None:
        """Have a request decided again after a growing pause because something that it needs was taken; refuse it after some attempts.

        Deciding again finds the new owner. If it never does, endless retries would only cost time. Raises NotNow.
        """
        uid, times = self._times_taken.get(seen.name, ("", 0))
        times = times + 1 if uid == seen.uid else 1
        if times >= MOST_TIMES_TAKEN:
            self._times_taken.pop(seen.name, None)
            self._put_aside(seen.name, seen.uid, Condition(status="False", reason=decisions.NAME_TAKEN, message=str(error)))
            return
        self._times_taken[seen.name] = (seen.uid, times)
        raise NotNow(f"{seen.name} is decided again: {error}", quiet=True) from error

    async def turn_away(self, name: str) -> None:
        """Refuse or delete a request that was queued for it."""
        request, wanted = self._requests.get(name), self._turned_away.get(name)
        if request is not None and wanted is not None:
            (uid, condition), seen = wanted, decisions.look(request)
            if seen.uid == uid and condition is None:
                await self._delete(request)
            elif seen.uid == uid and condition is not None and not seen.ended:
                await self._refuse(request, condition)
        if self._turned_away.get(name) == wanted:  # otherwise another request of that name has arrived
            self._turned_away.pop(name, None)

    def _decide(self, seen: Seen, record: JoinRecord | None, foreign: Mapping[str, str]) -> Outcome:
        policy = self._ctx.cluster.policy(foreign=foreign, api_servers=self._known.api_servers, crowded=self._crowded)
        return decisions.decide(seen, record, policy, self._ctx.clock.now())

    async def _opened(self, seen: Seen, request: Object, record: JoinRecord | None) -> tuple[Seen, Mapping[str, str]]:
        """Decrypt a request and look up what it asks for; also return which names, including its own, belong to other nodes."""
        try:
            # it takes less than a millisecond: a thread would cost more than it saves
            contents = requests.read(request, join_key=self._ctx.loaded.join_key)
        except MalformedField as error:
            return replace(seen, contents=error), {}
        owners = await self._ctx.store.ask(lambda store: store.owners(self._ctx.name, (seen.name, *contents.claims)))
        await self._evidence_complete()
        held = record.held if record is not None else frozenset()
        recorded = {name: owner for name, owner in owners.items() if owner != seen.name}
        foreign = {**self._known.foreign((seen.name, *contents.names), seen.name, held=held), **recorded}
        return replace(seen, contents=contents, registered=seen.name in self._known), foreign

    async def _evidence_complete(self) -> None:
        """Wait until the API servers and all Nodes that existed at the start are known."""
        for informer in self._evidence:
            await informer.wait_synced()

    async def _lease(self, name: str, record: JoinRecord | None) -> tuple[str, ...]:
        """Return the node's addresses in the VPN, none without a VPN. Raises NoAddressLeft."""
        vpn = self._ctx.cluster.vpn
        if vpn is None or self._ctx.tunnel is None:
            return ()
        kept = record.leases if record is not None and record.active else ()
        known = self._known

        def owners(store: HubStore, asked: Iterable[str]) -> Mapping[str, str]:
            asked = list(asked)
            return {**known.certain(asked, name), **store.owners(self._ctx.name, asked)}

        def reported(asked: Iterable[str]) -> Mapping[str, str]:
            return known.reported(asked, name)

        return await self._ctx.store.ask(
            lambda store: leases.pick(vpn.pools, name, kept=kept, owners=partial(owners, store), reported=reported)
        )

    async def _issue(self, request: Object, seen: Seen, wanted: JoinRequest, before: JoinRecord | None) -> Again | None:
        now = self._ctx.clock.now()
        try:
            lease = await self._lease(seen.name, before)
        except NoAddressLeft as error:
            await self._wait(request, seen, Condition(status="Unknown", reason=decisions.NO_ADDRESS, message=str(error)))
            return _FULL

        def make() -> tuple[Issued, Mapping[str, Any]]:
            made = issuing.issue(
                self._ctx.loaded, seen.name, wanted, lease=lease, key_source=self._keys, started=now, random=self._ctx.random
            )
            return made, answers.write(made.answer, wanted.key, random=self._ctx.random)

        made, status = await asyncio.to_thread(make) if self._key_algorithm.slow else make()
        self.make_keys()
        record = self._record_of(seen, wanted, made, lease=lease, now=now)
        event = self._ctx.event(
            "issued",
            seen.name,
            request=seen.uid,
            names=list(record.names),
            lease=list(lease),
            serials=[one.serial for one in made.certificates],
        )
        try:
            await self._ctx.keep(record, event, before=before, digest=seen.digest)
        except Taken as error:
            self._overtaken(seen, error)
            return None
        self._times_taken.pop(seen.name, None)
        self._ctx.ends.put(record)
        await self._add_peer(request, seen, record)  # before the answer, so that the node's first packet finds its peer
        await self._write(request, Condition(status="True", reason=decisions.ISSUED), status)
        _log.info("%s: %s has been answered", self._ctx.name, seen.name)
        return None

    def _record_of(self, seen: Seen, wanted: JoinRequest, made: Issued, *, lease: Sequence[str], now: datetime) -> JoinRecord:
        return JoinRecord(
            cluster=self._ctx.name,
            node=seen.name,
            state=State.ISSUED,
            protocol=PROTOCOL,
            request=seen.uid,
            key=wanted.key.fingerprint,
            names=wanted.names,
            lease=",".join(lease),
            tunnel_key=made.tunnel_key,
            certificates=made.certificates,
            issued=rfc3339(now),
            changed=rfc3339(now),
        )

    async def _add_peer(self, request: Object, seen: Seen, record: JoinRecord) -> None:
        """Add the node to the hub's end of the VPN, if the cluster has one. The request waits if that fails; raises HostError."""
        if self._ctx.tunnel is None:
            return
        self._ctx.tunnel.put(record)
        try:
            await self._ctx.tunnel.follow()
        except HostError as error:
            problem = f"the hub's end of the VPN is not up: {error}"
            await self._wait(request, seen, Condition(status="Unknown", reason=decisions.VPN_UNAVAILABLE, message=problem))
            raise

    def make_keys(self) -> None:
        """Have keys made for the next answers."""
        self._keys.have((self._key_algorithm,) * AHEAD)

    async def _refuse(self, request: Object, condition: Condition) -> None:
        name, _ = core.identity_of(request)
        event = self._ctx.event("refused", name, reason=condition.reason, message=condition.message)
        await self._ctx.store.ask(lambda store: store.add_event(event))
        if self._crowded or condition.reason == decisions.TOO_LARGE:
            await self._delete(request)  # it would be deleted next: one write instead of two, so that the hub keeps up with a flood
            self._count(request, condition)
        else:
            await self._write(request, condition)
        _log.info("%s: %s is refused: %s: %s", self._ctx.name, name, condition.reason, condition.message)

    async def _wait(self, request: Object, seen: Seen, condition: Condition) -> None:
        known = seen.condition
        if condition.reason and (known is None or (known.status, known.reason) != (condition.status, condition.reason)):
            await self._write(request, condition)

    async def _write(self, request: Object, condition: Condition, fields: Mapping[str, Any] | None = None) -> None:
        status = {**(fields or {}), "conditions": [condition.document(self._ctx.clock.now())]}
        await self._ctx.ignoring_gone(self._ctx.api.update({**request, "status": status}, subresource="status"))
        self._count(request, condition)

    async def _delete(self, request: Object) -> None:
        """Delete a request, even one with finalizers, which would otherwise keep it for ever."""
        name, _ = core.identity_of(request)
        metadata = core.metadata(request)
        if metadata.get("finalizers"):
            let_go = {"metadata": {"uid": metadata.get("uid"), "finalizers": None}}
            await self._ctx.ignoring_gone(self._ctx.api.patch(NODE_JOIN_REQUEST, name, let_go, type="merge"))
        await self._ctx.ignoring_gone(self._ctx.api.delete(NODE_JOIN_REQUEST, name, uid=str(core.metadata(request).get("uid") or "")))

    def _count(self, request: Object, condition: Condition) -> None:
        if self._ctx.metrics is not None:
            self._ctx.metrics.outcome(self._ctx.name, PROTOCOL, condition.reason, self._age(request))

    def _age(self, request: Object) -> float:
        created = secrets.parse_moment(str(core.metadata(request).get("creationTimestamp") or ""))
        return (self._ctx.clock.now() - created).total_seconds() if created is not None else 0.0
