"""Removing a member of etcd, unless the others would have no majority without it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from kubewright.base.change import Change
from kubewright.base.clock import Clock
from kubewright.base.errors import APIError, CheckFailed
from kubewright.etcd import voters
from kubewright.etcd.api import Etcd, Member, MemberNotFound
from kubewright.etcd.membership import remove_member

WITHIN: Final = 60.0
"""Seconds for etcd to accept the removal: it refuses removals for a moment after members have connected."""
LEADERLESS: Final = 20.0
"""Seconds for etcd to elect a leader."""


def choose(members: Sequence[Member], text: str) -> Member:
    """Return the member with a name, else that with an id in hexadecimal, as etcdctl shows it, or in decimal, as in its JSON.

    Raises MemberNotFound unless there is exactly one.
    """
    found = (
        [one for one in members if one.name and one.name == text]
        or [one for one in members if one.hex_id == text.lower().lstrip("0")]
        or [one for one in members if str(one.id) == text]
    )
    if len(found) == 1:
        return found[0]
    listed = "\n".join(f"{one.hex_id}: {one.shown}" for one in members)
    if found:
        raise MemberNotFound(f"{len(found)} members of etcd have the name {text!r}", detail=listed, remedy="specify the member by its id")
    raise MemberNotFound(f"etcd has no member {text!r}", detail=listed, remedy="specify one of these by name or id")


def require_removable(etcd: Etcd, member: Member, members: Sequence[Member]) -> None:
    """Require that the remaining voting members have a majority without this one. Raises CheckFailed, APIError."""
    if len(members) == 1:
        raise CheckFailed(
            f"{member.shown} is the only member of etcd",
            detail="without it the cluster has no etcd",
            remedy="`reset` removes a cluster's last machine",
        )
    found = voters.look(etcd)
    dead = "\n".join(one.reason for one in found.dead)
    if not found.has_quorum:
        raise CheckFailed(
            f"{member.shown} cannot be removed, because etcd has no majority",
            detail=dead,
            remedy="start the other members again; without a majority etcd changes no members",
        )
    if not found.without(member).has_quorum:
        raise CheckFailed(
            f"{member.shown} is not removed: the other voting members would not have a majority",
            detail=dead or f"{len(found.members) - 1} voting members would be left",
            remedy="start the dead members again, or remove those first",
        )


def remove(etcd: Etcd, member: Member, *, clock: Clock) -> Change:
    """Remove a member; a leader hands over its leadership first.

    Raises as `require_removable` and `remove_member` do.
    """
    require_removable(etcd, member, etcd.members())
    with contextlib.suppress(APIError):  # otherwise the others elect a leader after the removal, within seconds
        _pass_on(etcd, member)
    return remove_member(etcd, member.peer_urls[0], clock=clock, within=WITHIN, leaderless=LEADERLESS)


def _pass_on(etcd: Etcd, member: Member) -> None:
    statuses = [one for one in etcd.statuses() if one.serves and not one.learner]
    leads = next((one for one in statuses if one.member_id == one.leader_id == member.id), None)
    follows = [one for one in statuses if one.member_id != member.id]
    if leads is not None and follows:
        etcd.move_leader(leads.endpoint, max(follows, key=lambda one: one.raft_index).member_id)
