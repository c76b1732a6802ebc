"""`etcd member replace` as a row: removes this machine's member from etcd, and adds it again without data.

It is removed first, because etcd 3.6 adds no member while a voting one is not connected (etcd v3.6.8,
server/etcdserver: mayAddMember), and because a member must never start under its old ID with other data. The removal
cannot be undone: if a run is interrupted after it, the same command completes the replacement. The old data is renamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from kubewright.base.change import Change
from kubewright.base.errors import CheckFailed, Unreachable, WaitTimeout
from kubewright.base.wait import retry
from kubewright.etcd import alarms, learners, voters
from kubewright.etcd.api import Member, NoQuorum, by_peer_url, initial_cluster
from kubewright.etcd.membership import PAUSES, EtcdMember, Joining
from kubewright.host.desired import Service
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.etcd import leasing, removal, this_member
from kubewright.lifecycle.etcd.context import SERVING, ReplaceContext
from kubewright.lifecycle.etcd.data import DataSwap
from kubewright.lifecycle.etcd.request import replace_task
from kubewright.lifecycle.etcd.this_member import FENCE, REPLACE
from kubewright.lifecycle.operation import Operation
from kubewright.lifecycle.steps import checkpoint, other_servers
from kubewright.lifecycle.steps.checkpoint import Checkpoint, State
from kubewright.lifecycle.steps.detected_cluster import API_SERVER, ETCD
from kubewright.lifecycle.steps.kubelet import SERVICE
from kubewright.lifecycle.steps.static_pods import HAS_DATA
from kubewright.pki import certificates
from kubewright.workflow.phases import Phase, Phases, Step

_GOAL: Final = "a member with the data of the others"


def check(ctx: ReplaceContext) -> Iterable[Change]:
    """Wait for this machine's turn, run the checks, and ask.

    Raises WaitTimeout, what `planned` raises, and UsageError for any answer but yes.
    """
    leasing.awaited(ctx)
    planned(ctx)
    if ctx.begun(REPLACE) is None and not ctx.replaced:
        serves = " It serves now." if _serves(ctx) else ""
        ctx.confirm(
            f"The member {ctx.member.name} at {ctx.member.peer_url} leaves etcd, and comes back with the data of the other members.{serves}"
            f" Its present data stays in {ctx.member.layout.etcd_data}."
        )
    return ()


def _serves(ctx: ReplaceContext) -> bool:
    """Return whether the member serves; one that does not may be starting, so it gets some time unless it was stopped, or with `yes`."""
    if not (ctx.status.serves or ctx.request.yes or ctx.begun(FENCE)):
        with suppress(WaitTimeout):
            ctx.waiter.until(lambda: ctx.now().reason or None, within=ctx.request.after.seconds, saying="the member to serve", at_most=1.0)
    return ctx.now().serves


def planned(ctx: ReplaceContext) -> Sequence[Change]:
    """Require that the other members can go on without this one, and accept it again.

    Raises CheckFailed, APIError, and HostError if another operation was interrupted.
    """
    resumed = ctx.begun(REPLACE) is not None
    if not resumed and ctx.begun(FENCE) is None:
        checkpoint.close_reverted(ctx.host)  # etcd may be what an upgrade could not bring back
        checkpoint.require_none_in_progress(ctx.host)
    _ = ctx.status
    try:
        members = _members(ctx)
    except NoQuorum as error:
        raise NoQuorum(
            "the other members of etcd have no majority, so this one cannot be replaced",
            detail=str(error),
            remedy="start the other members again; if they are lost: `kubewright etcd restore --from-this-member` on a machine with data",
        ) from error
    if not resumed and ctx.replaced:
        return ()
    _require_accepted(ctx)
    _require_fit(ctx, members)
    if not resumed:
        _require_another_server(ctx)
    return ()


def _members(ctx: ReplaceContext) -> list[Member]:
    """Return the members, trying again while etcd may be electing a leader, as after another member's replacement.

    Raises NoQuorum, Unreachable.
    """
    return retry(ctx.cluster.members, clock=ctx.clock, on=(NoQuorum, Unreachable), within=removal.LEADERLESS, backoff=PAUSES)


def _require_accepted(ctx: ReplaceContext) -> None:
    """Require that the certificates of this machine's etcd are valid, and for its address: a new member is reached with them.

    Raises CheckFailed.
    """
    address = urlsplit(ctx.member.peer_url).hostname or ""
    problems = []
    for base in ("etcd/server", "etcd/peer"):
        path = ctx.member.layout.certificate(base)
        found = certificates.first(ctx.host.read(path) or b"", source=str(path))
        if address not in (*found.names.ips, *found.names.dns):
            problems.append(f"{base}.crt is not for {address}, but for {', '.join((*found.names.dns, *found.names.ips)) or 'no address'}")
        if not found.not_before <= ctx.clock.now() < found.not_after:
            problems.append(f"{base}.crt {certificates.expiry(found, ctx.clock.now())}")
    if problems:
        raise CheckFailed(
            "the certificates of etcd on this machine would be refused by the other members",
            detail="\n".join(problems),
            remedy="remove each of them with its key, and create it again: `kubewright init phase certs etcd-server` and `etcd-peer`",
        )


def _require_fit(ctx: ReplaceContext, members: Sequence[Member]) -> None:
    """Require that etcd can lose this member, and will accept it again. Raises CheckFailed, APIError."""
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
    late = learners.left_over(ctx.cluster, members, now=ctx.clock.now())  # adding this member removes it
    problems = [f"{one.shown} has no vote yet" for one in members if one.learner and one is not own and one not in late]
    others = [one for one in members if one is not own]
    raised = [alarm for alarm in ctx.cluster.alarms() if any(alarm.member_id == one.id for one in others)]
    problems += alarms.described(raised, others)
    if problems:
        raise CheckFailed(
            "no member is replaced while etcd is in this state",
            detail="\n".join(problems),
            remedy=alarms.remedy(raised)
            or "see what `kubewright etcd status` says; a learner that no machine is joining with is removed with `kubewright etcd member remove`",
        )


def _require_another_server(ctx: ReplaceContext) -> None:
    """Refuse to stop an API server that is ready while no other one is. Raises HostError."""
    if ctx.cluster_api is not None and ctx.member.api_server and ctx.own_server_ready() is None:
        other_servers.require_ready(ctx.cluster_api, node=ctx.member.name, reach=ctx.administrator)


def carried_out(ctx: ReplaceContext) -> Iterator[Step]:
    """Replace the member. Raises APIError, WaitTimeout, ComponentFailed; the same command continues then."""
    if ctx.replaced:
        leasing.given_back(ctx, ctx.lease_api)
        ctx.say(f"{ctx.member.name} has been replaced already, and serves; nothing is changed. --again replaces it once more")
        return
    with leasing.taken(ctx):
        yield from _replaced(ctx)


def _replaced(ctx: ReplaceContext) -> Iterator[Step]:
    members = _members(ctx)
    kept = ctx.begun(REPLACE) or _prepared(ctx, members)
    kept = checkpoint.mark(ctx.host, kept, State.IN_PROGRESS)
    swap = DataSwap(host=ctx.host, data=ctx.member.layout.etcd_data, label=kept.directory.name)
    if not swap.done:
        yield from _emptied(ctx, kept, swap, members)
    yield from _member(ctx, kept, swap)
    if API_SERVER in ctx.member.manifests:
        yield checkpoint.put_new(ctx.host, kept, ctx.member.layout.manifest(API_SERVER))
    yield from ctx.api_server()
    yield from swap.finish()
    yield ctx.host.ensure(Service(name=SERVICE, restart=True))
    if ctx.host.state(swap.aside) is not None:
        ctx.say(f"{ctx.member.name} votes; its earlier data is in {swap.aside}: remove it when you no longer need it")
    checkpoint.finish(ctx.host, kept, State.DONE)


def _prepared(ctx: ReplaceContext, members: Sequence[Member]) -> Checkpoint:
    """Return a checkpoint of the manifests."""
    return this_member.taken_over(ctx.host, ctx.member, operation=REPLACE, goal=_GOAL, flags=_first_start(ctx, members), at=ctx.clock.now())


def _first_start(ctx: ReplaceContext, members: Sequence[Member]) -> Mapping[str, str]:
    """Return the flags of the new member: it names all members, because it has no data and asks them.

    It exits if there are others than these (etcd v3.6, server/etcdserver/api/membership: ValidateClusterAndAssignIDs).
    """
    member = ctx.member
    others = [one for one in members if member.peer_url not in one.peer_urls]
    together = [*others, Member(id=0, name=member.name, peer_urls=(member.peer_url,))]
    return {"initial-cluster": initial_cluster(together, name=member.name, peer_url=member.peer_url), **HAS_DATA}


def _emptied(ctx: ReplaceContext, kept: Checkpoint, swap: DataSwap, members: Sequence[Member]) -> Iterator[Step]:
    """Remove the member, stop its etcd, and put its data aside."""
    own = by_peer_url(members, ctx.member.peer_url)
    if own is not None:
        _require_fit(ctx, members)  # other members may have stopped in the meantime
        ctx.say(f"Removing the member {own.shown} from etcd")
        yield removal.remove(ctx.cluster, own, clock=ctx.clock)
    yield from ctx.stopped(kept)
    yield from swap.clear()


def _member(ctx: ReplaceContext, kept: Checkpoint, swap: DataSwap) -> Iterator[Step]:
    """Add the member, start its etcd, and promote it when it has the data of the others."""
    joining = Joining(etcd=ctx.cluster, clock=ctx.clock, waiter=ctx.bound.waiter, within=SERVING)
    started = ctx.host.state(ctx.member.layout.manifest(ETCD)) is not None  # by an interrupted run: its etcd may write data at any moment
    desired = EtcdMember(name=ctx.member.name, peer_url=ctx.member.peer_url, has_data=started or bool(ctx.host.entries(swap.member)))
    ctx.say(f"Adding the member {desired.name} at {desired.peer_url} as a learner")
    yield joining.add(desired)
    now = _first_start(ctx, joining.look())  # a learner may have been removed, and members may have changed since an interrupted run
    manifest = this_member.edited(ctx.member.manifests[ETCD], now)
    yield checkpoint.put_new(ctx.host, kept, ctx.member.layout.manifest(ETCD), instead=manifest)
    ctx.say("Waiting for it to receive the data of the other members")
    yield ctx.until(lambda status: status.reason or None, saying="etcd to follow the other members")
    yield joining.promote(desired)
    yield ctx.until(lambda _: ctx.unlike_others(), saying="etcd to serve")


_FLAGS: Final = "endpoints again yes"
PHASES: Final[Phases[ReplaceContext]] = Phases(
    Phase(
        "preflight",
        "Check that the other members have a majority, and ask for confirmation",
        run=lambda ctx: ctx.bound.preflight(ctx),
        flags=f"after {_FLAGS}",
    ),
    Phase("replace", "Remove the member, and add it again without data", run=carried_out, flags=_FLAGS),
)
ROW: Final = Operation(
    name="etcd member replace",
    phases=PHASES,
    configure=replace_task,
    context=ReplaceContext.of,
    preflight={Mode.APPLY: check, Mode.PLAN: planned},
)
