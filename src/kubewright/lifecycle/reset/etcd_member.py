"""The phase `remove-etcd-member`: this machine's member leaves its cluster, and its data goes. Somebody else's etcd is left alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kubewright.base.change import Change
from kubewright.base.errors import KubewrightError
from kubewright.lifecycle.reset.context import ResetContext

if TYPE_CHECKING:
    from kubewright.etcd.api import Etcd

PATIENCE: Final = 5.0
"""Seconds in which etcd may find a leader; kubeadm tries for two minutes."""


def run(ctx: ResetContext) -> Iterator[Change]:
    """Remove the member and empty its data directory. A member that cannot be removed is a warning, as with kubeadm."""
    yield from ctx.attempt(lambda: _leave(ctx))
    yield from ctx.attempt(lambda: empty_data(ctx))


def _leave(ctx: ResetContext) -> Iterator[Change]:
    remains = ctx.remains
    if remains.member is None:
        if remains.foreign_data:
            data = remains.layout.etcd_data
            ctx.say(f'"{data}" is left as it is: nothing on this machine says that its etcd is of this cluster')
        return
    ctx.tell("", "Would remove the etcd member on this node from the etcd cluster")
    yield from _member(ctx, remains.member.peer_url, remains.member.endpoints)


def empty_data(ctx: ResetContext) -> Iterator[Change]:
    """Empty the data directory of this machine's member."""
    data = ctx.remains.layout.etcd_data
    if not ctx.remains.etcd_data:
        return
    ctx.tell("", f"Would delete contents of the etcd data directory: {data}")
    yield ctx.host.empty(data)
    ctx.tell(f"Deleted contents of the etcd data directory: {data}", "")


def _member(ctx: ResetContext, peer_url: str, endpoints: tuple[str, ...]) -> Iterator[Change]:
    from kubewright.etcd.membership import remove_member

    within = min(PATIENCE, ctx.configuration.timeouts.etcd_api_call.seconds)
    etcd: Etcd | None = None
    try:
        etcd = ctx.etcd(endpoints)
        change = remove_member(etcd, peer_url, clock=ctx.clock, within=within)
    except KubewrightError as error:
        ctx.warn(
            f"the etcd member {peer_url} may still be in its cluster, because etcd could not be asked: {error}."
            " If the cluster goes on without this machine, remove the member from another control plane (`etcdctl member remove`)"
        )
        return
    finally:
        close = getattr(etcd, "close", None)
        if close is not None:
            close()
    if change:
        ctx.tell(f"Removed the {change.target} from the etcd cluster", "")
    yield change
