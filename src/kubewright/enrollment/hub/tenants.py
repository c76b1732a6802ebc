"""The work for one tenant cluster: answer its requests, repair its objects, update its tokens.

Each tenant has its own queue and connections.

made ── run() ──> objects and tokens ensured, watches open ──> requests answered ── cancelled ──> work in flight ends
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from kubewright.enrollment.hub import tenant_objects
from kubewright.enrollment.hub.departures import Departures
from kubewright.enrollment.hub.expiry import CertificateEnds
from kubewright.enrollment.hub.key_rotation import KeyRotation
from kubewright.enrollment.hub.request_handler import RequestHandler
from kubewright.enrollment.hub.tenant_context import TenantContext
from kubewright.enrollment.protocol import requests
from kubewright.enrollment.vpn.hub_tunnels import AGAIN as TUNNEL_AGAIN
from kubewright.enrollment.vpn.hub_tunnels import HubTunnel
from kubewright.kube import core, resources
from kubewright.kube.answers import EventType, WatchEvent
from kubewright.kube.core import Object
from kubewright.kube.daemons import known_nodes
from kubewright.kube.daemons.controller import Again, SharedInformer, Workers
from kubewright.kube.daemons.informers import Allowance, Informer
from kubewright.kube.daemons.known_nodes import KnownNodes
from kubewright.kube.daemons.queueing import ItemBackoff, WorkQueue
from kubewright.kube.objects import DesiredObject, ensure_object_async
from kubewright.kube.resources import ENDPOINTS, NODE, NODE_JOIN_REQUEST, SECRET
from kubewright.pki.keys import KeyPool
from kubewright.tokens import secrets

_log = logging.getLogger(__name__)

WORKERS: Final = 4
"""Requests of one tenant that are answered concurrently."""
CROWD: Final = 1000
"""Requests of one tenant that are kept.

Beyond that, refused ones are deleted at once, so that nobody can fill the cluster.
"""
MOST_MEMORY: Final = 256 << 20
"""Bytes of memory for the objects of one tenant. Ten thousand Nodes take about 30 MB, a thousand requests 10 MB.

