"""The copy-on-write store and the service manager of a plan. Writes go over another host, which is only read."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath

from kubewright.base.errors import HostError
from kubewright.base.records import dataclass, replace
from kubewright.host.decisions import keeps_owner, require_below
from kubewright.host.desired import Directory, File, Ownership
from kubewright.host.failures import explained, explaining
from kubewright.host.filesystem.mounts import mounted_at, unknown_mounts
from kubewright.host.filesystem.paths import OUTER_MODE, checked, follow, resolved
from kubewright.host.filesystem.trees import Refusals
from kubewright.host.seam import Host
from kubewright.host.states import FileState, FileSystem, Kind, ServiceState

_NO_LOCK = {Kind.LINK: errno.ELOOP, Kind.DIRECTORY: errno.EISDIR, Kind.SOCKET: errno.ENXIO}
"""The system's error for opening such a file for reading and writing without following links (open(2))."""


@dataclass(frozen=True, kw_only=True)
class _Given:
    """Another mode or owner of a path of the host below; None leaves it unchanged.

    With `whole`, the owner applies to everything below.
    """

    path: PurePosixPath
    mode: int | None = None
    owner: int | None = None
    group: int | None = None
    whole: bool = False

    def over(self, path: PurePosixPath, found: FileState) -> FileState:
        """Return a state of the host below with this mode and owner."""
        if path != self.path and not (self.whole and path.is_relative_to(self.path)):
            return found
        mode = found.mode if self.mode is None or path != self.path else stat.S_IMODE(self.mode)
        owner = found.owner if self.owner is None else self.owner
        return replace(found, mode=mode, owner=owner, group=found.group if self.group is None else self.group)


