"""Learners that are left over: members without a vote that were added for a machine which never came.

etcd does not store when a member was added, but its ID tells: it is derived from the peer URLs and the second in which
the member was added.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from kubewright.etcd.api import Etcd, Member

PATIENCE: Final = 600
"""Seconds after which a learner that has never started is left over: its machine may have to pull images before."""
_SKEW: Final = 60
"""Seconds by which the clock of the member that added it may be ahead."""


def identifier(source: bytes) -> int:
    """Return the ID of a member or cluster that etcd derives from these bytes: the beginning of their SHA-1."""
    return int.from_bytes(hashlib.sha1(source, usedforsecurity=False).digest()[:8], "big")


def is_recent(member: Member, *, now: datetime) -> bool:
    """Whether a member was added within the last ten minutes.

    Its ID is derived from its peer URLs and the second of the request (etcd v3.6: server/etcdserver/api/v3rpc/member.go,
    MemberAdd; server/etcdserver/api/membership/member.go, computeMemberID).
    """
    urls, second = "".join(sorted(member.peer_urls)), int(now.timestamp())
    return any(identifier(f"{urls}{added}".encode()) == member.id for added in range(second - PATIENCE, second + _SKEW))


def left_over(etcd: Etcd, members: Sequence[Member], *, now: datetime) -> list[Member]:
    """Return the learners that have never started, were added more than ten minutes ago, and whose machine does not listen."""
    return [
        one
        for one in members
        if one.learner and not one.name and not is_recent(one, now=now) and all(etcd.reach(url) for url in one.peer_urls)
    ]
