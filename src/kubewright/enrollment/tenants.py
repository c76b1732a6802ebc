"""One tenant cluster at work: its requests are answered, its objects repaired, its tokens kept. Each tenant has a queue and connections of its own.

made ── run() ──> objects and tokens ensured, watches open ──> requests answered ── cancelled ──> work in flight ends

Observe through informers, decide by a pure function, keep the record, write once with the resourceVersion that was seen. A record is kept before the
answer is released: who is killed in between issues again for the same object, and what came before was seen by nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from kubewright.apis.join_records import JoinRecord, State
from kubewright.apis.node_join_requests import LEAVING_LABEL, Condition
from kubewright.base.clock import Clock, rfc3339
from kubewright.base.errors import HostError, NotFound
from kubewright.base.randomness import Random
from kubewright.base.records import replace
from kubewright.enrollment import answers, decisions, issuing, leases, requests, tenant_objects
from kubewright.enrollment.clusters import LoadedCluster
from kubewright.enrollment.decisions import Forget, Issue, Open, Outcome, Refuse, Seen, Wait
from kubewright.enrollment.expiry import CertificateEnds
from kubewright.enrollment.fields import MalformedField
from kubewright.enrollment.hub_tunnels import AGAIN as TUNNEL_AGAIN
from kubewright.enrollment.hub_tunnels import HubTunnel
from kubewright.enrollment.issuing import Issued
from kubewright.enrollment.key_rotation import KeyRotation
from kubewright.enrollment.known_nodes import KnownNodes
from kubewright.enrollment.leases import NoAddressLeft
from kubewright.enrollment.requests import JoinRequest
from kubewright.enrollment.store import Event, HubStore, Taken
from kubewright.enrollment.store_thread import StoreThread
from kubewright.enrollment.telemetry import HubMetrics
from kubewright.kube import core, resources
from kubewright.kube.answers import EventType, WatchEvent
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.controller import Again, SharedInformer, Workers
from kubewright.kube.core import Object
from kubewright.kube.informers import Informer
from kubewright.kube.objects import DesiredObject, ensure_object_async
from kubewright.kube.queueing import ItemBackoff, WorkQueue
from kubewright.kube.resources import NODE, NODE_JOIN_REQUEST, SECRET
from kubewright.pki.keys import Algorithm, KeyPool
from kubewright.tokens import secrets

_log = logging.getLogger(__name__)

PROTOCOL: Final = "oneinfra/v1alpha1"
AHEAD: Final = 8
"""Keys that are made before they are needed: making one takes longer than everything else of an answer."""
WORKERS: Final = 4
"""Requests of one tenant that are answered at a time."""
CROWD: Final = 1000
"""Requests of one tenant that are kept together: beyond that, those that were refused go at once, so that nobody fills the cluster with them."""
LONGEST_SLEEP: Final = 3600.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 60.0
_REQUEST, _LEAVING, _KEY, _OBJECTS, _TOKENS, _TUNNEL, _ENDS = "request/", "leaving/", "key/", "objects", "tokens", "tunnel", "ends"
_FULL: Final = 60.0
"""Seconds after which it is looked again whether a VPN that was full has an address."""


class Tenant:
    """The work for one cluster. Nothing is read or written before `run`."""

    def __init__(
        self,
        loaded: LoadedCluster,
        api: AsyncKubeAPI,
        *,
        store: StoreThread,
        keys: KeyPool,
        clock: Clock,
        random: Random,
        metrics: HubMetrics | None = None,
        crowd: int = CROWD,
        tunnel: HubTunnel | None = None,
    ) -> None:
        self.cluster = loaded.cluster
        self._loaded = loaded
        self._api = api
        self._store = store
        self._keys = keys
        self._clock = clock
        self._random = random
        self._metrics = metrics
        self._crowd = crowd
        self._key_algorithm = Algorithm(loaded.cluster.key_algorithm)
        self._tunnel = tunnel
        self.ends = CertificateEnds(loaded.cluster.kubelet_config)
        """When certificates of nodes end, once the records have been read."""
        networks = loaded.cluster.vpn.networks if loaded.cluster.vpn is not None else ()
        self._rotation = (
            KeyRotation(loaded, api, store=store, tunnel=tunnel, clock=clock, event=self._event) if tunnel is not None else None
        )
        self._desired = tenant_objects.desired(loaded.public_key, networks=networks)
        self._queue: WorkQueue[str] = WorkQueue(ItemBackoff(first=_FIRST_PAUSE, limit=_LONGEST_PAUSE))
        self._aside: WorkQueue[str] = WorkQueue(ItemBackoff(first=_FIRST_PAUSE, limit=_LONGEST_PAUSE))
        self._turned_away: dict[str, tuple[str, Condition | None]] = {}
        """What is to be done beside the others, with the uid of the request for which it was decided."""
        self._requests = self._informer(NODE_JOIN_REQUEST)
        self._nodes = self._informer(NODE)
        self._known = KnownNodes()
        self._secrets = self._informer(SECRET, namespace=secrets.NAMESPACE, field_selector=f"type={secrets.TYPE}")

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.cluster.name

    @property
    def synced(self) -> bool:
        """Whether the requests that were there at the start are known."""
        return self._requests.synced and self._secrets.synced

    @property
    def _crowded(self) -> bool:
        return len(self._requests.objects) > self._crowd

    def look_again(self) -> None:
        """Have everything looked at: what the hub keeps has been changed by somebody else."""
        for key in (_OBJECTS, _TOKENS, _TUNNEL, _ENDS, *(_REQUEST + name for _, name in self._requests.objects)):
            self._queue.add(key)
        if self._rotation is not None:
            self._rotation.look_again()
            for node in self._nodes.objects.values():
                self._follow_key(node)

    async def run(self) -> None:
        """Work until cancelled."""
        self._requests.subscribe(self._request_changed)
        self._nodes.subscribe(self._node_changed)
        self._secrets.subscribe(lambda _: self._queue.add(_TOKENS))
        watched = [self._watch_object(one) for one in self._desired]
        for key in (_OBJECTS, _TOKENS, _TUNNEL, _ENDS):
            self._queue.add(key)
        self._make_keys()
        if self._tunnel is not None:  # before the first answer: an interface is never without the peers that it had
            await self._load_tunnel(self._tunnel)
        async with asyncio.TaskGroup() as group:
            for informer in (self._requests, self._nodes, self._secrets, *watched):
                group.create_task(informer.run(), name=f"watch of {self.name}")
            for queue, handle in ((self._queue, self._handle), (self._aside, self._turned)):
                group.create_task(Workers(f"hub {self.name}", queue=queue, handle=handle, count=WORKERS).run(), name=self.name)

    def _informer(self, resource: resources.Resource, *, namespace: str | None = None, field_selector: str = "") -> SharedInformer:
        return SharedInformer(Informer(self._api, resource, namespace=namespace, field_selector=field_selector, random=self._random))

    def _watch_object(self, desired: DesiredObject) -> SharedInformer:
        """Hear when somebody changes an object of ours: it is repaired."""
        name, namespace = core.identity_of(desired.body)
        informer = self._informer(resources.of(desired.body), namespace=namespace, field_selector=f"metadata.name={name}")
        informer.subscribe(lambda _: self._queue.add(_OBJECTS))
        return informer

    def _request_changed(self, event: WatchEvent) -> None:
        if event.type is not EventType.DELETED:
            self._queue.add(_REQUEST + core.identity_of(event.object)[0])

    def _node_changed(self, event: WatchEvent) -> None:
        self._known.changed(event)
        leaves = (core.metadata(event.object).get("labels") or {}).get(LEAVING_LABEL) == "true"
        name, _ = core.identity_of(event.object)
        if event.type is EventType.DELETED:
            if self._rotation is not None:
                self._rotation.gone(name)
            return
        if leaves:
            self._queue.add(_LEAVING + name)
        self._follow_key(event.object)

    def _follow_key(self, node: Object) -> None:
        if self._rotation is not None and self._rotation.concerns(node):
            self._queue.add(_KEY + core.identity_of(node)[0])

    async def _handle(self, key: str) -> Again | None:
        if key == _OBJECTS:
            await self._repair()
            return None
        if key == _TOKENS:
            return await self._keep_tokens()
        if key == _TUNNEL:
            return await self._keep_tunnel()
        if key == _ENDS:
            await self._store.ask(lambda store: self.ends.load(store.each_record(self.name)))
            return None
        if key.startswith(_LEAVING):
            await self._release(key.removeprefix(_LEAVING))
            return None
        if key.startswith(_KEY):
            node = self._nodes.get(key.removeprefix(_KEY))
            return await self._rotation.follow(node) if self._rotation is not None and node is not None else None
        return await self._answer(key.removeprefix(_REQUEST))

    async def _repair(self) -> None:
        for desired in self._desired:
            change = await ensure_object_async(self._api, desired)
            if change:
                _log.info("%s: %s: %s", self.name, change.target, change.action.value)

    async def _keep_tokens(self) -> Again | None:
        """Give the tenant the tokens that are in force. Those that have ended go: the API server believes them for ten seconds more."""
        await self._secrets.wait_synced()
        now = self._clock.now()
        wanted = await self._store.ask(lambda store: store.tokens(self.name))
        ends = {token.token.id: secrets.parse_moment(token.expires) for token in wanted if token.expires}
        valid = [token for token in wanted if (end := ends.get(token.token.id)) is None or end > now]
        changes = tenant_objects.token_changes(self._secrets.objects.values(), valid)
        for token in changes.missing:
            await ensure_object_async(self._api, DesiredObject(tenant_objects.token_secret(token)))
        for name in changes.surplus:
            await self._ignoring_gone(self._api.delete(SECRET, name, secrets.NAMESPACE))
        left = [(end - now).total_seconds() for end in ends.values() if end is not None and end > now]
        return min(left, default=None)

    async def _keep_tunnel(self) -> Again | None:
        """Have the VPN's interface as the records are, from time to time: whoever changes it does not tell us."""
        if self._tunnel is None:
            return None
        await self._load_tunnel(self._tunnel)
        await self._tunnel.follow(look=True)
        return TUNNEL_AGAIN

    async def _load_tunnel(self, tunnel: HubTunnel) -> None:
        tunnel.load(await self._store.ask(lambda store: store.records(self.name)))

    async def _answer(self, name: str) -> Again | None:
        request = self._requests.get(name)
        if request is None:
            return None
        seen = decisions.look(request)
        record: JoinRecord | None = None
        if not seen.ended:
            approved, record, first = await self._store.ask(
                lambda store: (
                    store.verdict(self.name, seen.uid),
                    store.record(self.name, name),
                    store.first_request(self.name, seen.digest),
                )
            )
            seen = replace(seen, approved=approved, first=first)
        outcome = self._decide(seen, record, {})
        if isinstance(outcome, Open):
            seen, foreign = await self._opened(seen, request)
            outcome = self._decide(seen, record, foreign)
        match outcome:
            case Issue(request=wanted):
                return await self._issue(request, seen, wanted, record)
            case Refuse(reason=reason, message=message):
                self._turn_away(name, seen.uid, Condition(status="False", reason=reason, message=message))
            case Wait(after=after, reason=reason, message=message):
                await self._wait(request, seen, Condition(status="Unknown", reason=reason, message=message))
                return min(after, LONGEST_SLEEP)
            case Forget():
                self._turn_away(name, seen.uid, None)
        return None

    def _turn_away(self, name: str, uid: str, condition: Condition | None) -> None:
        """Have a request refused, or deleted if there is no condition, beside the others: writing takes longest, and a crowd is not to hold them up."""
        self._turned_away[name] = (uid, condition)
        self._aside.add(name)

    async def _turned(self, name: str) -> None:
        request, wanted = self._requests.get(name), self._turned_away.get(name)
        if request is not None and wanted is not None:
            (uid, condition), seen = wanted, decisions.look(request)
            if seen.uid == uid and condition is None:
                await self._delete(request)
            elif seen.uid == uid and condition is not None and not seen.ended:
                await self._refuse(request, condition)
        if self._turned_away.get(name) == wanted:  # else another request of that name has come meanwhile
            self._turned_away.pop(name, None)

    async def _release(self, name: str) -> None:
        """Let a node go that asks for it: its name first, then its request, and its Node last, for which the node waits.

        Nodes that have not come through this hub are none of its business.
        """
        node = self._nodes.get(name)
        record = await self._store.ask(lambda store: store.record(self.name, name))
        if node is None or record is None:
            return
        if self._tunnel is not None:
            self._tunnel.let_go(name)
        if record.active:
            left = replace(record, state=State.LEFT, lease="", tunnel_key="", changed=rfc3339(self._clock.now()))
            await self._store.ask(
                lambda store: store.keep(left, self._event("left", name, serials=[one.serial for one in record.certificates]))
            )
            self.ends.put(left)
        await self._ignoring_gone(self._api.delete(NODE_JOIN_REQUEST, name))
        await self._ignoring_gone(self._api.delete(NODE, name, uid=str(core.metadata(node).get("uid") or "")))
        if self._tunnel is not None:
            self._queue.add_after(_TUNNEL, self._tunnel.linger)
        _log.info("%s: %s has left", self.name, name)

    def _decide(self, seen: Seen, record: JoinRecord | None, foreign: Mapping[str, str]) -> Outcome:
        policy = self.cluster.policy(foreign=foreign, crowded=self._crowded)
        return decisions.decide(seen, record, policy, self._clock.now())

    async def _opened(self, seen: Seen, request: Object) -> tuple[Seen, Mapping[str, str]]:
        """Decrypt a request, and look up what is known about what it asks for; returns as well which names are other nodes'."""
        try:
            contents = requests.read(request, join_key=self._loaded.join_key)  # less than a millisecond: a thread costs more than it gives
        except MalformedField as error:
            return replace(seen, contents=error), {}
        foreign = await self._store.ask(lambda store: store.owners(self.name, contents.claims)) if contents.claims else {}
        await self._nodes.wait_synced()
        others = {**self._known.owners(contents.names), **foreign}
        return replace(seen, contents=contents, registered=seen.name in self._known), others

    async def _lease(self, name: str, record: JoinRecord | None) -> tuple[str, ...]:
        """Return the node's addresses in the VPN, none without one. Raises NoAddressLeft."""
        vpn = self.cluster.vpn
        if vpn is None or self._tunnel is None:
            return ()
        kept = record.leases if record is not None and record.active else ()
        others = self._known.others(name)

        def owners(store: HubStore, asked: Iterable[str]) -> Mapping[str, str]:
            asked = list(asked)
            return {**dict.fromkeys(others.intersection(asked), ""), **store.owners(self.name, asked)}

        return await self._store.ask(lambda store: leases.pick(vpn.pools, name, kept=kept, owners=partial(owners, store)))

    async def _issue(self, request: Object, seen: Seen, wanted: JoinRequest, before: JoinRecord | None) -> Again | None:
        now = self._clock.now()
        try:
            lease = await self._lease(seen.name, before)
        except NoAddressLeft as error:
            await self._wait(request, seen, Condition(status="Unknown", reason=decisions.NO_ADDRESS, message=str(error)))
            return _FULL

        def make() -> tuple[Issued, Mapping[str, Any]]:
            made = issuing.issue(self._loaded, seen.name, wanted, lease=lease, key_source=self._keys, started=now, random=self._random)
            return made, answers.write(made.answer, wanted.key, random=self._random)

        made, status = await asyncio.to_thread(make) if self._key_algorithm.slow else make()
        self._make_keys()
        record = JoinRecord(
            cluster=self.name,
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
        event = self._event(
            "issued",
            seen.name,
            request=seen.uid,
            names=list(record.names),
            lease=list(lease),
            serials=[one.serial for one in made.certificates],
        )
        try:
            await self._store.ask(lambda store: store.keep(record, event, digest=seen.digest))
        except Taken as error:
            _log.debug("%s: %s is decided again: %s", self.name, seen.name, error)
            return 0.0
        self.ends.put(record)
        if self._tunnel is not None:  # before the answer: a node's first packet finds its peer
            self._tunnel.put(record)
            try:
                await self._tunnel.follow()
            except HostError as error:
                waits = Condition(
                    status="Unknown", reason=decisions.VPN_UNAVAILABLE, message=f"the hub's end of the VPN is not up: {error}"
                )
                await self._wait(request, seen, waits)
                raise
        await self._write(request, Condition(status="True", reason=decisions.ISSUED), status)
        _log.info("%s: %s has been answered", self.name, seen.name)
        return None

    def _make_keys(self) -> None:
        self._keys.have((self._key_algorithm,) * AHEAD)

    async def _refuse(self, request: Object, condition: Condition) -> None:
        name, _ = core.identity_of(request)
        event = self._event("refused", name, reason=condition.reason, message=condition.message)
        await self._store.ask(lambda store: store.tell(event))
        if self._crowded or condition.reason == decisions.TOO_LARGE:
            await self._delete(request)  # it would be deleted next: one write instead of two, so that a flood does not outrun us
            self._count(request, condition)
        else:
            await self._write(request, condition)
        _log.info("%s: %s is refused: %s: %s", self.name, name, condition.reason, condition.message)

    async def _wait(self, request: Object, seen: Seen, condition: Condition) -> None:
        known = seen.condition
        if condition.reason and (known is None or (known.status, known.reason) != (condition.status, condition.reason)):
            await self._write(request, condition)

    async def _write(self, request: Object, condition: Condition, fields: Mapping[str, Any] | None = None) -> None:
        status = {**(fields or {}), "conditions": [condition.document(self._clock.now())]}
        await self._ignoring_gone(self._api.update({**request, "status": status}, subresource="status"))
        self._count(request, condition)

    async def _delete(self, request: Object) -> None:
        """Delete a request, also one whose maker has put finalizers on it: with those it would stay for ever."""
        name, _ = core.identity_of(request)
        metadata = core.metadata(request)
        if metadata.get("finalizers"):
            let_go = {"metadata": {"uid": metadata.get("uid"), "finalizers": None}}
            await self._ignoring_gone(self._api.patch(NODE_JOIN_REQUEST, name, let_go, type="merge"))
        await self._ignoring_gone(self._api.delete(NODE_JOIN_REQUEST, name, uid=str(core.metadata(request).get("uid") or "")))

    def _count(self, request: Object, condition: Condition) -> None:
        if self._metrics is not None:
            self._metrics.outcome(self.name, PROTOCOL, condition.reason, self._age(request))

    def _age(self, request: Object) -> float:
        created = secrets.parse_moment(str(core.metadata(request).get("creationTimestamp") or ""))
        return (self._clock.now() - created).total_seconds() if created is not None else 0.0

    async def _ignoring_gone(self, call: Awaitable[Object]) -> None:
        """Make a call about an object that somebody else may have deleted, or made anew, meanwhile: a watch tells of that."""
        try:
            await call
        except NotFound:
            _log.debug("%s: an object has gone meanwhile", self.name)

    def _event(self, event: str, node: str, **details: Any) -> Event:
        return Event(at=rfc3339(self._clock.now()), cluster=self.name, event=event, node=node, details=details)
