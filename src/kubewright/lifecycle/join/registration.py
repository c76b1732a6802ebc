"""The Node of this machine's name: another machine's is not taken over (spec/kubeadm.md 8.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kubewright.base.change import Action, Change
from kubewright.base.errors import APIError, NotFound
from kubewright.kube.core import Object
from kubewright.kube.resources import NODE
from kubewright.lifecycle.join import identity, reading

if TYPE_CHECKING:
    from kubewright.lifecycle.join.context import JoinContext

_OVERRIDE: Final = "hostname-override"


def name(ctx: JoinContext) -> str:
    """Return the name that the kubelet will register with: an argument counts more than the configuration."""
    given = [arg.value for arg in ctx.configuration.init.node_registration.kubelet_extra_args if arg.name == _OVERRIDE]
    return given[-1] if given else ctx.node_name


def is_done(ctx: JoinContext) -> bool:
    """Tell whether an earlier run of this join came so far that the kubelet has its certificate."""
    return ctx.resumed and identity.of_node(ctx.host, now=ctx.clock.now()) is not None


def find(ctx: JoinContext) -> Object | None:
    """Read the Node; None if there is none. Raises APIError where it cannot be read."""
    try:
        return reading.patiently(ctx, lambda: ctx.bootstrap.get(NODE, name(ctx)))
    except NotFound:
        return None


def require_free(ctx: JoinContext) -> Change:
    """Return that the kubelet registers a Node; one that is there and not Ready, or surely this machine's own, is taken over.

    Raises APIError for another one that is Ready.
    """
    target = f"Node {name(ctx)}"
    if ctx.registered is None:
        return Change(target=target, action=Action.CREATE, reason="the kubelet registers it")
    conditions = (ctx.registered.get("status") or {}).get("conditions") or ()
    if not ctx.owns_node and any(row.get("type") == "Ready" and row.get("status") == "True" for row in conditions):
        raise APIError(
            f"a Node with the name {name(ctx)} exists in the cluster and is Ready",
            remedy=f"give this machine another name (--node-name), or delete the old one with `kubectl delete node {name(ctx)}`",
        )
    return Change(target=target, action=Action.NONE)