class OverlayStore:
    """The files that were written, by real paths, and the removed paths of the host below. Writers hold `lock`."""

    def __init__(self, base: Host) -> None:
        self.lock = threading.RLock()
        self._base = base
        self._written: dict[PurePosixPath, File | Directory] = {}
        self._hidden: set[PurePosixPath] = set()
        self._given: list[_Given] = []
        self._stand_ins: set[PurePosixPath] = set()
        self._unmounted: list[PurePosixPath] = []

    @property
    def files(self) -> tuple[File, ...]:
        """The files that were written and still exist, in the order of their first write, without stand-ins."""
        with self.lock:
            rows = [(path, entry) for path, entry in self._written.items() if path not in self._stand_ins]
            return tuple(entry for _, entry in rows if isinstance(entry, File))

    def read(self, path: PurePosixPath, /) -> bytes | None:
        place = self.real(path)
        entry = self._written.get(place)
        if isinstance(entry, File):
            return entry.content
        return None if self._is_hidden(place) else self._base.read(place)

    def state(self, path: PurePosixPath, /) -> FileState | None:
        return self._look(self._place(path))

    def entries(self, path: PurePosixPath, /, *, temporary: bool = False) -> list[PurePosixPath]:
        place = self.real(path)
        below = () if self._is_hidden(place) else self._base.entries(place)
        with self.lock:
            written = {entry.name for entry in self._written if entry.parent == place and entry != place}
        return [path / name for name in sorted(written.union(entry.name for entry in below if not self._is_hidden(entry)))]

    def space(self, path: PurePosixPath, /) -> FileSystem:
        return self._base.space(path)

    def weakness(self, path: PurePosixPath, /) -> str:
        return self._base.weakness(path)

    def real(self, path: PurePosixPath, /) -> PurePosixPath:
        return resolved(path, look=self._look)

    def mounts(self, directory: PurePosixPath, /) -> list[PurePosixPath]:
        there = self._base.mounts(directory)
        for path in self._unmounted:  # the last mount at each path, as often as it was unmounted
            if path in there:
                del there[len(there) - 1 - there[::-1].index(path)]
        return there

    def unmount(self, path: PurePosixPath, /, *, flags: Collection[str]) -> bool:
        self._unmounted.append(path)
        return True

    def write(self, desired: File, /) -> None:
        with explaining("write", desired.path):
            parent = self._followed(desired.path.parent, makes=True)
        self._make_all(parent, desired.directory_mode, above=OUTER_MODE)
        place = parent / desired.path.name
        self._written[place] = replace(desired, **self._owner_of_new(place, desired))
        self._stand_ins.discard(place)

    def make(self, desired: Directory, /) -> None:
        with explaining("make", desired.path):
            place = self._followed(desired.path, makes=True)
        if self._look(place) is None:
            self._make_all(place, desired.mode, above=desired.mode)
            self._written[place] = replace(desired, path=place)
        else:
            mode = desired.mode if desired.enforce else None
            self._give(_Given(path=place, mode=mode, owner=desired.owner, group=desired.group))

    def own(self, desired: Ownership, /) -> None:
        with explaining("change the owner of", desired.path):
            place = self._followed(desired.path.parent) / desired.path.name
        self._give(_Given(path=place, mode=desired.mode, owner=desired.owner, group=desired.group, whole=desired.recursive))

    def remove(self, path: PurePosixPath, /, *, below: Iterable[PurePosixPath]) -> None:
        require_below(checked(path), below)
        with explaining("remove", path):
            place = self._followed(path.parent) / path.name
        for refusal in self._staying(path, place):
            raise refusal
        self._hide(place)

    def empty(self, path: PurePosixPath, /, *, below: Iterable[PurePosixPath]) -> Refusals:
        require_below(checked(path), below)
        with explaining("empty", path):
            place = self._followed(path)
        refused = Refusals()
        for entry in self.entries(path):
            staying = list(self._staying(entry, place / entry.name))
            for refusal in staying:
                refused.note(refusal)
            if not staying:
                self._hide(place / entry.name)
        return refused

    def move(self, path: PurePosixPath, target: PurePosixPath, /) -> None:
        found, place, destination = self.state(path), self._place(path), self._place(target)
        self._hide(place)
        if found is not None:
            self._written[destination] = Directory(path=destination, mode=found.mode, owner=found.owner, group=found.group)

    def clean(self, path: PurePosixPath, /) -> None:
        """Do nothing: a plan does not report leftovers."""

    @contextmanager
    def locked(self, *paths: PurePosixPath) -> Iterator[None]:
        for path in paths:
            found = self.state(path)
            code = errno.ENOENT if found is None else _NO_LOCK.get(found.kind)
            if code is not None:
                raise explained(OSError(code, os.strerror(code)), "lock", path)
        yield

    def expect(self, files: Iterable[File], /) -> None:
        for file in files:
            place = self._place(file.path)
            if self._look(place) is None:
                self._written[place] = file
                self._stand_ins.add(place)

    def _followed(self, path: PurePosixPath, *, makes: bool = False) -> PurePosixPath:
        """Return the directory that `Files` of a real machine opens."""
        return follow(path, look=self._look, makes=makes, theirs=(self._base.layout.etcd_data,))

    def _place(self, path: PurePosixPath) -> PurePosixPath:
        """Return a path with the links of its parents followed."""
        return self.real(path.parent) / path.name if path.name else path

    def _look(self, place: PurePosixPath) -> FileState | None:
        """Return the state of a real path."""
        entry = self._written.get(place)
        if entry is not None:
            kind, size = (Kind.FILE, len(entry.content)) if isinstance(entry, File) else (Kind.DIRECTORY, 0)
            owner = os.geteuid() if entry.owner is None else entry.owner
            group = os.getegid() if entry.group is None else entry.group
            return FileState(kind=kind, mode=stat.S_IMODE(entry.mode), owner=owner, group=group, size=size)
        found = None if self._is_hidden(place) else self._base.state(place)
        for given in self._given:
            found = None if found is None else given.over(place, found)
        return found

    def _owner_of_new(self, place: PurePosixPath, desired: File) -> dict[str, int | None]:
        """Return the owner of a file that is written, as `Files` decides it."""
        found, around = self._look(place), self._look(place.parent)
        asked = desired.owner is not None or desired.group is not None or os.geteuid() != 0
        kept = not asked and found is not None and around is not None and found.kind is Kind.FILE
        if kept and found is not None and around is not None and keeps_owner(user=around.owner, mode=around.mode):
            return {"owner": found.owner, "group": found.group}
        return {"owner": desired.owner, "group": desired.group}

    def _make_all(self, directory: PurePosixPath, mode: int, *, above: int) -> None:
        """Create a directory and its missing parents."""
        missing = []
        for place in (directory, *directory.parents):
            if self._look(place) is not None:
                break
            missing.append(Directory(path=place, mode=mode if place == directory else above))
        self._written.update((made.path, made) for made in reversed(missing))

    def _give(self, given: _Given) -> None:
        """Change mode and owner: of written files at once, of those of the host below whenever they are read."""
        for path, entry in list(self._written.items()):
            found = self._look(path)
            if found is not None:
                now = given.over(path, found)
                if now != found:
                    self._written[path] = replace(entry, mode=now.mode, owner=now.owner, group=now.group)
        self._given.append(given)

    def _staying(self, path: PurePosixPath, place: PurePosixPath) -> Iterator[HostError]:
        """Yield the errors that keep an entry from being removed: mounts at or below it, in the order in which a run finds them."""
        try:
            there = {mounted for mounted in self.mounts(path.parent) if mounted.is_relative_to(place)}
        except HostError:  # there is no table
            found = self._look(place)
            if found is not None and found.kind is Kind.DIRECTORY and self.entries(path):
                yield unknown_mounts(f"{path} is left as it is")
            return
        last: PurePosixPath | None = None
        for mounted in sorted(there, key=lambda one: one.parts):
            if last is None or not mounted.is_relative_to(last):  # mounts within a mount are not reached
                last = mounted
                yield mounted_at(path / mounted.relative_to(place))

    def _hide(self, place: PurePosixPath) -> None:
        for written in [written for written in self._written if written.is_relative_to(place)]:
            del self._written[written]
        self._hidden.add(place)

    def _is_hidden(self, place: PurePosixPath) -> bool:
        """Return whether a path of the host below is removed."""
        return bool(self._hidden) and not self._hidden.isdisjoint((place, *place.parents))


