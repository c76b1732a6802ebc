"""The phases `request` and `answer`: send the request to the hub, and check its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeVar

from kubewright.apis import node_join_requests
from kubewright.apis.node_join_requests import CONFIG_MAP, JOIN_KEY, NAMESPACE
from kubewright.base.change import Action, Change
from kubewright.base.errors import AlreadyExists, APIError, Forbidden, NotFound, TrustError, Unauthorized
from kubewright.base.events import Waited
from kubewright.base.wait import Backoff
from kubewright.enrollment.node import preflight
from kubewright.enrollment.protocol import requests
from kubewright.enrollment.protocol.fields import MalformedField
from kubewright.enrollment.protocol.requests import JoinRequest
from kubewright.host.programs import tunnels
from kubewright.kube.answers import worth_retrying
from kubewright.kube.core import Object
from kubewright.kube.refusals import Patience
from kubewright.kube.resources import NODE_JOIN_REQUEST
from kubewright.pki.encryption import oaep
from kubewright.pki.encryption.oaep import RecipientKey

if TYPE_CHECKING:
    from kubewright.enrollment.node.context import NodeJoinContext

_WITHIN: Final = 300.0
"""Seconds to wait for the hub's answer.

If a person has to approve the node, that may take longer; the same command then continues.
"""
_LOOK: Final = Backoff(first=0.2, limit=2.0)
_STARTING: Final = 10.0
"""Seconds for which an API server may refuse or fail before the join fails."""
_LOST: Final = 20.0
"""Seconds after which a missing request counts as deleted, and a refused token as expired."""
T = TypeVar("T")


class RequestRefused(APIError):
    """The hub refuses this machine. The message is the hub's."""


class RequestLost(APIError):
    """The request can no longer be answered: it was deleted, or the token has expired."""


def request(ctx: NodeJoinContext) -> Iterable[Change]:
    """Send the request, unless an earlier run has. Raises APIError if another machine uses this name."""
    yield ctx.keep_key()
    join = ctx.join
    target = f"{NODE_JOIN_REQUEST.singular} {join.node}"
    found = _retry(ctx, lambda: _find(ctx))
    if found is None:
        recipient = _retry(ctx, lambda: _join_key(ctx))
        yield from ctx.keep_tunnel_key()
        wanted = JoinRequest(endpoint=join.server, sans=join.sans, tunnel_key=ctx.tunnel_public_key, key=ctx.key)
        body = requests.write(
            join.node,
            wanted,
            recipient=recipient,
            runtime_endpoint=join.runtime_endpoint,
            image_endpoint=join.image_endpoint,
            random=ctx.bound.machine.random,
        )
        try:
            _retry(ctx, lambda: ctx.api.create(body))
        except AlreadyExists:
            found = _retry(ctx, lambda: ctx.api.get(NODE_JOIN_REQUEST, join.node))
        else:
            ctx.say(f"Sent the hub a request to join as {join.node}")
            yield Change(target=target, action=Action.CREATE)
            return
    _require_own(ctx, found)
    ctx.say(f"Sent the request to join as {join.node} to the hub")
    yield Change(target=target, action=Action.NONE)


def _retry(ctx: NodeJoinContext, call: Callable[[], T]) -> T:
    """Call until it succeeds, for a few seconds. A refusal by a ready server is final."""
    patience = Patience(
        api=lambda: ctx.api,
        anonymous=lambda: ctx.anonymous,
        clock=ctx.bound.clock,
        reporter=ctx.bound.reporter,
        within=_STARTING,
        passes=lambda error: worth_retrying(error) and not isinstance(error, AlreadyExists),
    )
    return patience.call(call)


def _find(ctx: NodeJoinContext) -> Object | None:
    try:
        return ctx.api.get(NODE_JOIN_REQUEST, ctx.join.node)
    except NotFound:
        return None


