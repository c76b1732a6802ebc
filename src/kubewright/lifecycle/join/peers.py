"""Checks that this machine and the other members of etcd reach each other's peer ports.

Etcd counts a new member before it has connected, accepts no other one in the meantime, and would report a packet filter
only as a member that is not in sync. Messages of members use any existing connection, so a filter in one direction may
be noticed only when the leader must send a snapshot. kubeadm checks neither direction.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from kubewright.base.errors import APIError, WaitTimeout
from kubewright.base.events import Waited
from kubewright.etcd.api import Member
from kubewright.lifecycle.stacked_etcd import patient, peer_url

if TYPE_CHECKING:
    from kubewright.lifecycle.join.context import JoinContext

_WITHIN: Final = 10.0
"""Seconds for reaching the peer ports: a firewall is not a temporary problem. Members try every tenth of a second."""
_EVERY: Final = 1.0
_REMEDY: Final = "let the control planes reach each other on port {port}, in both directions (a firewall?), then run the same command again"
_WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 nothing is bound here


def reached(ctx: JoinContext) -> Waited:
    """Wait until this machine reaches the peer ports of the healthy members: otherwise its member would never come up.

    Raises WaitTimeout, which names the unreachable ones.
    """

    def problems() -> str | None:
        urls = [url for one in _others(ctx) for url in one.peer_urls[:1]]
        return "; ".join(f"{url}: {problem}" for url in urls if (problem := ctx.etcd.reach(url))) or None

    return ctx.waiter.until(
        patient(problems), within=_patience(ctx), saying="this machine to reach the peer ports of etcd's members", remedy=_remedy(ctx)
    )


def arrived(ctx: JoinContext) -> Waited:
    """Wait until the healthy members have connected to the peer port of this machine's running etcd.

    Raises WaitTimeout, which names the others.
    """
    missing = patient(lambda: _explained(ctx, _missing(ctx)) or None)
    return ctx.waiter.until(missing, within=_patience(ctx), saying=_saying(ctx), remedy=_remedy(ctx))


class Arrivals:
    """Checks, during another wait, whether the other members connect to the peer port of this machine's etcd once it listens."""

    def __init__(self, ctx: JoinContext) -> None:
        self._ctx = ctx
        self._next: float | None = None
        self._complete = False

    def require(self) -> None:
        """Raise WaitTimeout if members have not connected in time."""
        if self._complete:
            return
        now = self._ctx.clock.monotonic()
        if not _listens(self._ctx):
            self._next = None
        elif self._next is None:
            self._next = now + _patience(self._ctx)
        elif now >= self._next:
            self._next = now + _EVERY
            try:
                missing = _missing(self._ctx)
            except APIError:  # the other wait reports it
                return
            if missing:
                raise WaitTimeout(
                    f"gave up waiting for {_saying(self._ctx)}", detail=_explained(self._ctx, missing), remedy=_remedy(self._ctx)
                )
            self._complete = True


def _others(ctx: JoinContext) -> list[Member]:
    healthy = {status.member_id for status in ctx.etcd.statuses() if status.serves}
    return [one for one in ctx.etcd.members() if one.id in healthy and peer_url(ctx.addresses) not in one.peer_urls]


def _missing(ctx: JoinContext) -> list[Member]:
    """Return the members that are not connected; none if connections have unknown source addresses because of NAT."""
    others = {one: _addresses(one) for one in _others(ctx)}
    came = set(ctx.host.network.connected(ctx.addresses.ports.etcd_peer))
    if came - {address for addresses in others.values() for address in addresses} - {ctx.addresses.advertise}:
        return []
    return [one for one, addresses in others.items() if addresses and not came.intersection(addresses)]


def _addresses(member: Member) -> Sequence[str]:
    """Return the addresses in a member's peer URLs; none if they contain names."""
    found = []
    for url in member.peer_urls:
        try:
            found.append(str(ipaddress.ip_address(urlsplit(url).hostname or "")))
        except ValueError:
            return ()
    return found


def _listens(ctx: JoinContext) -> bool:
    places = {ctx.addresses.advertise, *_WILDCARDS}
    return any(one.port == ctx.addresses.ports.etcd_peer and one.address in places for one in ctx.host.network.listeners())


def _explained(ctx: JoinContext, missing: Iterable[Member]) -> str:
    return "; ".join(f"{one.shown} has no connection to {peer_url(ctx.addresses)}" for one in missing)


def _saying(ctx: JoinContext) -> str:
    return f"the other members of etcd to reach port {ctx.addresses.ports.etcd_peer} of this machine"


def _remedy(ctx: JoinContext) -> str:
    return _REMEDY.format(port=ctx.addresses.ports.etcd_peer)


def _patience(ctx: JoinContext) -> float:
    return min(_WITHIN, ctx.configuration.init.timeouts.etcd_api_call.seconds)
