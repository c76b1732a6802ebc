"""What is asked of `etcd restore` and `etcd member replace`, and the configuration that comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from kubewright.base.errors import UsageError
from kubewright.base.records import dataclass, field
from kubewright.etcd.snapshots import Snapshot
from kubewright.lifecycle.etcd import this_member
from kubewright.lifecycle.operation import Prepared

if TYPE_CHECKING:
    from kubewright.lifecycle.etcd.archive import Archive
    from kubewright.lifecycle.etcd.this_member import ThisMember
    from kubewright.lifecycle.machine import Machine


@dataclass(frozen=True, kw_only=True)
class RestoreOptions:
    """One call of `etcd restore`. Exactly one of `file`, `from_this_member`, `fence` and `unfence` is given.

    `peers_are_gone`: the machines of members that cannot be asked do not exist any more. `etcdutl` is the path of the program, '' for one that is
    found. `ask` puts a question to the user and returns the answer, unless `yes` answers it.
    """

    file: str = ""
    from_this_member: bool = False
    fence: bool = False
    unfence: bool = False
    peers_are_gone: bool = False
    etcdutl: str = ""
    only: tuple[str, ...] = ()
    yes: bool = False
    ask: Callable[[str], str] | None = None


@dataclass(frozen=True, kw_only=True)
class ReplaceOptions:
    """One call of `etcd member replace`. `endpoints` are where other members answer clients; if there are none, they are looked for."""

    endpoints: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    yes: bool = False
    ask: Callable[[str], str] | None = None


@dataclass(frozen=True, kw_only=True)
class BackupRestoreOptions:
    """One call of `backup restore`. `key` is None for a plain backup; the other fields are as in `RestoreOptions`."""

    file: str
    key: bytes | None = field(default=None, repr=False)
    peers_are_gone: bool = False
    etcdutl: str = ""
    only: tuple[str, ...] = ()
    yes: bool = False
    ask: Callable[[str], str] | None = None


@dataclass(frozen=True, kw_only=True)
class MemberTask:
    """What is to be done to the member of this machine. `snapshot` is that of the file, `description` what FILE.json, or the backup, says of it."""

    member: ThisMember
    source: PurePosixPath | None = None
    snapshot: Snapshot | None = None
    description: Mapping[str, Any] = field(default_factory=dict)
    archive: Archive | None = None


def restore_task(request: RestoreOptions, machine: Machine) -> Prepared[MemberTask]:
    """Read the machine's manifests and the snapshot. Raises UsageError, HostError, and DocumentError for a file that is no whole snapshot."""
    chosen = [bool(request.file), request.from_this_member, request.fence, request.unfence]
    if sum(chosen) != 1:
        raise UsageError(
            "name either a snapshot or one of --from-this-member, --fence and --unfence",
            remedy="for example: etcd restore /var/backups/etcd.db",
        )
    here = machine.at(machine.layout)
    member = this_member.find(here)
    task = MemberTask(member=member)
    warnings: tuple[str, ...] = ()
    if request.file:
        from kubewright.host.filesystem.files import Files
        from kubewright.lifecycle.etcd import saving, verifying

        source, files = PurePosixPath(request.file), Files()
        snapshot = verifying.check(files.pieces(source), name=str(source))
        beside = source.with_name(source.name + saving.SUFFIX)
        found = verifying.compare(snapshot, files.read(beside), name=str(beside), contents=None)
        warnings = found.warnings
        task = MemberTask(member=member, source=source, snapshot=snapshot, description=found.description)
    return Prepared(configuration=task, host=machine.at(member.layout), warnings=warnings, only=request.only)


def replace_task(request: ReplaceOptions, machine: Machine) -> Prepared[MemberTask]:
    """Read the machine's manifests. Raises HostError."""
    member = this_member.find(machine.at(machine.layout))
    return Prepared(configuration=MemberTask(member=member), host=machine.at(member.layout), only=request.only)
