"""The hub's part when nodes of a tenant rotate their VPN keys.

    offered ── the proof holds ──> a peer without addresses next to the old one ── it calls ──> the record has the new key, and the peer the addresses
            ── it does not ──> refused, with a reason

The old key stays valid until the node has used the new one, so the node stays reachable even if one side is killed
half-way. All state is observable: offers on Nodes, keys in records, handshakes at the interface. An offer stays on its
Node, so that a hub whose state comes from a backup before the change finds the node again.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from kubewright.apis.join_records import JoinRecord, tunnel_key_name
from kubewright.apis.node_join_requests import VPN_KEY, VPN_KEY_ANSWER
from kubewright.base.clock import rfc3339
from kubewright.base.errors import NotFound
from kubewright.base.records import replace
from kubewright.enrollment.hub.tenant_context import TenantContext
from kubewright.enrollment.protocol import key_offers
from kubewright.enrollment.protocol.key_offers import AnswerState, KeyAnswer, KeyOffer
from kubewright.enrollment.state.store import Taken
from kubewright.enrollment.vpn.hub_tunnels import AGAIN, HubTunnel
from kubewright.kube import core
from kubewright.kube.core import Object
from kubewright.kube.daemons.controller import NotNow
from kubewright.kube.resources import NODE

_log = logging.getLogger(__name__)

_LOOK: Final = 0.5
"""Seconds between two checks whether a node has used its new key."""
_PATIENCE: Final = 120.0
"""Seconds after which such checks become less frequent."""


class KeyRotation:
    """The key rotations of one cluster."""

    def __init__(self, ctx: TenantContext, tunnel: HubTunnel) -> None:
        self._ctx = ctx
        self._tunnel = tunnel
        self._ended: dict[str, str] = {}
        """Offers that need no more work, by node; kept because Nodes change all the time."""

    def concerns(self, node: Object) -> bool:
        """Whether a Node that was added or changed needs any work."""
        name, text = core.identity_of(node)[0], core.annotation_of(node, VPN_KEY)
        return text != self._ended.get(name, "")

    def gone(self, name: str) -> None:
        """Record that a Node is gone."""
        self._ended.pop(name, None)
        self._tunnel.withdraw(name)

    def look_again(self) -> None:
        """Check every offer again: another process has changed the records."""
        self._ended.clear()

    async def follow(self, node: Object) -> float | None:
        """Do the next step for an offer.

        Return the seconds after which to check again, None if no check is needed.
        """
        name, text = core.identity_of(node)[0], core.annotation_of(node, VPN_KEY)
        offer = key_offers.read(text)
        record = await self._ctx.store.ask(lambda store: store.record(self._ctx.name, name))
        if record is None or not (record.active and record.lease and record.tunnel_key):
            self._tunnel.withdraw(name)
            return None
        problem = "" if offer is None else await self._problem(offer, record)
        if offer is not None and not problem and offer.key != record.tunnel_key:
            return await self._go_on(node, offer, record)
        self._tunnel.withdraw(name)
        self._ended[name] = text
        if offer is not None:
            state = AnswerState.REFUSED if problem else AnswerState.TAKEN
            await self._answer(node, KeyAnswer(state=state, key=offer.key, reason=problem))
        return None

    async def _problem(self, offer: KeyOffer, record: JoinRecord) -> str:
        if offer.key == record.tunnel_key:
            return ""
        if not key_offers.is_proven(offer, record.node, current=record.tunnel_key, hub=self._ctx.cluster.vpn_key):
            return "the offer does not prove possession of the node's current key and of the new one"
        name = tunnel_key_name(offer.key)
        owners = await self._ctx.store.ask(lambda store: store.owners(record.cluster, [name]))
        return "it is another node's" if owners.get(name, record.node) != record.node else ""

    async def _go_on(self, node: Object, offer: KeyOffer, record: JoinRecord) -> float | None:
        if not await self._tunnel.heard(record.node, offer.key):
            waited = self._tunnel.offer(record.node, offer.key)
            await self._tunnel.follow()
            await self._answer(node, KeyAnswer(state=AnswerState.WAITING, key=offer.key))
            return _LOOK if waited < _PATIENCE else AGAIN
        changed = replace(record, tunnel_key=offer.key, changed=rfc3339(self._ctx.clock.now()))
        event = self._ctx.event("vpn key changed", record.node, key=offer.key)
        try:
            await self._ctx.keep(changed, event, before=record)
        except Taken as error:
            raise NotNow(f"the key of {record.node} will be checked again: {error}", quiet=True) from error
        self._tunnel.withdraw(record.node)
        self._tunnel.put(changed)
        await self._tunnel.follow()
        self._ended[record.node] = offer.text
        await self._answer(node, KeyAnswer(state=AnswerState.TAKEN, key=offer.key))
        _log.info("%s: %s has another key in the VPN", record.cluster, record.node)
        return None

    async def _answer(self, node: Object, answer: KeyAnswer) -> None:
        if core.annotation_of(node, VPN_KEY_ANSWER) == answer.text:
            return
        body: dict[str, Any] = {"metadata": {"annotations": {VPN_KEY_ANSWER: answer.text}}}
        try:
            await self._ctx.api.patch(NODE, core.identity_of(node)[0], body, type="merge")
        except NotFound:
            _log.debug("%s was deleted in the meantime", core.identity_of(node)[0])
