"""A host on which nothing is really done: what is written lies over another host and is read back from here.

Plans and dry runs are runs against it. The decisions are those of the real host, so that a plan tells what a run would do. A dry run then
writes the files of its overlay into kubeadm's dry-run directory, where they lie flat (spec/kubeadm.md 2.5).
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from signal import Signals
from typing import TYPE_CHECKING

from kubewright.apis.layout import Layout
from kubewright.base.change import Action, Change
from kubewright.base.records import replace
from kubewright.host import accounts
from kubewright.host.decisions import (
    decide_accounts,
    decide_directory,
    decide_emptying,
    decide_file,
    decide_no_accounts,
    decide_no_units,
    decide_ownership,
    decide_removal,
    decide_service,
)
from kubewright.host.desired import Accounts, Desired, Directory, File, Ownership, Service, Show
from kubewright.host.facts import Facts
from kubewright.host.failures import explained
from kubewright.host.paths import OUTER_MODE
from kubewright.host.processes import Identity, Usage
from kubewright.host.readers import Network, Programs
from kubewright.host.seam import ContainerRuntime, Host, PacketFilter, Processes, RuntimeVersion
from kubewright.host.states import Container, FileState, Kind, RuntimeStatus, Sandbox, ServiceState

if TYPE_CHECKING:
    from kubewright.host.packet_filter import Rules


class OverlayHost:
    """Copy on write over any host. `facts` replaces what the machine tells about itself.

    Safe to use from several threads.
    """

    def __init__(self, base: Host, *, facts: Facts | None = None) -> None:
        self._base = base
        self._facts = facts
        self._lock = threading.RLock()
        self._written: dict[PurePosixPath, File | Directory] = {}
        self._hidden: set[PurePosixPath] = set()
        self._stand_ins: set[PurePosixPath] = set()
        self._services: dict[str, ServiceState] = {}
        self._changes: list[Change] = []
        self._removed: set[str] = set()
        self._unmounted: list[PurePosixPath] = []
        self.processes: Processes = _QuietProcesses(base.processes)

    @property
    def layout(self) -> Layout:
        return self._base.layout

    @property
    def facts(self) -> Facts:
        return self._base.facts if self._facts is None else self._facts

    @property
    def network(self) -> Network:
        return self._base.network

    @property
    def runtime(self) -> ContainerRuntime:
        return _PlannedRuntime(self._base.runtime, changes=self._changes, removed=self._removed)

    @property
    def programs(self) -> Programs:
        return self._base.programs

    @property
    def changes(self) -> tuple[Change, ...]:
        """Everything that was looked at so far, in order, unchanged targets included."""
        return tuple(self._changes)

    @property
    def files(self) -> tuple[File, ...]:
        """The files that were written and are still there, in the order of their first writing; stand-ins are not among them."""
        with self._lock:
            return tuple(file for path, file in self._written.items() if isinstance(file, File) and path not in self._stand_ins)

    def read(self, path: PurePosixPath, /) -> bytes | None:
        entry = self._written.get(path)
        if isinstance(entry, File):
            return entry.content
        return None if self._is_hidden(path) else self._base.read(path)

    def state(self, path: PurePosixPath, /) -> FileState | None:
        entry = self._written.get(path)
        if isinstance(entry, File):
            return _state(Kind.FILE, entry, size=len(entry.content))
        below = None if self._is_hidden(path) else self._base.state(path)
        if entry is not None and (below is None or entry.enforce):
            return _state(Kind.DIRECTORY, entry)
        return below

    def entries(self, path: PurePosixPath, /) -> list[PurePosixPath]:
        below = () if self._is_hidden(path) else self._base.entries(path)
        with self._lock:
            written = {entry for entry in self._written if entry.parent == path}
        return sorted(written.union(entry for entry in below if not self._is_hidden(entry)))

    def weakness(self, path: PurePosixPath, /) -> str:
        return self._base.weakness(path)

    def service(self, name: str, /) -> ServiceState | None:
        return self._services.get(name) or self._base.service(name)

    def service_lines(self, name: str, /, *, count: int) -> list[str]:
        return self._base.service_lines(name, count=count)

    def ensure(self, desired: Desired, /) -> Change:
        with self._lock:
            match desired:
                case File():
                    return self._note(self._ensure_file(desired))
                case Directory():
                    return self._note(self._ensure_directory(desired))
                case Service():
                    return self._note(self._ensure_service(desired))
                case Accounts():
                    return self._note(self._ensure_accounts(desired))
                case Ownership():
                    return self._note(self._ensure_ownership(desired))

    def remove(self, path: PurePosixPath, /) -> Change:
        with self._lock:
            change = decide_removal(self.state(path), path, layout=self.layout)
            if change:
                self._hide(path)
            return self._note(change)

    def empty(self, path: PurePosixPath, /, *, own: Collection[PurePosixPath] = ()) -> Change:
        with self._lock:
            entries = self.entries(path)
            change = decide_emptying(entries, path, layout=self.layout, own=own)
            for entry in entries:
                self._hide(entry)
            return self._note(change)

    def mounts(self, directory: PurePosixPath, /) -> list[PurePosixPath]:
        there = self._base.mounts(directory)
        for path in self._unmounted:  # the last one of each place, as often as it was unmounted
            if path in there:
                del there[len(there) - 1 - there[::-1].index(path)]
        return there

    def unmount(self, path: PurePosixPath, /, *, flags: Collection[str] = ()) -> Change:
        with self._lock:
            change = Change(target=f"mount {path}", action=Action.DELETE if path in self.mounts(self.layout.kubelet) else Action.NONE)
            if change:
                self._unmounted.append(path)
            return self._note(change)

    def remove_units(self, service: str, /, *, units: Sequence[PurePosixPath]) -> Change:
        with self._lock:
            there = [path for path in units if self.state(path) is not None]
            change = decide_no_units(there, service)
            for path in there:
                self._hide(path)
            return self._note(change)

    def remove_accounts(self, unwanted: Accounts, /) -> Change:
        with self._lock:
            passwd, group = unwanted.etc / accounts.PASSWD, unwanted.etc / accounts.GROUP
            before = {path: accounts.read_accounts(self, path) for path in (passwd, group)}
            left = accounts.remove_accounts(before[passwd], before[group], unwanted=unwanted)
            for path, text in ((passwd, left.passwd), (group, left.group)):
                if text != before[path]:
                    self._written[path] = accounts.replacement(path, text, self.state(path))
            return self._note(decide_no_accounts(left, unwanted))

    @property
    def packet_filter(self) -> PacketFilter:
        return _PlannedFilter(self._base.packet_filter, note=self._note, removed=self._removed)

    def _hide(self, path: PurePosixPath) -> None:
        for written in [written for written in self._written if written.is_relative_to(path)]:
            del self._written[written]
        self._hidden.add(path)

    def _ensure_file(self, desired: File) -> Change:
        found = self.state(desired.path)
        content = self.read(desired.path) if found is not None and found.kind is Kind.FILE else None
        change = decide_file(found, content, desired)
        if change.action is not Action.NONE:
            self._make_parents(desired.path, desired.directory_mode, above=OUTER_MODE, doing="write")
            self._written[desired.path] = desired
            self._stand_ins.discard(desired.path)
        return change

    def _ensure_directory(self, desired: Directory) -> Change:
        change = decide_directory(self.state(desired.path), desired)
        if change.action is not Action.NONE:
            self._make_parents(desired.path, desired.mode, above=desired.mode, doing="make")
            self._written[desired.path] = desired
        return change

    def _ensure_accounts(self, desired: Accounts) -> Change:
        passwd, group = desired.etc / accounts.PASSWD, desired.etc / accounts.GROUP
        login_defs = (self.read(desired.etc / accounts.LOGIN_DEFS) or b"").decode("utf-8", errors="replace")
        before = {path: accounts.read_accounts(self, path) for path in (group, passwd)}
        added = accounts.add_accounts(before[passwd], before[group], login_defs=login_defs, wanted=desired)
        for path, text in ((group, added.group), (passwd, added.passwd)):
            if text != before[path]:
                self._written[path] = accounts.replacement(path, text, self.state(path))
        return decide_accounts(added, desired)

    def _ensure_ownership(self, desired: Ownership) -> Change:
        found = self.state(desired.path)
        change = decide_ownership(found, desired)
        if change and found is not None:
            mode = found.mode if desired.mode is None else desired.mode
            if found.kind is Kind.DIRECTORY:
                made = Directory(path=desired.path, mode=mode, owner=desired.owner, group=desired.group, enforce=True)
                self._written[desired.path] = made
            else:
                entry = self._written.get(desired.path)
                file = entry if isinstance(entry, File) else File(path=desired.path, content=self.read(desired.path) or b"")
                self._written[desired.path] = replace(file, mode=mode, owner=desired.owner, group=desired.group)
        return change

    def _ensure_service(self, desired: Service) -> Change:
        units = [self._ensure_file(unit) for unit in desired.units]
        found = self.service(desired.name)
        change = decide_service(found, desired, units=units)
        enabled = desired.enabled if desired.enabled is not None else found is None or found.enabled
        self._services[desired.name] = ServiceState(running=desired.running, enabled=enabled)
        if desired.running:
            for file in desired.stand_ins:
                if self.state(file.path) is None:
                    self._written[file.path] = file
                    self._stand_ins.add(file.path)
        return change

    def _make_parents(self, path: PurePosixPath, mode: int, *, above: int, doing: str) -> None:
        missing = []
        for parent in path.parents:
            found = self.state(parent)
            if found is not None and found.kind not in {Kind.DIRECTORY, Kind.LINK}:
                raise explained(NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)), doing, path)
            if found is not None:
                break
            missing.append(Directory(path=parent, mode=mode if parent == path.parent else above))
        self._written.update((directory.path, directory) for directory in reversed(missing))

    def _is_hidden(self, path: PurePosixPath) -> bool:
        """Tell whether what the host below has at a path is removed."""
        return any(place in self._hidden for place in (path, *path.parents))

    def _note(self, change: Change) -> Change:
        self._changes.append(change)
        return change


def _state(kind: Kind, entry: File | Directory, *, size: int = 0) -> FileState:
    owner = os.geteuid() if entry.owner is None else entry.owner
    group = os.getegid() if entry.group is None else entry.group
    return FileState(kind=kind, mode=stat.S_IMODE(entry.mode), owner=owner, group=group, size=size)


class _QuietProcesses:
    """The processes of the host below; signals are not sent, and succeed where they would reach somebody."""

    def __init__(self, base: Processes) -> None:
        self._base = base

    def of(self, pid: int, /) -> Identity | None:
        return self._base.of(pid)

    def alive(self, identity: Identity, /) -> bool:
        return self._base.alive(identity)

    def usage(self, identity: Identity, /) -> Usage | None:
        return self._base.usage(identity)

    def group(self, leader: int, /) -> list[Identity]:
        return self._base.group(leader)

    def marked(self, marks: Mapping[str, str], /, *, shared: str = "") -> list[Identity]:
        return self._base.marked(marks, shared=shared)

    def carries(self, identity: Identity, marks: Mapping[str, str], /, *, shared: str = "") -> bool:
        return self._base.carries(identity, marks, shared=shared)

    def handle(self, identity: Identity, /) -> int | None:
        return self._base.handle(identity)

    def signal(self, identity: Identity, number: Signals, /) -> bool:
        return self._base.alive(identity)

    def signal_group(self, leader: Identity, number: Signals, /) -> bool:
        return self._base.alive(leader)


class _PlannedFilter:
    """The packet filter of the host below; what would be removed counts as gone."""

    def __init__(self, base: PacketFilter, *, note: Callable[[Change], Change], removed: set[str]) -> None:
        self._base = base
        self._note = note
        self._removed = removed

    def found(self) -> list[Rules]:
        return [rules for rules in self._base.found() if rules.target not in self._removed]

    def remove(self, rules: Rules, /) -> Change:
        there = any(found.target == rules.target for found in self.found())
        self._removed.add(rules.target)
        return self._note(Change(target=rules.target, action=Action.DELETE if there else Action.NONE))


class _PlannedRuntime:
    """The runtime of the host below; what would be pulled counts as there from then on, what would be removed as gone."""

    def __init__(self, base: ContainerRuntime, *, changes: list[Change], removed: set[str]) -> None:
        self._base = base
        self._changes = changes
        self._removed = removed

    def version(self) -> RuntimeVersion:
        return self._base.version()

    def has_image(self, image: str, /) -> bool:
        return self._base.has_image(image) or any(change.target == f"image {image}" for change in self._changes)

    def status(self) -> RuntimeStatus:
        return self._base.status()

    def cgroup_driver(self) -> str | None:
        return self._base.cgroup_driver()

    def sandboxes(self) -> list[Sandbox]:
        return [sandbox for sandbox in self._base.sandboxes() if sandbox.id not in self._removed]

    def containers(self, *, namespace: str) -> list[Container]:
        return self._base.containers(namespace=namespace)

    def last_lines(self, pod: str, /, *, count: int) -> list[str]:
        return self._base.last_lines(pod, count=count)

    def pull(self, image: str, /) -> Change:
        """Tell of an image that is not there. Whether the registry has a newer one of the same name is not asked."""
        return self._note(Change(target=f"image {image}", action=Action.NONE if self.has_image(image) else Action.CREATE))

    def remove_sandbox(self, sandbox: Sandbox, /) -> Change:
        there = any(found.id == sandbox.id for found in self.sandboxes())
        self._removed.add(sandbox.id)
        return self._note(Change(target=sandbox.target, action=Action.DELETE if there else Action.NONE))

    def _note(self, change: Change) -> Change:
        self._changes.append(change)
        return change


def flat_name(layout: Layout, path: PurePosixPath) -> PurePosixPath | None:
    """Return the name below the dry-run directory, or None for a file that has no place there.

    Certificates keep their path below the PKI, so that those of etcd are in `etcd/`; all other files stand beside them.
    """
    if path.is_relative_to(layout.pki):
        return path.relative_to(layout.pki)
    flat = {layout.kubernetes, layout.manifests, layout.kubelet}
    return PurePosixPath(path.name) if path.parent in flat else None


def materialise(overlay: OverlayHost, directory: PurePosixPath, *, writer: Host, copies: Iterable[PurePosixPath] = ()) -> list[Change]:
    """Write the files of an overlay into a dry-run directory, which is made (0700) if it is not there.

    `copies` are existing files that belong with them, such as a CA that was reused. Returns one Change for each file, without its
    content; a file that has no place there is left out. All of them belong to whoever writes them.
    """
    writer.ensure(Directory(path=directory, mode=0o700))
    layout = overlay.layout
    wanted = [*(copy for path in copies if (copy := _existing(overlay, path)) is not None), *overlay.files]
    placed = ((flat_name(layout, file.path), file) for file in wanted)
    return [
        writer.ensure(replace(file, path=directory / name, show=Show.SIZE, owner=None, group=None))
        for name, file in placed
        if name is not None
    ]


def _existing(overlay: OverlayHost, path: PurePosixPath) -> File | None:
    found, content = overlay.state(path), overlay.read(path)
    if found is None or found.kind is not Kind.FILE or content is None:
        return None
    return File(path=path, content=content, mode=found.mode)
