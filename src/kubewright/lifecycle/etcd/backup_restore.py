"""`backup restore` as a row: makes a fresh machine the control plane of a backup, with an etcd of one member.

A checkpoint records that it has begun; the same command continues it. Manifests are written last, so that nothing
starts before its files exist.
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

from kubewright.apis.machine import Layout
from kubewright.base.change import Change
from kubewright.base.clock import Clock
from kubewright.base.errors import CheckFailed, DocumentError
from kubewright.base.events import Reporter
from kubewright.host.desired import Directory, File, Show, Streamed
from kubewright.host.overlay import OverlayHost
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.etcd import backup, descriptions, etcdutl, fencing, this_member, verifying
from kubewright.lifecycle.etcd.archive import Archive
from kubewright.lifecycle.etcd.context import BackupContext
from kubewright.lifecycle.etcd.data import DataSwap
from kubewright.lifecycle.etcd.request import BackupRestoreOptions, MemberTask
from kubewright.lifecycle.etcd.this_member import RESTORE_BACKUP
from kubewright.lifecycle.machine import TargetMachine
from kubewright.lifecycle.machine_record import MEMBER
from kubewright.lifecycle.operation import Operation, Prepared
from kubewright.lifecycle.steps import checkpoint, kubelet
from kubewright.lifecycle.steps.checkpoint import Checkpoint, State
from kubewright.lifecycle.steps.detected_cluster import ETCD
from kubewright.lifecycle.steps.static_pods import HAS_DATA, MANIFEST_MODE
from kubewright.workflow.phases import Phase, Phases, Step

_PRIVATE: Final = 0o700
_DATABASE: Final = "restored.db"
_PLACES: Final = (PurePosixPath("/etc"), PurePosixPath("/var/lib"))
"""The directories that may contain a cluster's certificates and etcd's data."""


def prepare(request: BackupRestoreOptions, machine: TargetMachine) -> Prepared[MemberTask]:
    """Read and check the whole backup.

    Raises UsageError if the key is missing, TrustError and DocumentError for a file that is not a complete backup.
    """
    pieces = _pieces(request, task="checking the backup", clock=machine.clock, reporter=machine.reporter)
    found = backup.read(pieces, name=request.file, key=request.key)
    layout = _layout(found, machine.at(machine.layout).layout, name=request.file)
    host = machine.at(layout)
    allowed = backup.roots(layout)
    for one in found.files:
        if not any(one.path != root and one.path.is_relative_to(root) for root in allowed):
            raise DocumentError(f"{request.file} is not a backup that can be used", detail=f"{one.path} is not a file of a control plane")
    restored = OverlayHost(host)
    for one in found.files:
        restored.ensure(File(path=one.path, content=one.content, mode=one.mode))
    task = MemberTask(member=this_member.find(restored), description=found.description, archive=found)
    return Prepared(configuration=task, host=host, only=request.only)


def _pieces(request: BackupRestoreOptions, *, task: str, clock: Clock, reporter: Reporter) -> Callable[[], Iterable[bytes]]:
    return functools.partial(verifying.reading, PurePosixPath(request.file), task=task, clock=clock, reporter=reporter)


def _layout(found: Archive, own: Layout, *, name: str) -> Layout:
    """Return the directories of the machine in the backup. Raises DocumentError if this machine's are different."""
    described = found.description.get("directories")
    directories: dict[str, Any] = described if isinstance(described, dict) else {}
    pki, data, kubernetes = (PurePosixPath(str(directories.get(one, ""))) for one in ("pki", "etcdData", "kubernetes"))
    moved = [
        one for one in (pki, data) if ".." in one.parts or not any(one.is_relative_to(place) for place in (*_PLACES, kubernetes.parent))
    ]
    if kubernetes != own.kubernetes or moved:
        raise DocumentError(
            f"{name} was made on a machine with other directories",
            detail=f"{', '.join(map(str, moved or [kubernetes]))} instead of {own.kubernetes}",
            remedy="restore it on a machine that is set up in the same way",
        )
    return own.at(pki=str(pki), etcd_data=str(data))


def check(ctx: BackupContext) -> Iterable[Change]:
    """Run the checks, and ask. Raises what `planned` raises, and UsageError for any answer but yes."""
    planned(ctx)
    if ctx.restored is not None:
        return ()
    _ = ctx.etcdutl  # it may have to be fetched, which must happen before anything is written
    described = ctx.task.description
    if ctx.begun(RESTORE_BACKUP) is None:
        ctx.confirm(
            f"This machine becomes the control plane {described.get('node')} again, as it was at {described.get('time')}.", topic="backup"
        )
    return ()


def planned(ctx: BackupContext) -> Sequence[Change]:
    """Run the checks. Raises CheckFailed, and HostError if another operation was interrupted."""
    begun = ctx.begun(RESTORE_BACKUP)
    if begun is None or begun.goal != ctx.goal:
        checkpoint.require_none_in_progress(ctx.host)
        if _belongs_to_a_cluster(ctx):
            return ()
    _require_same_machine(ctx)
    described = ctx.archive.etcd.get("members") or ()
    unknown = [str(name) for name in described if name != ctx.member.name and name not in ctx.member.peers]
    found = fencing.look(ctx.member.peers, ports=ctx.member.ports, unknown=unknown)
    fencing.require_stopped(found, gone=ctx.request.peers_are_gone)
    return ()