class PlannedServices:
    """The services of the host below; verbs only change the state that is reported afterwards."""

    def __init__(self, base: Host) -> None:
        self._base = base
        self._planned: dict[str, ServiceState] = {}
        self._reloaded = False

    def state(self, name: str, /) -> ServiceState | None:
        found = self._planned.get(name) or self._base.service(name)
        return replace(found, stale=False) if found is not None and self._reloaded else found

    def is_stopping(self) -> bool:
        return self._base.is_shutting_down()

    def last_lines(self, name: str, /, *, count: int) -> list[str]:
        return self._base.service_lines(name, count=count)

    def start(self, name: str, /) -> None:
        self._planned[name] = ServiceState(running=True, enabled=self._is_enabled(name))

    def stop(self, name: str, /) -> None:
        self._planned[name] = ServiceState(running=False, enabled=self._is_enabled(name))

    def restart(self, name: str, /) -> None:
        self.start(name)

    def enable(self, name: str, /) -> None:
        self._planned[name] = replace(self._known(name), enabled=True)

    def disable(self, name: str, /) -> None:
        if self.state(name) is not None:
            self._planned[name] = replace(self._known(name), enabled=False)

    def reload(self) -> None:
        self._reloaded = True

    def _known(self, name: str) -> ServiceState:
        return self.state(name) or ServiceState(running=False)

    def _is_enabled(self, name: str) -> bool:
        return self._known(name).enabled
