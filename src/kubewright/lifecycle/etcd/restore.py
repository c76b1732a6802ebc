"""`etcd restore` as a row: makes a new etcd cluster with one member from a snapshot, or from this member's data.

While the data is replaced, neither etcd nor the API server of this machine runs: a checkpoint keeps their manifests. If
the new data does not serve, the old data and manifests are put back. The same command continues a run that was killed,
and changes nothing after a run that was finished. After a power cut, the machine boots with the new data if that was in
place already, and otherwise with the old data.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.base.errors import APIError, HostError
from kubewright.etcd.api import Status
from kubewright.host.desired import File, Generated, Service
from kubewright.lifecycle import stacked_etcd
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.etcd import descriptions, etcdutl, leasing, restore_checks, restored_objects, this_member
from kubewright.lifecycle.etcd.context import RestoreContext
from kubewright.lifecycle.etcd.data import DataSwap
from kubewright.lifecycle.etcd.request import restore_task
from kubewright.lifecycle.etcd.this_member import FENCE, RESTORE
from kubewright.lifecycle.operation import Operation
from kubewright.lifecycle.steps import boot_recovery, checkpoint
from kubewright.lifecycle.steps.checkpoint import ABSENT, Checkpoint, State
from kubewright.lifecycle.steps.kubelet import SERVICE
from kubewright.lifecycle.steps.replacement import Replacement, carry_out
from kubewright.lifecycle.steps.static_pods import HAS_DATA
from kubewright.workflow.phases import Phase, Phases, Step

if TYPE_CHECKING:
    from kubewright.kube.api import KubeAPI

_DATABASE: Final = "snap/db"
"""The path of the database in the directory of a member."""


def carried_out(ctx: RestoreContext) -> Iterator[Step]:
    """Restore etcd, or fence or unfence this machine."""
    if ctx.request.fence:
        yield from _fence(ctx)
    elif ctx.request.unfence:
        yield from _unfence(ctx)
    elif ctx.restored is not None:
        leasing.given_back(ctx, ctx.lease_api)
        boot_recovery.remove_unneeded(ctx.host)  # a run that was killed at its end has left the unit, and an empty directory
        yield from _swap(ctx, ctx.restored).finish()
        ctx.say(f"etcd already is the cluster that was made from {ctx.goal}; nothing is changed. --again restores it once more")
    else:
        with leasing.taken(ctx):
            restore_checks.require_others_stopped(ctx)  # another machine may have started its member since
            yield from _restore(ctx)
        if ctx.lease_api is None:  # a run that was killed had taken it, and the data of this member shows that
            leasing.given_back(ctx, _restored_api(ctx))


def _swap(ctx: RestoreContext, kept: Checkpoint) -> DataSwap:
    return DataSwap(host=ctx.host, data=ctx.member.layout.etcd_data, label=kept.directory.name)


def _restore(ctx: RestoreContext) -> Iterator[Step]:
    member, nodes = ctx.member, restored_objects.nodes(ctx.cluster_api)
    others = sorted(restore_checks.others(ctx)[0])  # the new cluster has one member
    flags = {"initial-cluster": f"{member.name}={member.peer_url}", **HAS_DATA}
    resumed = ctx.begun(RESTORE) is not None  # etcd may have the new data already
    kept = this_member.taken_over(ctx.host, member, operation=RESTORE, goal=ctx.goal, flags=flags, at=ctx.clock.now())
    swap = _swap(ctx, kept)
    step = Replacement(
        name="etcd",
        targets=member.paths,
        before=lambda: _data(ctx, kept, swap),
        undo=lambda: _undone(ctx, kept, swap),
        prove=lambda: _proved(ctx, known=0 if resumed else ctx.status.revision),
        prove_old=lambda: _answers(ctx, kept),
        required=True,
    )
    with boot_recovery.enabled(ctx.host, ctx.bound.machine.program, needed=True, reporter=ctx.reporter):
        yield from carry_out(ctx.host, kept, [step], reporter=ctx.reporter, topic="etcd")
    yield from swap.finish()  # not before the checkpoint is done: without old data, nothing else shows that the new data is in place
    if ctx.host.state(swap.aside) is not None:
        ctx.say(f"etcd has one member now, {member.name}; its earlier data is in {swap.aside}: remove it when you no longer need it")
    others = others or _other_members(ctx)
    yield from _look_at_objects(ctx, nodes, stopped=others)
    if others:
        ctx.say(f"On the other control planes ({', '.join(others)}) run `kubewright etcd member replace`, or reset them and join new ones")


def _restored_api(ctx: RestoreContext) -> KubeAPI | None:
    """Return the administrator's client of this machine's API server; None without an API server, or without credentials."""
    has_access = ctx.member.api_server and ctx.host.state(ctx.member.layout.kubeconfig("admin")) is not None
    return ctx.administrator(ctx.member.api_server) if has_access else None


def _other_members(ctx: RestoreContext) -> list[str]:
    """Return the other control planes by the pods of their etcd in the restored data.

    The member of this machine could not name them if it did not answer, for example because a run that was killed has stopped it.
    """
    api = _restored_api(ctx)
    with suppress(APIError):
        return sorted({*stacked_etcd.by_node(api)} - {ctx.member.name}) if api is not None else []
    return []


def _look_at_objects(ctx: RestoreContext, before: frozenset[str] | None, *, stopped: Collection[str]) -> Iterator[Step]:
    """Report what must be done about the restored objects, if this machine has an API server and the administrator's credentials.

    `before` are the earlier Nodes. Webhooks that could not be listed then are listed now. The kubelets of control planes
    that are `stopped` have no API server.
    """
    api = _restored_api(ctx)
    if api is None:
        return
    if ctx.cluster_api is None:
        restored_objects.warn_of_webhooks(api, reporter=ctx.reporter)
    after = restored_objects.nodes(api)
    for text in restored_objects.differences(before, after, own=ctx.member.name):
        ctx.say(text)
    known = (after or frozenset()) if before is None else before & (after or frozenset())
    wanted = restored_objects.leases(ctx.host, known.difference(stopped))
    since = descriptions.saved_at(ctx.task.description) or ctx.bound.started
    yield from restored_objects.wait_for_leases(api, wanted, since=since, waiter=ctx.waiter, reporter=ctx.reporter)


def _data(ctx: RestoreContext, kept: Checkpoint, swap: DataSwap) -> Iterator[Step]:
    """Make the new data, stop etcd and the API server, and put it in place."""
    if swap.done:
        return
    if ctx.task.source is not None:
        ctx.say(f"Creating a data directory from {ctx.task.source}")
        yield from swap.generate(_generated(ctx, swap, ctx.task.source))
    yield from ctx.stopped(kept)
    if ctx.task.source is None:
        ctx.say("Creating the data directory of a cluster with one member from the data of this one")
        yield from swap.generate(_generated(ctx, swap, swap.member / _DATABASE))
    yield from swap.put()


def _generated(ctx: RestoreContext, swap: DataSwap, source: PurePosixPath) -> Generated:
    revisions = etcdutl.bump(descriptions.seconds_since(ctx.task.description, ctx.clock))
    return etcdutl.restored(ctx.etcdutl, swap, ctx.member, source=source, revisions=revisions, copied=ctx.task.source is None)


def _undone(ctx: RestoreContext, kept: Checkpoint, swap: DataSwap) -> Iterator[Step]:
    """Put the old data back, if it was touched."""
    if swap.done or any(ctx.host.state(path) is None for path in ctx.member.paths):
        yield from ctx.stopped(kept)
    yield from swap.back()


def _answers(ctx: RestoreContext, kept: Checkpoint) -> Iterator[Step]:
    """Wait until the member answers, if it did before."""
    had_manifest = any(swap.before != ABSENT for swap in kept.swaps)
    if had_manifest and not ctx.status.problem:
        yield ctx.until(lambda status: status.problem or None, saying="etcd to answer")


def _proved(ctx: RestoreContext, *, known: int) -> Iterator[Step]:
    """Wait until etcd and the API server serve the new data. `known` is the revision that this member had before."""
    least = etcdutl.BUMP + (known if ctx.task.source is None else 0)

    def wrong(status: Status) -> str | None:
        if not status.serves:
            return status.reason
        members = ctx.own.members(agreed=False)
        if len(members) != 1:
            return f"it has {len(members)} members"
        return f"its revision is {status.revision}, which is less than {least}" if status.revision < least else None

    ctx.say("Waiting for etcd to serve the new data")
    yield ctx.until(wrong, saying="etcd to serve the new data")
    ctx.warn_of_alarms()
    yield from ctx.api_server()
    yield ctx.host.ensure(Service(name=SERVICE, restart=True))  # pods read Secrets and ConfigMaps again


def _fence(ctx: RestoreContext) -> Iterator[Step]:
    """Stop etcd and the API server until this member is replaced, or the machine is unfenced.

    Needs no lease, because all members have to be stopped.
    """
    kept = ctx.begun(FENCE)
    if kept is None:
        files = [File(path=ctx.member.layout.manifest(name), content=content) for name, content in ctx.member.manifests.items()]
        kept = checkpoint.prepare(
            ctx.host, operation=FENCE, goal="a restore elsewhere", files=files, at=ctx.clock.now(), parks=ctx.member.paths
        )
        kept = checkpoint.mark(ctx.host, kept, State.IN_PROGRESS)
    yield from ctx.stopped(kept)
    ctx.say("etcd and the API server of this machine stay stopped, also after a boot, until `kubewright etcd member replace` or --unfence")


def _unfence(ctx: RestoreContext) -> Iterator[Step]:
    """Start etcd and the API server again with their old manifests."""
    found = ctx.begun(FENCE) or this_member.parked(ctx.host)  # a restore that failed has left it as it was, with the fence done
    if found is None or found.operation != FENCE:
        raise HostError("this machine is not fenced", remedy="`kubewright etcd status` shows the members")
    for one in found.swaps:
        yield checkpoint.put_new(ctx.host, found, one.target)
    checkpoint.finish(ctx.host, found, State.ROLLED_BACK)


_FLAGS: Final = "from-this-member fence unfence peers-are-gone etcdutl again yes"
PHASES: Final[Phases[RestoreContext]] = Phases(
    Phase(
        "preflight",
        "Check the data and the other members, and ask for confirmation",
        run=lambda ctx: ctx.bound.preflight(ctx),
        flags=_FLAGS,
        argument="file",
    ),
    Phase(
        "restore",
        "Replace the data of etcd, and prove that it serves",
        run=carried_out,
        flags=_FLAGS,
        argument="file",
    ),
)
ROW: Final = Operation(
    name="etcd restore",
    phases=PHASES,
    configure=restore_task,
    context=RestoreContext.of,
    preflight={Mode.APPLY: restore_checks.check, Mode.PLAN: restore_checks.planned},
)
