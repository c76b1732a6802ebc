"""Decides whether etcd and the API server of this machine may be stopped: only if the others can work without them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kubewright.base.errors import APIError, HostError
from kubewright.base.events import Warned
from kubewright.base.records import replace
from kubewright.etcd import voters
from kubewright.kube.resources import POD
from kubewright.lifecycle import stacked_etcd
from kubewright.lifecycle.stacked_etcd import peer_url
from kubewright.lifecycle.steps import health
from kubewright.lifecycle.steps.detected_cluster import API_SERVER
from kubewright.lifecycle.upgrade.planning.versions import NAMESPACE
from kubewright.manifests.static_pods import ENDPOINT

if TYPE_CHECKING:
    from kubewright.lifecycle.upgrade.context import UpgradeContext

_TOPIC: Final = "upgrade/etcd"


def require_quorum(ctx: UpgradeContext) -> None:
    """Raise HostError if etcd would lose its quorum without this machine's member, for learners, and for alarms.

    While another member is dead, the rest must have a majority without this one. If all are alive, one of two members
    may be stopped: its restart is an interruption, as with a single member.
    """
    own = peer_url(ctx.addresses)
    found = voters.look(ctx.members, without=own)
    others = [member for member in found.living if own not in member.peer_urls]
    if found.dead and len(others) * 2 <= len(found.members):
        raise HostError(
            "etcd is not restarted, because it would lose its quorum: other members are dead",
            detail="\n".join(one.reason for one in found.dead),
            remedy="start these members, or remove them; --etcd-upgrade=false keeps the present etcd",
        )
    problems = [f"{member.shown} has no vote yet" for member in ctx.members.members(agreed=False) if member.learner]
    problems += [f"the member {alarm.member_id:x} has raised the alarm {alarm.kind}" for alarm in ctx.members.alarms()]
    if problems:
        raise HostError(
            "etcd is not restarted in its present state",
            detail="\n".join(problems),
            remedy="run `kubewright etcd status` and fix what it shows, or keep the present etcd with --etcd-upgrade=false",
        )


def give_leadership_away(ctx: UpgradeContext) -> None:
    """Move the leadership to another member before this one is stopped.

    If that fails, the others elect a leader about a second after the stop.
    """
    endpoint = stacked_etcd.client_url(ctx.addresses)
    own = ctx.etcd.status(endpoint)
    if not own.member_id or own.leader_id != own.member_id:
        return
    target = next((one for one in ctx.members.statuses() if one.healthy and not one.learner and one.member_id != own.member_id), None)
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
    others = dict(_others(ctx))
    if not others:
        return
    problems = []
    for node, server in others.items():
        reason = health.unready(ctx.bound.connections.kube(replace(ctx.administrator, server=server)))
        if reason is None:
            return
        problems.append(f"{node}: {reason}")
    raise HostError(
        "the API server of this machine is not restarted, because no other one is ready",
        detail="\n".join(problems),
        remedy="start another one; the Node of a machine that will not come back is removed with `kubectl delete node NAME`",
    )


def _others(ctx: UpgradeContext) -> Iterator[tuple[str, str]]:
    """Yield the nodes and addresses of the other API servers, from their pods."""
    for pod in ctx.client.list(POD, NAMESPACE, label_selector=f"component={API_SERVER},tier=control-plane"):
        node, endpoint = str(pod["spec"].get("nodeName", "")), (pod["metadata"].get("annotations") or {}).get(ENDPOINT, "")
        if endpoint and node != ctx.node_name:
            yield node, f"https://{endpoint}"