def _join_key(ctx: NodeJoinContext) -> RecipientKey:
    """Read the hub's key. Raises TrustError if it is not the pinned one."""
    source = f"configmap {NAMESPACE}/{CONFIG_MAP}"
    key = oaep.load_recipient(str(ctx.hub_data.get(JOIN_KEY) or "").encode(), source=source)
    if ctx.join.pin is not None and key.pin != ctx.join.pin:
        raise TrustError(
            f"the join key in {source} is not the one you pinned",
            detail=f"its fingerprint is {key.pin}; pinned: {ctx.join.pin}",
            remedy="compare with `kubewright hub cluster list` on the hub; if they differ there too, another server answers in its place",
        )
    return key


def _require_own(ctx: NodeJoinContext, found: Object) -> None:
    """Require that an existing request is this machine's and asks for the same. Raises APIError."""
    node = ctx.join.node
    remedy = f"give this machine another name (--nodename), or have the hub forget {node}: kubewright hub requests forget CLUSTER {node}"
    try:
        asked = requests.reread(found, ctx.key)
    except MalformedField as error:
        raise APIError(f"another machine has requested to join as {node}", remedy=remedy) from error
    if (asked.endpoint, asked.sans) != (ctx.join.server, ctx.join.sans):
        raise APIError(f"an earlier request for {node} has other names or another endpoint", remedy=remedy)
    if asked.tunnel_key and asked.tunnel_key != ctx.tunnel_public_key:
        raise APIError(f"the VPN key of the request of {node} is no longer on this machine", remedy=remedy)


def answer(ctx: NodeJoinContext) -> Iterable[Change | Waited]:
    """Wait until the hub has answered; then check the answer, and whether it fits this machine.

    Raises RequestRefused, RequestLost, WaitTimeout, TrustError and CheckFailed.
    """
    waiting = _Waiting(ctx)
    yield ctx.bound.waiter.until(
        waiting.reason,
        within=_WITHIN,
        saying="the hub to answer",
        every=_LOOK.first,
        at_most=_LOOK.limit,
        remedy="check `kubewright hub requests` on the hub, then run the same command again, which continues with this request",
    )
    if ctx.checked.tunnel is not None:
        tunnels.find_programs(ctx.host, ctx.host.programs)  # before anything is written
    preflight.require_fit(ctx)
    ctx.say("The answer of the hub is valid")


class _Waiting:
    """The state of waiting for an answer.

    For some seconds an API server may not know the token or the request; after that, they are gone.
    """

    def __init__(self, ctx: NodeJoinContext) -> None:
        self._ctx = ctx
        self._lost: float | None = None

    def reason(self) -> str | None:
        """Return why there is no answer yet, None if there is one. Raises RequestRefused and RequestLost."""
        ctx = self._ctx
        try:
            found = ctx.answering.get(NODE_JOIN_REQUEST, ctx.join.node)
        except (NotFound, Unauthorized, Forbidden) as error:
            return self._after(error)
        except APIError as error:
            self._lost = None
            return str(error)
        self._lost = None
        condition = node_join_requests.condition_of(found)
        if condition is None:
            return "the hub has not processed it yet"
        if condition.status == "False":
            raise RequestRefused(
                f"the hub does not admit {ctx.join.node}: {condition.reason}",
                detail=condition.message,
                remedy="ask the operator of the hub; when that is fixed, the same command sends another request once the hub has deleted this one",
            )
        return None if condition.status == "True" else f"{condition.reason}: {condition.message}"

    def _after(self, error: APIError) -> str:
        node, now = self._ctx.join.node, self._ctx.bound.clock.monotonic()
        self._lost = now if self._lost is None else self._lost
        if now - self._lost < _LOST:
            return "the request no longer exists" if isinstance(error, NotFound) else str(error)
        if isinstance(error, NotFound):
            raise RequestLost(
                f"the request was deleted: {node}",
                remedy="run the same command again, which sends a new request; `kubewright hub journal` on the hub may show the reason",
            ) from error
        raise RequestLost(
            f"the token is no longer valid, and {node} has no answer yet",
            detail=str(error),
            remedy="create another one on the hub (kubewright hub token create), and run the same command with it: it continues with this request",
        ) from error
