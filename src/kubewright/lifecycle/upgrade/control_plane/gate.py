"""Decides whether etcd and the API server of this machine may be stopped: only if the others can work without them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kubewright.base.errors import APIError, HostError, Unreachable
from kubewright.base.events import Warned
from kubewright.base.records import replace
from kubewright.base.wait import retry
from kubewright.etcd import alarms, learners, voters
from kubewright.etcd.api import PASSING
from kubewright.etcd.membership import PAUSES
from kubewright.lifecycle import stacked_etcd
from kubewright.lifecycle.stacked_etcd import peer_url
from kubewright.lifecycle.steps import other_servers

if TYPE_CHECKING:
    from kubewright.lifecycle.upgrade.context import UpgradeContext

_TOPIC: Final = "upgrade/etcd"


def require_quorum(ctx: UpgradeContext) -> None:
    """Raise HostError if etcd would lose its quorum without this machine's member, for learners, and for alarms.

    Raises WaitTimeout if the data of that member is not that of the others: one of them may be corrupt. While another
    member is dead, the rest must have a majority without this one. If all are alive, one of two members may be stopped:
    its restart is an interruption, as with a single member. The members are asked again while they do not answer: an
    interrupted run may have restarted the member of this machine. Raises APIError in the end.
    """
    within, failed = ctx.timeouts.etcd_api_call.seconds, ctx.waiting_for_etcd()
    retry(lambda: _require_quorum(ctx), clock=ctx.clock, on=(*PASSING, Unreachable), within=within, backoff=PAUSES, failed=failed)


def _require_quorum(ctx: UpgradeContext) -> None:
    own = peer_url(ctx.addresses)
    found = voters.look(ctx.members, without=own)
    others = [member for member in found.living if own not in member.peer_urls]
    if found.dead and len(others) * 2 <= len(found.members):
        raise HostError(
            "etcd is not restarted, because it would lose its quorum: other members are dead",
            detail="\n".join(one.reason for one in found.dead),
            remedy="start these members, or remove them; --etcd-upgrade=false keeps the present etcd",
        )
    members = ctx.members.members(agreed=False)
    late = learners.left_over(ctx.members, members, now=ctx.clock.now())  # these are warned about (EtcdMembers)
    problems = [f"{member.shown} has no vote yet" for member in members if member.learner and member not in late]
    raised = ctx.members.alarms()
    problems += alarms.described(raised, members)
    if problems:
        raise HostError(
            "etcd is not restarted in its present state",
            detail="\n".join(problems),
            remedy=alarms.remedy(raised)
            or "run `kubewright etcd status` and fix what it shows, or keep the present etcd with --etcd-upgrade=false",
        )
    endpoint = stacked_etcd.client_url(ctx.addresses)
    if not ctx.etcd.status(endpoint).problem:  # a member that does not answer may be what the upgrade repairs
        ctx.waiter.until(
            lambda: voters.unlike_others(ctx.etcd, endpoint),
            within=ctx.timeouts.etcd_api_call.seconds,  # for a member that is a few writes behind
            saying="the members of etcd to have the same data",
            remedy="see which member is wrong (`kubewright etcd status`), and replace it on its machine: `kubewright etcd member replace`",
        )


def give_leadership_away(ctx: UpgradeContext) -> None:
    """Move the leadership to another member before this one is stopped.

    If that fails, the others elect a leader about a second after the stop.
    """
    endpoint = stacked_etcd.client_url(ctx.addresses)
    own = ctx.etcd.status(endpoint)
    if not own.member_id or own.leader_id != own.member_id:
        return
    target = next((one for one in ctx.members.statuses() if one.serves and not one.learner and one.member_id != own.member_id), None)
    if target is None:
        return
    try:
        ctx.etcd.move_leader(endpoint, target.member_id)
    except APIError as error:
        ctx.reporter.emit(Warned(text=f"this member of etcd stays the leader until it is restarted: {error}"))
        return
    ctx.say(_TOPIC, f"The member {target.member_id:x} leads etcd while the one of this machine is restarted")


def require_another_server(ctx: UpgradeContext) -> None:
    """Raise HostError if there are other API servers and none of them is ready, or APIError."""
    other_servers.require_ready(
        ctx.api, node=ctx.node_name, reach=lambda server: ctx.bound.connections.kube(replace(ctx.administrator, server=server))
    )
