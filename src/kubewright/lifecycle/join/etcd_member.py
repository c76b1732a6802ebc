"""The phases `check-etcd` and `etcd-join`: this machine's member of the cluster's etcd.

Source: kubeadm v1.36: util/etcd/etcd.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kubewright.base import yaml
from kubewright.base.change import Change
from kubewright.base.errors import HostError, KubewrightError
from kubewright.base.events import Waited, Warned
from kubewright.etcd.api import by_peer_url, initial_cluster, quorum
from kubewright.etcd.membership import EtcdMember, Joining, Step, decide, remove_member
from kubewright.host.desired import Directory
from kubewright.lifecycle import machine_record
from kubewright.lifecycle.join import etcd_learner, etcd_voters, peers
from kubewright.lifecycle.machine_record import MEMBER
from kubewright.lifecycle.stacked_etcd import QUORUM_REMEDY, client_url, peer_url
from kubewright.lifecycle.steps import static_pods

if TYPE_CHECKING:
    from kubewright.lifecycle.join.context import JoinContext

TOPIC: Final = "etcd"
COMPONENT: Final = "etcd"
CHECK: Final = "check-etcd"
EXISTING: Final = "existing"
_CLUSTER: Final = "initial-cluster"
_STATE: Final = "initial-cluster-state"
_WITHDRAWING: Final = 10.0
"""Seconds for removing the member after a failure."""


def check(ctx: JoinContext) -> Iterable[Waited]:
    """Wait until more than half of the other members are healthy and then, briefly, until all voting ones are up.

    The member of this machine does not count: a killed run may have left it without an etcd, which this run starts.
    Raises WaitTimeout, which names the unhealthy ones.
    """
    if ctx.cluster.etcd.external is not None:
        ctx.say(CHECK, "Skipping etcd check in external mode")
        return
    ctx.say(CHECK, "Checking that the etcd cluster is healthy")

    def healthy() -> str | None:
        statuses = [status for status in ctx.etcd.statuses() if status.endpoint != client_url(ctx.addresses)]
        return None if quorum(statuses) else "; ".join(status.reason for status in statuses if status.reason)

    yield ctx.waiter.until(
        healthy,
        within=_patience(ctx),
        saying="etcd to be healthy",
        remedy=QUORUM_REMEDY,
    )
    yield etcd_voters.alive(ctx)


def join(ctx: JoinContext) -> Iterable[Change | Waited]:
    """Ensure that this machine's member exists, start its etcd, and promote it once it has caught up.

    A member that has never voted is removed again if its etcd does not start, or join is stopped. A killed run leaves a
    learner with which the same join continues. Raises WaitTimeout, ComponentFailed, APIError.
    """
    if ctx.cluster.etcd.external is not None:
        return
    yield from etcd_learner.end(ctx)
    joining = Joining(etcd=ctx.etcd, clock=ctx.clock, waiter=ctx.waiter, within=_patience(ctx))
    desired = _desired(ctx)
    step = decide(joining.look(), desired)
    if step is not Step.KEEP or not desired.has_data:
        yield from _clear(ctx)
        desired = _desired(ctx)
    if step is not Step.KEEP:
        yield etcd_voters.alive(ctx)
        yield peers.reached(ctx)
    doing = "Using existing" if step is Step.KEEP else "Adding this machine's"
    ctx.say(TOPIC, f"{doing} etcd member at {desired.peer_url}")
    ctx.bound.settle(True)  # the other members know this machine from now on
    try:
        yield joining.add(desired)
        yield from _started(ctx, joining, desired)
    except BaseException as error:  # also signals, and a closed output
        _withdraw(ctx, desired, error)
        raise


def _patience(ctx: JoinContext) -> float:
    return ctx.configuration.init.timeouts.etcd_api_call.seconds


def _desired(ctx: JoinContext) -> EtcdMember:
    has_data = bool(ctx.host.entries(ctx.layout.etcd_data / MEMBER))
    return EtcdMember(name=ctx.node_name, peer_url=peer_url(ctx.addresses), has_data=has_data)


def _clear(ctx: JoinContext) -> Iterable[Change | Waited]:
    """Remove the files of an earlier attempt: the manifest and data of a member that the cluster no longer knows.

    Raises HostError for data that this join did not create.
    """
    data = ctx.layout.etcd_data
    member = data / MEMBER  # etcd's own: the configured directory may contain other files
    if ctx.host.entries(data) and (not ctx.resumed or machine_record.was_there_before(ctx.host, member)):
        raise HostError(
            f"{data} contains the data of another etcd",
            detail=f"the cluster has no member at {peer_url(ctx.addresses)} that it belongs to",
            remedy="reset this machine first, or move the data away",
        )
    manifest = ctx.layout.manifest(COMPONENT)
    if ctx.host.state(manifest) is not None:
        yield ctx.host.remove(manifest)
        yield from etcd_learner.wait_until_gone(ctx, pods=(COMPONENT,))
    if ctx.host.entries(member):
        yield ctx.host.empty(member, own=[member])


def _started(ctx: JoinContext, joining: Joining, desired: EtcdMember) -> Iterable[Change | Waited]:
    """Start etcd and wait until it serves.

    Only then may it vote, because a voter that is down would stop a cluster of two.
    """
    flags = _flags(ctx, joining, desired)
    yield ctx.host.ensure(Directory(path=ctx.layout.etcd_data, mode=static_pods.PRIVATE))
    if not desired.has_data and etcd_learner.possible(ctx):
        ctx.say(TOPIC, "Letting the new etcd member receive the data of the cluster")
        yield from etcd_learner.learn(ctx, ctx.patched(COMPONENT, ctx.inputs.pod(COMPONENT, more=flags)))
    yield from static_pods.write(
        COMPONENT, ctx.inputs, host=ctx.host, patched=ctx.patched, manifests=ctx.bound.manifests, reporter=ctx.reporter, more=flags
    )
    ctx.say(TOPIC, "Waiting for the new etcd member to join the cluster")
    yield etcd_learner.serving(ctx)
    found = by_peer_url(joining.look(), desired.peer_url)
    if found is not None and found.learner:
        yield peers.arrived(ctx)
    promoted = joining.promote(desired)
    if desired.has_data:
        yield promoted  # otherwise it is part of creating the member


def _flags(ctx: JoinContext, joining: Joining, desired: EtcdMember) -> Mapping[str, str]:
    """Return the flags that tell a new member about the others. One with data ignores them: they stay unchanged."""
    found = _written(ctx) if desired.has_data else None
    members = initial_cluster(joining.look(), name=desired.name, peer_url=desired.peer_url)
    return {_CLUSTER: found or members, _STATE: EXISTING}


def _written(ctx: JoinContext) -> str | None:
    """Return the initial cluster in this machine's manifest."""
    content = ctx.host.read(ctx.layout.manifest(COMPONENT))
    if content is None:
        return None
    prefix = f"--{_CLUSTER}="
    try:
        pod = yaml.load_one(content, source="etcd.yaml").value
        command = pod["spec"]["containers"][0]["command"]  # type: ignore[index]
        return next((word.removeprefix(prefix) for word in command if word.startswith(prefix)), None)
    except (KubewrightError, KeyError, IndexError, TypeError, AttributeError):
        return None


def _withdraw(ctx: JoinContext, desired: EtcdMember, why: BaseException) -> None:
    """Remove a member that has never voted, so that etcd accepts the next one, and its manifest, because its etcd could not start."""
    try:
        found = by_peer_url(ctx.etcd.members(), desired.peer_url)
        if found is None:
            ctx.bound.settle(False)
        if found is None or not found.learner:
            return
        for name in (etcd_learner.NAME, COMPONENT):
            ctx.host.remove(ctx.layout.manifest(name))
        remove_member(ctx.etcd, desired.peer_url, clock=ctx.clock, within=_WITHDRAWING)
    except KubewrightError as error:
        ctx.reporter.emit(
            Warned(text=f"{desired.target}, which did not come up, could not be removed: {error}. Run the same join again, or reset")
        )
        return
    ctx.bound.settle(False)
    reason = f"it did not start: {why.what}" if isinstance(why, KubewrightError) else "join was stopped"
    ctx.say(TOPIC, f"Removed {desired.target} again, because {reason}")
