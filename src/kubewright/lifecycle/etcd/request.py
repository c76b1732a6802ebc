"""Options of the operations on this machine's member of etcd, and the configuration that is made from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from kubewright.base.durations import MINUTE, Duration
from kubewright.base.errors import UsageError
from kubewright.base.records import dataclass, field
from kubewright.etcd.snapshots import Snapshot
from kubewright.lifecycle.etcd import access, this_member
from kubewright.lifecycle.operation import Prepared

if TYPE_CHECKING:
    from kubewright.lifecycle.etcd.archive import Archive
    from kubewright.lifecycle.etcd.this_member import ThisMember
    from kubewright.lifecycle.machine import TargetMachine


@dataclass(frozen=True, kw_only=True)
class MemberOptions:
    """The common options of the operations.

    `ask` asks the user a question and returns the answer; it is not called with `yes`.
    """

    only: tuple[str, ...] = ()
    yes: bool = False
    ask: Callable[[str], str] | None = None


@dataclass(frozen=True, kw_only=True)
class DataOptions(MemberOptions):
    """The options of operations that give etcd other data.

    `peers_are_gone`: the machines of members that do not answer no longer exist. `etcdutl` is the path of the program;
    '' if it is to be found.
    """

    peers_are_gone: bool = False
    etcdutl: str = ""


@dataclass(frozen=True, kw_only=True)
class RestoreOptions(DataOptions):
    """The options of `etcd restore`. Exactly one of `file`, `from_this_member`, `fence` and `unfence` is given.

    `again`: also if etcd already is the cluster that an earlier run has made.
    """

    file: str = ""
    from_this_member: bool = False
    fence: bool = False
    unfence: bool = False
    again: bool = False


@dataclass(frozen=True, kw_only=True)
class ReplaceOptions(MemberOptions):
    """The options of `etcd member replace`.

    `endpoints` are the client URLs of other members; if there are none, they are looked for. `again`: also if the last
    run has replaced the member already. `after`: how long a member must not have served before the user is asked.
    """

    after: Duration = Duration(MINUTE)
    endpoints: tuple[str, ...] = ()
    again: bool = False


@dataclass(frozen=True, kw_only=True)
class BackupRestoreOptions(DataOptions):
    """The options of `backup restore`. `key` is None for a plain backup."""

    file: str
    key: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class MemberTask:
    """The configuration of a run: the member of this machine, and what is restored, if anything.

    `source` is the path of the snapshot. `description` is the content of FILE.json, or the description in the backup.
    """

    member: ThisMember
    source: PurePosixPath | None = None
    snapshot: Snapshot | None = None
    description: Mapping[str, Any] = field(default_factory=dict)
    archive: Archive | None = None


def restore_task(request: RestoreOptions, machine: TargetMachine) -> Prepared[MemberTask]:
    """Read the machine's manifests and the snapshot.

    Raises UsageError, HostError, and DocumentError for a file that is not a complete snapshot.
    """
    chosen = [bool(request.file), request.from_this_member, request.fence, request.unfence]
    if sum(chosen) != 1:
        raise UsageError(
            "name either a snapshot or one of --from-this-member, --fence and --unfence",
            remedy="for example: etcd restore /var/backups/etcd.db; to stop etcd on another machine first, run `etcd restore --fence` there",
        )
    here = machine.at(machine.layout)
    member = this_member.find(here)
    task = MemberTask(member=member)
    warnings: tuple[str, ...] = ()
    if request.file:
        from kubewright.host.filesystem.files import Files
        from kubewright.lifecycle.etcd import saving, verifying

        source, files = PurePosixPath(request.file), Files()
        pieces = verifying.reading(source, task="checking the snapshot", clock=machine.clock, reporter=machine.reporter)
        snapshot = verifying.check(pieces, name=str(source))
        description = source.with_name(source.name + saving.SUFFIX)
        found = verifying.compare(snapshot, files.read(description), name=str(description), contents=None)
        warnings = found.warnings
        task = MemberTask(member=member, source=source, snapshot=snapshot, description=found.description)
    return Prepared(configuration=task, host=machine.at(member.layout), warnings=warnings, only=request.only)


def replace_task(request: ReplaceOptions, machine: TargetMachine) -> Prepared[MemberTask]:
    """Read the machine's manifests. Raises HostError, and UsageError for endpoints that are no URLs."""
    access.require_urls(request.endpoints)
    member = this_member.find(machine.at(machine.layout))
    return Prepared(configuration=MemberTask(member=member), host=machine.at(member.layout), only=request.only)
