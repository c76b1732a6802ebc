"""`etcd member replace` as a row: the member of this machine leaves its cluster, and comes back as a new one that receives the data from the others.

It is removed before it is added: etcd 3.6 adds no member while one that votes is not connected (etcd v3.6.8, server/etcdserver: mayAddMember), and
a member never starts again under its ID with other data. From the removal on there is no way back, only on: the same command finishes an
interrupted run. The old data is renamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kubewright.base.change import Change
from kubewright.base.errors import APIError, CheckFailed, UsageError
from kubewright.etcd import voters
from kubewright.etcd.api import Member, NoQuorum, by_peer_url, initial_cluster
from kubewright.etcd.membership import EtcdMember, Joining
from kubewright.host.desired import Service
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.etcd import removal, this_member
from kubewright.lifecycle.etcd.context import SERVING, ReplaceContext, agreed
from kubewright.lifecycle.etcd.data import DataSwap
from kubewright.lifecycle.etcd.request import MemberTask, ReplaceOptions, replace_task
from kubewright.lifecycle.etcd.this_member import FENCE, REPLACE
from kubewright.lifecycle.operation import Bound, Operation
from kubewright.lifecycle.steps import checkpoint
from kubewright.lifecycle.steps.checkpoint import Checkpoint, State
from kubewright.lifecycle.steps.detected_cluster import API_SERVER, ETCD
from kubewright.lifecycle.steps.kubelet import SERVICE
from kubewright.lifecycle.steps.static_pods import HAS_DATA
from kubewright.workflow.phases import Phase, Phases, Step

_GOAL: Final = "a member with the data of the others"


def check(ctx: ReplaceContext) -> Iterable[Change]:
    """Check everything, and ask. Raises as `planned` does, and UsageError for any answer but yes."""
    resumed = _begun(ctx) is not None
    planned(ctx)
    serves = " It serves now." if ctx.status.healthy else ""
    question = (
        f"The member {ctx.member.name} at {ctx.member.peer_url} leaves etcd, and comes back with the data of the other members.{serves}"
        f" Its present data stays in {ctx.member.layout.etcd_data}.\n[etcd] Continue? [y/N]: "
    )
    if not resumed and not agreed(question, yes=ctx.request.yes, ask=ctx.request.ask):
        raise UsageError("nothing was changed: the answer was not y", remedy="answer y, or use --yes")
    return ()


def planned(ctx: ReplaceContext) -> Sequence[Change]:
    """Require that etcd takes a member. Raises CheckFailed, APIError, HostError for another operation that was interrupted."""
    begun = checkpoint.unfinished(checkpoint.every(ctx.host))
    if begun is not None and begun.operation not in (FENCE, REPLACE):
        checkpoint.require_none_in_progress(ctx.host)
    _ = ctx.status
    try:
        members = ctx.cluster.members()
    except NoQuorum as error:
        raise NoQuorum(
            "the other members of etcd have no majority, so this one cannot be replaced",
            detail=str(error),
            remedy="start the other members again; if they are lost: `kubewright etcd restore --from-this-member` on a machine with data",
        ) from error
    own = by_peer_url(members, ctx.member.peer_url)
    if own is not None and not own.learner:
        removal.require_removable(ctx.cluster, own, members)
    dead = voters.look(ctx.cluster, without=ctx.member.peer_url).dead
    if dead:
        raise CheckFailed(
            "etcd accepts no new member while another voting member is dead",
            detail="\n".join(one.reason for one in dead),
            remedy=f"start it again, or remove it: kubewright etcd member remove {dead[0].member.name or dead[0].member.hex_id}",
        )
    return ()


def carried_out(ctx: ReplaceContext) -> Iterator[Step]:
    """Replace the member. Raises APIError, WaitTimeout, ComponentFailed; the same command goes on then."""
    members = ctx.cluster.members()
    kept = _begun(ctx) or _prepared(ctx, members)
    kept = checkpoint.mark(ctx.host, kept, State.IN_PROGRESS)
    swap = DataSwap(host=ctx.host, data=ctx.member.layout.etcd_data, label=kept.directory.name)
    if not swap.done:
        yield from _emptied(ctx, kept, swap, members)
    yield from _member(ctx, kept, swap)
    if API_SERVER in ctx.member.manifests:
        yield checkpoint.put_new(ctx.host, kept, ctx.member.layout.manifest(API_SERVER))
    yield from ctx.api_server()
    yield from swap.finish()
    checkpoint.finish(ctx.host, kept, State.DONE)
    yield ctx.host.ensure(Service(name=SERVICE, restart=True))
    if ctx.host.state(swap.aside) is not None:
        ctx.say(f"{ctx.member.name} votes; its earlier data is in {swap.aside}: remove that when nobody needs it any more")


def _begun(ctx: ReplaceContext) -> Checkpoint | None:
    found = checkpoint.unfinished(checkpoint.every(ctx.host))
    return found if found is not None and found.operation == REPLACE else None


def _prepared(ctx: ReplaceContext, members: Sequence[Member]) -> Checkpoint:
    """Keep the manifests, and that of the new member, which names all members: without data it asks them who they are."""
    member = ctx.member
    others = [one for one in members if member.peer_url not in one.peer_urls]
    together = [*others, Member(id=0, name=member.name, peer_urls=(member.peer_url,))]
    flags = {"initial-cluster": initial_cluster(together, name=member.name, peer_url=member.peer_url), **HAS_DATA}
    return this_member.taken_over(ctx.host, member, operation=REPLACE, goal=_GOAL, flags=flags, at=ctx.clock.now())


def _emptied(ctx: ReplaceContext, kept: Checkpoint, swap: DataSwap, members: Sequence[Member]) -> Iterator[Step]:
    """Remove the member, stop its etcd, and put its data aside."""
    own = by_peer_url(members, ctx.member.peer_url)
    if own is not None:
        if not own.learner:
            removal.require_removable(ctx.cluster, own, members)  # others may have ended since
        ctx.say(f"Removing the member {own.shown} from etcd")
        yield removal.remove(ctx.cluster, own, clock=ctx.clock)
    yield from ctx.stopped(kept)
    yield from swap.clear()


def _member(ctx: ReplaceContext, kept: Checkpoint, swap: DataSwap) -> Iterator[Step]:
    """Add the member, start its etcd, and give it its vote once it has the data of the others."""
    joining = Joining(etcd=ctx.cluster, clock=ctx.clock, waiter=ctx.bound.waiter, within=SERVING)
    desired = EtcdMember(name=ctx.member.name, peer_url=ctx.member.peer_url, has_data=bool(ctx.host.entries(swap.member)))
    ctx.say(f"Adding the member {desired.name} at {desired.peer_url} as a learner")
    yield joining.add(desired)
    yield checkpoint.put_new(ctx.host, kept, ctx.member.layout.manifest(ETCD))
    ctx.say("Waiting for it to receive the data of the other members")
    yield ctx.until(lambda status: status.reason or None, saying="etcd to follow the other members")
    yield joining.promote(desired)
    yield ctx.until(lambda status: status.reason or ("it has no vote yet" if status.learner else _differs(ctx)), saying="etcd to serve")


def _differs(ctx: ReplaceContext) -> str | None:
    """Say that this member has other data than one of the others; None if it has the same."""
    own = ctx.own.status(ctx.member.client_urls[0])
    other = next((one for one in ctx.cluster.statuses() if one.healthy and one.member_id != own.member_id), None)
    if other is None:
        return None
    revision = min(own.revision, other.revision)
    try:
        mine, theirs = (etcd.hash(one.endpoint, revision=revision) for etcd, one in ((ctx.own, own), (ctx.cluster, other)))
    except APIError as error:
        return str(error)
    return f"its data differs from that of {other.endpoint}" if mine.differs(theirs) else None


def _context(request: ReplaceOptions, task: MemberTask, bound: Bound) -> ReplaceContext:
    return ReplaceContext(bound=bound, request=request, task=task)


_FLAGS: Final = "endpoints yes"
PHASES: Final[Phases[ReplaceContext]] = Phases(
    Phase("preflight", "Check that the other members have a majority, and ask", run=lambda ctx: ctx.bound.preflight(ctx), flags=_FLAGS),
    Phase("replace", "Remove the member, and add it again without data", run=carried_out, flags=_FLAGS),
)
ROW: Final = Operation(
    name="etcd member replace",
    phases=PHASES,
    configure=replace_task,
    context=_context,
    preflight={Mode.APPLY: check, Mode.PLAN: planned},
)
