"""The phases `tunnel` and `tunnel-start`: this machine's end of the VPN, as a unit that starts before the kubelet at each boot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kubewright.base.change import Change
from kubewright.base.errors import WaitTimeout
from kubewright.base.events import Waited
from kubewright.enrollment.node import tunnel_checks
from kubewright.host.desired import Directory, File, Service, Show
from kubewright.host.programs import tunnels
from kubewright.manifests import tunnels as units
from kubewright.manifests.tunnels import NODE_INTERFACE

if TYPE_CHECKING:
    from kubewright.enrollment.node.context import NodeJoinContext

_PRIVATE: Final = 0o700
_WITHIN: Final = 60.0
_WITHIN_UNNEEDED: Final = 5.0
_LOOK, _LONGEST_LOOK = 0.1, 1.0
_LINES: Final = 5


def configure(ctx: NodeJoinContext) -> Iterable[Change]:
    """Write the key and the unit that follow from the hub's answer, and start the unit."""
    ends = ctx.checked.tunnel
    if ends is None:
        return
    found = tunnels.find_programs(ctx.host, ctx.host.programs)
    yield ctx.host.ensure(Directory(path=ctx.layout.oneinfra, mode=_PRIVATE))
    private = ends.private_key or ctx.tunnel_private_key
    key = ctx.host.ensure(File(path=ctx.tunnel_key_path, content=f"{private}\n".encode(), show=Show.MADE))
    yield key
    text = units.node_unit(tunnel_checks.node_tunnel(ends, key_file=ctx.tunnel_key_path), found)
    unit = File(path=units.unit_path(NODE_INTERFACE), content=text.encode(), mode=0o644)
    ctx.say(f"Setting up the VPN: {ends.shown_addresses} at {ends.endpoint}")
    yield ctx.host.ensure(Service(name=NODE_INTERFACE, enabled=True, units=(unit,), restart=bool(key)))


def only_in_vpn(ctx: NodeJoinContext) -> str | None:
    """Skip a phase on a machine without a tunnel."""
    return None if units.is_ours(ctx.host.read(units.unit_path(NODE_INTERFACE))) else "this machine has no VPN"


def start(ctx: NodeJoinContext) -> Iterable[Change | Waited]:
    """Wait until the tunnel is up and the hub answers through it. Raises WaitTimeout.

    A tunnel of oneinfra's carries no traffic that a node needs, and its hub learns a node's key at its next run, or
    never: if such a tunnel does not work, that is only a warning.
    """
    base = ctx.bound.base
    found = base.service(NODE_INTERFACE)
    gone = found is not None and found.running and base.tunnel(NODE_INTERFACE) is None
    yield ctx.host.ensure(Service(name=NODE_INTERFACE, enabled=True, restart=gone))
    needed = bool(units.node_addresses(ctx.host.read(units.unit_path(NODE_INTERFACE))))
    remedy = f"`wg show {NODE_INTERFACE}` shows where packets go; check that the hub's UDP port can be reached from here"
    try:
        yield ctx.bound.waiter.until(
            lambda: _silent(ctx),
            within=_WITHIN if needed else _WITHIN_UNNEEDED,
            saying="the hub to answer in the VPN",
            every=_LOOK,
            at_most=_LONGEST_LOOK,
            diagnose=lambda: "\n".join(ctx.host.service_lines(NODE_INTERFACE, count=_LINES)),
            remedy=f"{remedy}, then run the same command again",
        )
    except WaitTimeout as error:
        if needed or ctx.host.tunnel(NODE_INTERFACE) is None:
            raise
        ctx.warn(f"{error}; the node continues without it. {remedy}, and that the hub knows the key of this machine")


def _silent(ctx: NodeJoinContext) -> str | None:
    found = ctx.host.tunnel(NODE_INTERFACE)
    if found is None:
        return f"the interface {NODE_INTERFACE} does not exist"
    quiet = [peer for peer in found.peers if peer.keepalive and not peer.handshake]
    return "it has not answered" if quiet else None
