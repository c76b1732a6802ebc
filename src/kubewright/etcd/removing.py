"""A machine's member is gone: what `reset` wants, and a join that failed for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubewright.base.change import Action, Change
from kubewright.base.clock import Clock
from kubewright.base.errors import Unreachable
from kubewright.base.retry import Backoff, retry
from kubewright.etcd.api import Etcd
from kubewright.etcd.failures import PASSING, MemberNotFound
from kubewright.etcd.members import Member, by_peer_url

PAUSES: Final = Backoff(first=0.05, factor=1.5, limit=0.5)


def to_remove(members: Sequence[Member], peer_url: str) -> Member | None:
    """Return the member with a peer URL if it can go; None if it is not there, or is the only one: etcd without members is no etcd."""
    return by_peer_url(members, peer_url) if len(members) > 1 else None


def remove_member(etcd: Etcd, peer_url: str, *, clock: Clock, within: float) -> Change:
    """Make the member with this peer URL be gone, and say what that took. One that is absent, or the only one, takes nothing.

    What time may mend is tried again for `within` seconds; then the last error is raised as it is.
    """
    return retry(lambda: _remove(etcd, peer_url), clock=clock, on=(*PASSING, Unreachable), within=within, backoff=PAUSES)


def _remove(etcd: Etcd, peer_url: str) -> Change:
    members = etcd.members()
    one = to_remove(members, peer_url)
    if one is None:
        reason = "it is the only member" if by_peer_url(members, peer_url) else "it is no member"
        return Change(target=target(peer_url), action=Action.NONE, reason=reason)
    try:
        etcd.remove(one.id)
    except MemberNotFound:
        return Change(target=target(peer_url), action=Action.NONE, reason="somebody else has removed it")
    return Change(target=target(peer_url, name=one.name), action=Action.DELETE)


def target(peer_url: str, *, name: str = "") -> str:
    """Return what changes call a member: `member two at https://10.0.0.2:2380`."""
    return f"member {name} at {peer_url}" if name else f"member {peer_url}"
