"""Nodes of a tenant that change the key of their end of the VPN: the hub's part.

    offered ── the proof holds ──> a peer without addresses beside the old one ── it calls ──> the record has the new key, and the peer the addresses
            ── it does not ──> refused, with a reason

The old key is in force until the node has called with the new one: whoever is killed on the way, the node is reached. All of it is found by
looking: offers are on Nodes, keys in records, calls at the interface. An offer stays on its Node, so that a hub whose state comes from a backup
before the change finds the node again.
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
from kubewright.kube.controller import NotNow
from kubewright.kube.core import Object
from kubewright.kube.resources import NODE

_log = logging.getLogger(__name__)

_LOOK: Final = 0.5
"""Seconds between two looks whether a node has called with its new key."""
_PATIENCE: Final = 120.0
"""Seconds after which a node that has not called is looked for less often."""


class KeyRotation:
    """The changes of one cluster."""

    def __init__(self, ctx: TenantContext, tunnel: HubTunnel) -> None:
        self._ctx = ctx
        self._tunnel = tunnel
        self._ended: dict[str, str] = {}
        """Offers that need nothing any more, by node: Nodes change all the time."""

    def concerns(self, node: Object) -> bool:
        """Whether there is something to do about a Node that was added or has changed."""
        name, text = core.identity_of(node)[0], _annotation(node, VPN_KEY)
        return text != self._ended.get(name, "")

    def gone(self, name: str) -> None:
        """Take note of a Node that is there no more."""
        self._ended.pop(name, None)
        self._tunnel.withdraw(name)

    def look_again(self) -> None:
        """Have every offer looked at again: the records have been changed by somebody else."""
        self._ended.clear()

    async def follow(self, node: Object) -> float | None:
        """Do what an offer needs now; returns the seconds after which to look again, None where that is not needed."""
        name, text = core.identity_of(node)[0], _annotation(node, VPN_KEY)
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
            raise NotNow(f"the key of {record.node} is looked at again: {error}", quiet=True) from error
        self._tunnel.withdraw(record.node)
        self._tunnel.put(changed)
        await self._tunnel.follow()
        self._ended[record.node] = offer.text
        await self._answer(node, KeyAnswer(state=AnswerState.TAKEN, key=offer.key))
        _log.info("%s: %s has another key in the VPN", record.cluster, record.node)
        return None

    async def _answer(self, node: Object, answer: KeyAnswer) -> None:
        if _annotation(node, VPN_KEY_ANSWER) == answer.text:
            return
        body: dict[str, Any] = {"metadata": {"annotations": {VPN_KEY_ANSWER: answer.text}}}
        try:
            await self._ctx.api.patch(NODE, core.identity_of(node)[0], body, type="merge")
        except NotFound:
            _log.debug("%s has gone meanwhile", core.identity_of(node)[0])


def _annotation(node: Object, name: str) -> str:
    return str((core.metadata(node).get("annotations") or {}).get(name) or "")