def _belongs_to_a_cluster(ctx: BackupContext) -> bool:
    """Return whether the machine has been restored from this backup already, False for a fresh one.

    Raises CheckFailed for any other.
    """
    layout = ctx.member.layout
    places = [layout.kubeconfig("kubelet"), layout.kubelet_config, layout.etcd_data / MEMBER, *map(layout.manifest, ctx.member.manifests)]
    there = [str(path) for path in places if ctx.host.state(path) is not None]
    if there and ctx.restored is None:
        raise CheckFailed(
            "this machine belongs to a cluster already",
            detail=f"{', '.join(there)} {'exists' if len(there) == 1 else 'exist'}",
            remedy="restore on a fresh machine, or reset this one first: kubewright reset",
        )
    return bool(there)


def _require_same_machine(ctx: BackupContext) -> None:
    described, name = ctx.task.description, ctx.host.facts.detected.host_name
    if described.get("hostName") != name:
        raise CheckFailed(
            f"the backup is from the machine {described.get('hostName')}, and this one is called {name}",
            remedy=f"restore it on a machine of that name: hostnamectl set-hostname {described.get('hostName')}",
        )
    address = urlsplit(ctx.member.peer_url).hostname or ""
    own = {one.address for one in ctx.host.network.interface_addresses()}
    if address not in own and not _is_loopback(address):
        raise CheckFailed(
            f"the backup is from a machine with the address {address}, which this one does not have",
            detail=f"it has {', '.join(sorted(own))}",
            remedy="give this machine that address: certificates and manifests contain it",
        )


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def carried_out(ctx: BackupContext) -> Iterator[Step]:
    """Restore the machine, unless a finished run has done so."""
    if ctx.restored is not None:
        ctx.say(f"This machine already is the control plane that was made from {ctx.goal}; nothing is changed")
        return
    member, host = ctx.member, ctx.host
    kept = ctx.begun(RESTORE_BACKUP) or _prepared(ctx)
    kept = checkpoint.mark(host, kept, State.IN_PROGRESS)
    manifests = {swap.target for swap in kept.swaps}
    ctx.say(f"Writing {len(ctx.archive.files)} files")
    for one in ctx.archive.files:
        if one.path not in manifests:
            yield host.ensure(File(path=one.path, content=one.content, mode=one.mode, show=Show.SIZE, directory_mode=_PRIVATE))
    swap = DataSwap(host=host, data=member.layout.etcd_data, label=kept.directory.name)
    yield from _data(ctx, swap)
    for manifest in kept.swaps:
        yield checkpoint.put_new(host, kept, manifest.target)
    yield from kubelet.start({}, host=host, layout=member.layout, stand_ins=(), reporter=ctx.reporter)
    ctx.say("Waiting for etcd to serve")
    yield ctx.until(lambda status: status.reason or None, saying="etcd to serve")
    ctx.warn_of_alarms()
    yield from ctx.api_server()
    yield from kubelet.finalize(member.layout.kubelet_client_current, member.layout, host=host, reporter=ctx.reporter)
    yield from swap.finish()
    checkpoint.finish(host, kept, State.DONE)
    ctx.say(f"{member.name} is back; Nodes and pods that were created since {ctx.task.description.get('time')} are not known to it")


def _prepared(ctx: BackupContext) -> Checkpoint:
    member, parent = ctx.member, ctx.member.layout.manifests
    contents = {one.path: one.content for one in ctx.archive.files if one.path.parent == parent}
    etcd = member.layout.manifest(ETCD)
    flags = {"initial-cluster": f"{member.name}={member.peer_url}", **HAS_DATA}
    contents[etcd] = this_member.edited(contents[etcd], flags)
    files = [File(path=path, content=content, mode=MANIFEST_MODE) for path, content in contents.items()]
    return checkpoint.prepare(ctx.host, operation=RESTORE_BACKUP, goal=ctx.goal, files=files, at=ctx.clock.now())


def _data(ctx: BackupContext, swap: DataSwap) -> Iterator[Step]:
    """Make etcd's data directory, unless the manifest exists, which is written later: etcd may have written to its data since."""
    if swap.done or ctx.host.state(ctx.member.layout.manifest(ETCD)) is not None:
        return
    database = swap.data / _DATABASE

    read = _pieces(ctx.request, task="reading the backup", clock=ctx.clock, reporter=ctx.reporter)

    def pieces() -> Iterable[bytes]:
        return backup.database(read, name=ctx.request.file, key=ctx.request.key)

    yield ctx.host.ensure(Directory(path=swap.data, mode=_PRIVATE))
    ctx.say("Creating the data directory of etcd")
    if ctx.host.state(swap.staged) is None:
        yield ctx.host.ensure(Streamed(path=database, pieces=pieces, size=ctx.archive.snapshot.size))
        revisions = etcdutl.bump(descriptions.seconds_since(ctx.task.description, ctx.clock))
        yield from swap.generate(etcdutl.restored(ctx.etcdutl, swap, ctx.member, source=database, revisions=revisions))
    yield ctx.host.remove(database, own=[database])
    yield from swap.put()


_FLAGS: Final = "key-file peers-are-gone etcdutl yes"
PHASES: Final[Phases[BackupContext]] = Phases(
    Phase(
        "preflight",
        "Check the machine, and ask for confirmation",
        run=lambda ctx: ctx.bound.preflight(ctx),
        flags=_FLAGS,
        argument="file",
    ),
    Phase(
        "restore",
        "Write the files and the data of etcd, and start the kubelet",
        run=carried_out,
        flags=_FLAGS,
        argument="file",
    ),
)
ROW: Final = Operation(
    name="backup restore",
    phases=PHASES,
    configure=prepare,
    context=BackupContext.of,
    preflight={Mode.APPLY: check, Mode.PLAN: planned},
)
