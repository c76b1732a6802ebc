"""Ending an etcd of this machine whose manifest was taken away."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kubewright.base.change import Change
from kubewright.base.errors import WaitTimeout
from kubewright.base.events import Waited
from kubewright.host.desired import Service
from kubewright.lifecycle.steps import kubelet

if TYPE_CHECKING:
    from kubewright.lifecycle.join.context import JoinContext

_LOOK: Final = 0.02
_KUBELET: Final = 8.0
"""Seconds in which a kubelet ends a pod, if it ends pods at all."""


def gone(ctx: JoinContext, *, pods: Iterable[str]) -> Iterable[Change | Waited]:
    """Wait until nobody holds this machine's peer port any more; `pods` are the static pods whose manifests were taken away.

    A kubelet ends no static pod before it has heard from an API server, which one that a failed run left behind may never have. It is
    started anew then: it does not know the pods any more, and does not bring back what the container runtime removes.
    Raises WaitTimeout.
    """
    patience = ctx.configuration.init.timeouts.etcd_api_call.seconds
    try:
        yield _free(ctx, within=min(_KUBELET, patience))
    except WaitTimeout:
        yield ctx.host.ensure(Service(name=kubelet.SERVICE, restart=True))
        names = {f"{pod}-{ctx.node_name}" for pod in pods}
        for sandbox in ctx.host.runtime.sandboxes():
            if sandbox.name in names:
                yield ctx.host.runtime.remove_sandbox(sandbox)
        yield _free(ctx, within=patience)


def _free(ctx: JoinContext, *, within: float) -> Waited:
    address, port = ctx.addresses.advertise, ctx.addresses.ports.etcd_peer

    def free() -> str | None:
        held = any(one.port == port and one.address in {address, "0.0.0.0", "::"} for one in ctx.host.network.listeners())  # noqa: S104
        return f"port {port} is still listened on" if held else None

    return ctx.waiter.until(
        free,
        within=within,
        saying="the etcd that was here to end",
        every=_LOOK,
        at_most=_LOOK,
        remedy=f"see who listens on port {port} with `ss -ltnp`, and end it",
    )