The API server of a tenant is not trusted: it must not take the memory of the others.
"""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 60.0
_DEFAULT, _API_SERVERS = "default", "kubernetes"
"""The Service whose endpoints are the API servers, which write them themselves."""
_REQUEST, _LEAVING, _KEY, _OBJECTS, _TOKENS, _TUNNEL, _ENDS = "request/", "leaving/", "key/", "objects", "tokens", "tunnel", "ends"


class Tenant:
    """The work for one cluster. Nothing is read or written before `run`."""

    def __init__(self, ctx: TenantContext, *, keys: KeyPool, crowd: int = CROWD, memory: int = MOST_MEMORY) -> None:
        self._ctx = ctx
        networks = ctx.cluster.vpn.networks if ctx.cluster.vpn is not None else ()
        self._desired = tenant_objects.desired(ctx.loaded.public_key, networks=networks)
        self._departures = Departures(ctx)
        self._rotation = KeyRotation(ctx, ctx.tunnel) if ctx.tunnel is not None else None
        self._queue: WorkQueue[str] = WorkQueue(ItemBackoff(first=_FIRST_PAUSE, limit=_LONGEST_PAUSE))
        self._aside: WorkQueue[str] = WorkQueue(ItemBackoff(first=_FIRST_PAUSE, limit=_LONGEST_PAUSE))
        self._allowance = Allowance(memory)
        self._requests = self._informer(NODE_JOIN_REQUEST, slim=requests.slim)
        self._nodes = self._informer(NODE, slim=known_nodes.slim)
        self._api_servers = self._informer(ENDPOINTS, namespace=_DEFAULT, field_selector=f"metadata.name={_API_SERVERS}")
        self._known = KnownNodes()
        self._secrets = self._informer(SECRET, namespace=secrets.NAMESPACE, field_selector=f"type={secrets.TYPE}")
        self._request_handler = RequestHandler(
            ctx,
            requests=self._requests,
            evidence=(self._nodes, self._api_servers),
            known=self._known,
            keys=keys,
            aside=self._aside,
            crowd=crowd,
        )

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self._ctx.name

    @property
    def ends(self) -> CertificateEnds:
        """The certificates' expiry times."""
        return self._ctx.ends

    @property
    def synced(self) -> bool:
        """Whether the requests that existed at the start are known."""
        return self._requests.synced and self._secrets.synced

    def look_again(self) -> None:
        """Look at everything again: another process has changed the hub's state."""
        for key in (_OBJECTS, _TOKENS, _TUNNEL, _ENDS, *(_REQUEST + name for _, name in self._requests.objects)):
            self._queue.add(key)
        self._departures.look_again()
        if self._rotation is not None:
            self._rotation.look_again()
        for node in self._nodes.objects.values():
            self._follow_node(node)

    async def run(self) -> None:
        """Work until cancelled."""
        self._requests.subscribe(self._request_changed)
        self._nodes.subscribe(self._node_changed)
        self._api_servers.subscribe(self._known.api_servers_changed)
        self._secrets.subscribe(lambda _: self._queue.add(_TOKENS))
        watched = [self._watch_object(one) for one in self._desired]
        for key in (_OBJECTS, _TOKENS, _TUNNEL, _ENDS):
            self._queue.add(key)
        self._request_handler.make_keys()
        if self._ctx.tunnel is not None:  # before the first answer: an interface is never without the peers that it had
            await self._load_tunnel(self._ctx.tunnel)
        async with asyncio.TaskGroup() as group:
            for informer in (self._requests, self._nodes, self._api_servers, self._secrets, *watched):
                group.create_task(informer.run(), name=f"watch of {self._ctx.name}")
            for queue, handle in ((self._queue, self._handle), (self._aside, self._request_handler.turn_away)):
                group.create_task(Workers(f"hub {self._ctx.name}", queue=queue, handle=handle, count=WORKERS).run(), name=self._ctx.name)

    def _informer(
        self,
        resource: resources.Resource,
        *,
        namespace: str | None = None,
        field_selector: str = "",
        slim: Callable[[Object], Object] | None = None,
    ) -> SharedInformer:
        return SharedInformer(
            Informer(
                self._ctx.api,
                resource,
                namespace=namespace,
                field_selector=field_selector,
                random=self._ctx.random,
                slim=slim,
                allowance=self._allowance,
            )
        )

    def _watch_object(self, desired: DesiredObject) -> SharedInformer:
        """Watch one of our objects, to repair it when it is changed."""
        name, namespace = core.identity_of(desired.body)
        informer = self._informer(resources.of(desired.body), namespace=namespace, field_selector=f"metadata.name={name}")
        informer.subscribe(lambda _: self._queue.add(_OBJECTS))
        return informer

    def _request_changed(self, event: WatchEvent) -> None:
        if event.type is not EventType.DELETED:
            self._queue.add(_REQUEST + core.identity_of(event.object)[0])

    def _node_changed(self, event: WatchEvent) -> None:
        self._known.changed(event)
        name, _ = core.identity_of(event.object)
        if event.type is EventType.DELETED:
            self._departures.gone(name)
            if self._rotation is not None:
                self._rotation.gone(name)
            return
        self._follow_node(event.object)

    def _follow_node(self, node: Object) -> None:
        """Start what a Node asks for: leaving, or rotating its VPN key."""
        name, _ = core.identity_of(node)
        if self._departures.concerns(node):
            self._queue.add(_LEAVING + name)
        if self._rotation is not None and self._rotation.concerns(node):
            self._queue.add(_KEY + name)

    async def _handle(self, key: str) -> Again | None:
        if key == _OBJECTS:
            await self._repair()
            return None
        if key == _TOKENS:
            return await self._keep_tokens()
        if key == _TUNNEL:
            return await self._keep_tunnel()
        if key == _ENDS:
            await self._ctx.store.ask(lambda store: self._ctx.ends.load(store.each_record(self._ctx.name)))
            return None
        if key.startswith(_LEAVING):
            await self._let_go(key.removeprefix(_LEAVING))
            return None
        if key.startswith(_KEY):
            node = self._nodes.get(key.removeprefix(_KEY))
            return await self._rotation.follow(node) if self._rotation is not None and node is not None else None
        return await self._request_handler.answer(key.removeprefix(_REQUEST))

    async def _repair(self) -> None:
        for desired in self._desired:
            change = await ensure_object_async(self._ctx.api, desired)
            if change:
                _log.info("%s: %s: %s", self._ctx.name, change.target, change.action.value)

    async def _keep_tokens(self) -> Again | None:
        """Write the current tokens to the tenant.

        Expired ones are removed: the API server accepts them for ten more seconds.
        """
        await self._secrets.wait_synced()
        now = self._ctx.clock.now()
        wanted = await self._ctx.store.ask(lambda store: store.tokens(self._ctx.name))
        ends = {token.token.id: secrets.parse_moment(token.expires) for token in wanted if token.expires}
        valid = [token for token in wanted if (end := ends.get(token.token.id)) is None or end > now]
        changes = tenant_objects.token_changes(self._secrets.objects.values(), valid)
        for token in changes.missing:
            await ensure_object_async(self._ctx.api, DesiredObject(tenant_objects.token_secret(token)))
        for name in changes.surplus:
            uid = str(core.metadata(self._secrets.get(name, secrets.NAMESPACE) or {}).get("uid") or "")
            await self._ctx.ignoring_gone(self._ctx.api.delete(SECRET, name, secrets.NAMESPACE, uid=uid))
        left = [(end - now).total_seconds() for end in ends.values() if end is not None and end > now]
        return min(left, default=None)

    async def _keep_tunnel(self) -> Again | None:
        """Compare the VPN's interface with the records from time to time: changes made by others are not reported."""
        if self._ctx.tunnel is None:
            return None
        await self._load_tunnel(self._ctx.tunnel)
        await self._ctx.tunnel.follow(look=True)
        return TUNNEL_AGAIN

    async def _load_tunnel(self, tunnel: HubTunnel) -> None:
        tunnel.load(await self._ctx.store.ask(lambda store: store.records(self._ctx.name)))

    async def _let_go(self, name: str) -> None:
        """Let a leaving node go. Its peer in the VPN stays for a moment, so that the node can learn the result."""
        node = self._nodes.get(name)
        if node is not None and await self._departures.follow(node) and self._ctx.tunnel is not None:
            self._queue.add_after(_TUNNEL, self._ctx.tunnel.linger)
