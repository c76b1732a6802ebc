"""The hub's part when nodes of a tenant leave.

    asked ── the proof holds ──> the name is free ──> the request is deleted ──> the Node is deleted, for which the node waits
          ── it does not ──> refused, with a reason on the Node; nothing is freed

All state is observable: a node's wish is on its Node, and what it held is in its record. So a hub that was killed
half-way continues after a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Any, Final

from kubewright.apis.join_records import JoinRecord, State
from kubewright.apis.node_join_requests import LEAVE_ANSWER, LEAVE_PROOF, LEAVING_LABEL
from kubewright.base.clock import rfc3339
from kubewright.base.errors import Conflict
from kubewright.base.records import replace
from kubewright.enrollment.hub.tenant_context import TenantContext
from kubewright.enrollment.protocol import leave_proofs
from kubewright.kube import core
from kubewright.kube.core import Object
from kubewright.kube.resources import NODE, NODE_JOIN_REQUEST

_log = logging.getLogger(__name__)

UNPROVEN: Final = (
    "there is no proof that the node itself wants to leave (older versions of kubewright send no proof);"
    " an administrator can free the name: kubewright hub requests forget"
)
UNKNOWN: Final = "no node of this name has joined through this hub, or an administrator has freed the name"


class Departures:
    """The nodes of one cluster that leave."""

    def __init__(self, ctx: TenantContext) -> None:
        self._ctx = ctx
        self._refused: dict[str, tuple[str, str]] = {}
        """Refusals by node, kept because Nodes change all the time."""

    def concerns(self, node: Object) -> bool:
        """Whether a Node that was added or changed needs any work."""
        answered = self._refused.get(core.identity_of(node)[0]) == _leave_request(node) and core.annotation_of(node, LEAVE_ANSWER) != ""
        return _asks(node) and not answered

    def gone(self, name: str) -> None:
        """Record that a Node is gone."""
        self._refused.pop(name, None)

    def look_again(self) -> None:
        """Check all refused nodes again: another process has changed the records."""
        self._refused.clear()

    async def follow(self, node: Object) -> bool:
        """Release a node that has proven its request to leave; return whether it has left.

        Nodes that did not join through this hub stay.
        """
        if not _asks(node):
            return False
        name, uid = core.identity_of(node)[0], _uid(node)
        record = await self._ctx.store.ask(lambda store: store.record(self._ctx.name, name))
        proof = leave_proofs.read(core.annotation_of(node, LEAVE_PROOF))
        if record is None or proof is None or not leave_proofs.is_proven(proof, name, uid, issued=record.certificates):
            await self._refuse(node, UNKNOWN if record is None else UNPROVEN)
            return False
        if self._ctx.tunnel is not None:
            self._ctx.tunnel.let_go(name)
        if record.active:
            await self._free(record)
        if record.request:
            await self._unless_another(self._ctx.api.delete(NODE_JOIN_REQUEST, name, uid=record.request))
        await self._unless_another(self._ctx.api.delete(NODE, name, uid=uid))
        _log.info("%s: %s has left", self._ctx.name, name)
        return True

    async def _free(self, record: JoinRecord) -> None:
        left = replace(record, state=State.LEFT, lease="", tunnel_key="", changed=rfc3339(self._ctx.clock.now()))
        event = self._ctx.event("left", record.node, serials=[one.serial for one in record.certificates])
        await self._ctx.keep(left, event, before=record)
        self._ctx.ends.put(left)

    async def _refuse(self, node: Object, reason: str) -> None:
        name, _ = core.identity_of(node)
        if core.annotation_of(node, LEAVE_ANSWER) != reason:
            body: dict[str, Any] = {"metadata": {"uid": _uid(node), "annotations": {LEAVE_ANSWER: reason}}}
            await self._unless_another(self._ctx.api.patch(NODE, name, body, type="merge"))
            _log.warning("%s: %s may not leave: %s", self._ctx.name, name, reason)
        self._refused[name] = _leave_request(node)

    async def _unless_another(self, call: Awaitable[Object]) -> None:
        """Make a call about an object; its refusal is ignored if the name now belongs to another object."""
        try:
            await self._ctx.ignoring_gone(call)
        except Conflict:
            _log.debug("%s: there is another object of this name by now", self._ctx.name)


def _asks(node: Object) -> bool:
    return (core.metadata(node).get("labels") or {}).get(LEAVING_LABEL) == "true" or bool(core.annotation_of(node, LEAVE_PROOF))


def _leave_request(node: Object) -> tuple[str, str]:
    """Return the parts of a Node that concern leaving: the answer stays the same as long as these do."""
    return _uid(node), core.annotation_of(node, LEAVE_PROOF)


def _uid(node: Object) -> str:
    return str(core.metadata(node).get("uid") or "")
