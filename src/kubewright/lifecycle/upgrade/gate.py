"""Whether the member of etcd on this machine may be stopped: not while the others could not go on without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubewright.base.errors import HostError
from kubewright.etcd import voters
from kubewright.lifecycle.stacked_etcd import peer_url

if TYPE_CHECKING:
    from kubewright.lifecycle.upgrade.context import UpgradeContext


def require_quorum(ctx: UpgradeContext) -> None:
    """Refuse to stop this machine's member while another one is dead, if the rest would have no majority then. Raises HostError, and APIError.

    Where all members live, one of two may be stopped: its restart is an interruption, as with a single one.
    """
    own = peer_url(ctx.addresses)
    found = voters.look(ctx.members, without=own)
    others = [member for member in found.living if own not in member.peer_urls]
    if found.dead and len(others) * 2 <= len(found.members):
        raise HostError(
            "etcd is not restarted, because it would lose its quorum: other members are dead",
            detail="\n".join(one.reason for one in found.dead),
            remedy="start these members again, or remove them; or leave etcd as it is with --etcd-upgrade=false",
        )
