"""Files of this machine, written so that neither a power cut nor kill -9 leaves a partial file.

A file is written under a temporary name in its own directory, with its final mode and owner, synced, and renamed over
the old one; then the directory is synced. The umask has no effect. Temporary files of writers that died are removed by
the next writer to the directory.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

from kubewright.base.errors import HostError
from kubewright.base.patterns import Pattern
from kubewright.host.accounts import lock_accounts
from kubewright.host.decisions import keeps_owner, require_below
from kubewright.host.desired import Directory, File, Ownership
from kubewright.host.failures import explaining
from kubewright.host.filesystem import mounts
from kubewright.host.filesystem.paths import OUTER_MODE, checked, open_directory, weakness
from kubewright.host.filesystem.trees import Refusals, Work, fail, names, remove_entry, visit
from kubewright.host.processes import Identity
from kubewright.host.states import FileState, FileSystem, Kind

READ_LIMIT: Final = 256 * 1024 * 1024
"""Bytes above which we do not read a file."""

_LABEL: Final = "security.selinux"
_BLOCK: Final = 64 * 1024
"""Bytes per read: files below /proc/sys reject buffers of megabytes."""

_PIECE: Final = 1 << 20
"""Bytes per piece of a large file."""

LEFTOVER: Final = Pattern(r"\..+\.kubewright-(?P<writer>(?P<pid>[0-9]+)-[0-9]+-[0-9a-f]*)-[0-9]+")
"""Names of temporary files.

Because of the leading dot, a kubelet does not take one for a manifest; the rest identifies the writer.

A pid is not sufficient: after a reboot, another process soon has the pid of a writer that the power cut ended.
"""
_BOOT_DIGITS: Final = 8
"""How many digits of the boot id are in the name of a writer."""

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS: Final = {stat.S_IFREG: Kind.FILE, stat.S_IFDIR: Kind.DIRECTORY, stat.S_IFLNK: Kind.LINK, stat.S_IFSOCK: Kind.SOCKET}


class Files:
    """The store of `RealHost`: the files of this machine. Safe to use from several threads.

    `durable` False omits every sync, for clusters that need not survive a power cut. `batch` delays syncing directories
    until `sync` is called: files are still replaced atomically, but only then do they certainly survive a power cut.
    """

    def __init__(self, *, durable: bool = True, batch: bool = False) -> None:
        self._durable = durable
        self._batch = batch
        self._numbers = itertools.count()
        self._cleaned: set[PurePosixPath] = set()
        self._unsynced: set[PurePosixPath] = set()
        self._theirs: set[PurePosixPath] = set()

    def allow_any_owner(self, path: PurePosixPath, /) -> None:
        """Let a directory, and those below it, belong to any user. Others must belong to root or to ourselves."""
        self._theirs.add(path)

    def read(self, path: PurePosixPath, /) -> bytes | None:
        """Return the content of a regular file, links followed, or None if there is none."""
        with explaining("read", path):
            try:
                opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                return None
            try:
                if not stat.S_ISREG(os.fstat(opened).st_mode):
                    raise HostError(f"{path} is not a regular file", remedy="move it out of the way, then run the same command again")
                return _read_all(opened, path)
            finally:
                os.close(opened)

    def pieces(self, path: PurePosixPath, /) -> Iterator[bytes]:
        """Yield the content of a regular file of any size, piece by piece.

        Raises HostError, also if there is no such file.
        """
        with explaining("read", path), open(path, "rb", buffering=0, opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise HostError(f"{path} is not a regular file", remedy="choose another file")
            while piece := file.read(_PIECE):
                yield piece

    def state(self, path: PurePosixPath, /) -> FileState | None:
        """Return the state of a path, the last link not followed, or None if nothing is there."""
        with explaining("look at", path):
            try:
                found = os.lstat(path)
            except (FileNotFoundError, NotADirectoryError):
                return None
        return FileState(
            kind=_KINDS.get(stat.S_IFMT(found.st_mode), Kind.OTHER),
            mode=stat.S_IMODE(found.st_mode),
            owner=found.st_uid,
            group=found.st_gid,
            size=found.st_size,
            modified=found.st_mtime,
            target=_target(path) if stat.S_ISLNK(found.st_mode) else "",
        )

    def space(self, path: PurePosixPath, /) -> FileSystem:
        """Return the file system that contains a path. Raises HostError if the path does not exist."""
        with explaining("look at the file system of", path):
            found, device = os.statvfs(path), Path(path).stat().st_dev
        return FileSystem(
            device=device,
            capacity=found.f_frsize * found.f_blocks,
            available=found.f_frsize * found.f_bavail,
            inodes=found.f_files,
            inodes_free=found.f_ffree,
        )

    def weakness(self, path: PurePosixPath, /) -> str:
        """Return what lets others change the object at a path, as `trust.weakness` does."""
        with explaining("look at", path):
            return weakness(path)

    def entries(self, path: PurePosixPath, /, *, temporary: bool = False) -> list[PurePosixPath]:
        """Return the entries of a directory, sorted; none if there is no directory.

        Our temporary files are included only on request.
        """
        with explaining("list", path):
            try:
                names = sorted(entry.name for entry in Path(path).iterdir())
            except (FileNotFoundError, NotADirectoryError):
                return []
        return [path / name for name in names if temporary or not LEFTOVER.fullmatch(name)]

    def write(self, desired: File, /) -> None:
        """Replace a file atomically.

        Raises HostError (DiskFull if there is no space); the old file is then untouched.
        """
        path, durable = checked(desired.path), desired.durable and self._durable
        with explaining("write", path), self._opened(path.parent, make=desired.directory_mode, durable=durable) as parent:
            self._clean(parent, path.parent)
            temporary = self._free_name(parent, path.name)
            try:
                _write_new(parent, temporary, desired, durable=durable)
                os.rename(temporary, path.name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:  # also Ctrl-C, which may arrive while the system creates the file
                _unlink(temporary, parent)
                raise
            self._settle(parent, path.parent, durable=durable)

    def append(self, path: PurePosixPath, text: bytes, /, *, mode: int) -> None:
        """Add to the end of a file in one write: other processes may add to it too. The file and its directory may be missing.

        Nothing is synced. Raises HostError.
        """
        with explaining("write", path), self._opened(checked(path).parent, make=0o700) as parent:
            opened = os.open(path.name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=parent)
            try:
                _write_all(opened, text)
            finally:
                os.close(opened)

    @contextmanager
    def replacing(self, path: PurePosixPath, /, *, mode: int) -> Iterator[BinaryIO]:
        """Yield a new file to write to, for content that does not fit into memory.

        It replaces the old one, synced, when the block ends. It is removed if the block fails. Raises HostError, also
        if the path exists and is not a regular file.
        """
        found = self.state(checked(path))
        if found is not None and found.kind is not Kind.FILE:
            raise HostError(f"{path} is not a regular file", remedy="choose another file")
        with explaining("write", path), self._opened(path.parent) as parent:
            self._clean(parent, path.parent)
            temporary = self._free_name(parent, path.name)
            try:
                with os.fdopen(os.open(temporary, _NEW, 0o600 & mode, dir_fd=parent), "wb") as file:
                    os.fchmod(file.fileno(), mode)
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                os.rename(temporary, path.name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                _unlink(temporary, parent)
                raise
            self._settle(parent, path.parent, durable=self._durable)

    def make(self, desired: Directory, /) -> None:
        """Create a directory, or give an existing one the enforced mode and owner."""
        path = checked(desired.path)
        with explaining("make", path), self._opened(path, make=desired.mode, above=desired.mode, durable=self._durable) as opened:
            if desired.owner is not None or desired.group is not None:
                os.fchown(opened, _id(desired.owner), _id(desired.group))
            if desired.enforce:
                os.fchmod(opened, desired.mode)

    def own(self, desired: Ownership, /) -> None:
        """Change the owner and mode of a path. Links below it are changed themselves, never their targets."""
        path = checked(desired.path)
        with explaining("change the owner of", path), self._opened(path.parent) as parent:
            if desired.recursive:
                visit(parent, path.name, path, work=_owning(desired), failed=fail)
            os.chown(path.name, desired.owner, desired.group, dir_fd=parent, follow_symlinks=False)
            if desired.mode is not None:  # after the owner: changing that clears the set-user-ID bits
                os.chmod(path.name, desired.mode, dir_fd=parent)

    def remove(self, path: PurePosixPath, /, *, below: Iterable[PurePosixPath]) -> None:
        """Remove a file, a link, or a directory with everything below it; do nothing if it does not exist.

        Links are removed, never followed. Raises HostError, before anything is removed, unless the path is one of
        `below` or is below one of them, and at the first file system that is mounted in it.
        """
        require_below(checked(path), below)
        with explaining("remove", path), suppress(FileNotFoundError), self._opened(path.parent) as parent:
            remove_entry(parent, path.name, path, failed=fail)
            self._settle(parent, path.parent, durable=self._durable)

    def empty(self, path: PurePosixPath, /, *, below: Iterable[PurePosixPath]) -> Refusals:
        """Remove everything in a directory, but not the directory.

        All entries are tried; returns those that could not be removed. Links in it are removed, never followed; file
        systems that are mounted in it stay, with the directories that lead to them. Raises HostError as `remove` does,
        before anything is removed.
        """
        require_below(checked(path), below)
        refused = Refusals()
        with explaining("empty", path), suppress(FileNotFoundError), self._opened(path) as opened:
            for name in names(opened):
                remove_entry(opened, name, path / name, failed=refused.note)
            self._settle(opened, path, durable=self._durable)
        return refused

    def move(self, path: PurePosixPath, target: PurePosixPath, /) -> None:
        """Rename a file or directory to an unused name.

        Raises HostError, also for another file system and for a mount point.
        """
        source, destination = checked(path), checked(target)
        with explaining("rename", path), self._opened(source.parent) as old, self._opened(destination.parent) as new:
            os.rename(source.name, destination.name, src_dir_fd=old, dst_dir_fd=new)
            self._settle(new, destination.parent, durable=self._durable)
            self._settle(old, source.parent, durable=self._durable)

    def clean(self, path: PurePosixPath, /) -> None:
        """Remove temporary files of writers that died from a directory; do nothing if it does not exist."""
        with explaining("list", path), suppress(FileNotFoundError, NotADirectoryError), self._opened(path) as opened:
            self._clean(opened, path)

    def mounts(self, directory: PurePosixPath, /) -> list[PurePosixPath]:
        """Return the mount points below a directory, as `Host.mounts` does."""
        table = self.read(mounts.TABLE)
        if table is not None:
            return mounts.below(table, self.real(directory))
        if not self.entries(directory, temporary=True):
            return []
        raise mounts.unknown_mounts(f"it is unknown what is mounted below {directory}")

    def unmount(self, path: PurePosixPath, /, *, flags: Collection[str]) -> bool:
        """Unmount the file system at a path; False if nothing is mounted there (any more). Raises HostError."""
        return mounts.unmount(path, flags=flags)

    def real(self, path: PurePosixPath, /) -> PurePosixPath:
        """Return a path without links, as in the kernel's table of mounts."""
        return PurePosixPath(os.path.realpath(path))

    def locked(self, *paths: PurePosixPath) -> AbstractContextManager[None]:
        """Hold the lock of files of accounts.

        Raises TryAgain if another process holds one, HostError if a file is missing.
        """
        return lock_accounts(*paths)

    def expect(self, files: Iterable[File], /) -> None:
        """Do nothing: a real service writes its files itself."""

    def sync(self) -> None:
        """Make everything that was written in a batch survive a power cut.

        All directories are tried; then the first HostError is raised.
        """
        failed: list[HostError] = []
        while self._unsynced:
            path = self._unsynced.pop()
            try:
                with explaining("sync", path), suppress(FileNotFoundError), self._opened(path) as opened:
                    os.fsync(opened)
            except HostError as refused:
                failed.append(refused)
        if failed:
            raise failed[0]

    def _opened(
        self, path: PurePosixPath, *, make: int | None = None, above: int = OUTER_MODE, durable: bool = False
    ) -> AbstractContextManager[int]:
        return open_directory(path, make=make, above=above, durable=durable, theirs=self._theirs)

    def _free_name(self, parent: int, name: str) -> str:
        """Return a temporary name that is not in use."""
        writer = _own(os.getpid())
        while True:
            temporary = f".{name}.kubewright-{writer}-{next(self._numbers)}"
            try:
                os.lstat(temporary, dir_fd=parent)
            except FileNotFoundError:
                return temporary

    def _clean(self, parent: int, path: PurePosixPath) -> None:
        """Remove temporary files whose writer is dead, once per directory."""
        if path in self._cleaned:
            return
        self._cleaned.add(path)
        for name in names(parent):
            found = LEFTOVER.fullmatch(name)
            if found and found["writer"] != _writer(int(found["pid"])):
                _unlink(name, parent)

    def _settle(self, parent: int, path: PurePosixPath, *, durable: bool) -> None:
        if durable and self._batch:
            self._unsynced.add(path)
        elif durable:
            os.fsync(parent)


def _write_new(parent: int, name: str, desired: File, *, durable: bool) -> None:
    """Write the desired file under another name. Raises FileExistsError rather than write into an existing file."""
    opened = os.open(name, _NEW, 0o600 & desired.mode, dir_fd=parent)
    try:
        owner, group = _owner_of_new(parent, desired)
        if (owner, group) != (-1, -1):
            os.fchown(opened, owner, group)
        os.fchmod(opened, desired.mode)
        _keep_label(desired.path, opened)
        _write_all(opened, desired.content)
        if durable:
            os.fsync(opened)
    finally:
        os.close(opened)


def _owning(desired: Ownership) -> Work:
    def own(parent: int, name: str) -> None:
        os.chown(name, desired.owner, desired.group, dir_fd=parent, follow_symlinks=False)

    return Work(doing="change the owner of", leaf=own, directory=own, one_mount=False)


def _without_waiting(path: str, flags: int) -> int:
    """Open a file as `open` does, but without waiting for the other side of a named pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def _read_all(opened: int, path: PurePosixPath) -> bytes:
    content = bytearray()
    while block := os.read(opened, _BLOCK):
        content += block
        if len(content) > READ_LIMIT:
            raise HostError(f"{path} is larger than {READ_LIMIT} bytes", remedy="it is not the expected file: inspect it")
    return bytes(content)


def _write_all(opened: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(opened, rest) :]


def _unlink(name: str, parent: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)


@lru_cache(maxsize=1)
def _own(pid: int) -> str:
    """Return an identifier of this process; a fork has another one."""
    return _writer(pid)


def _writer(pid: int) -> str:
    """Return an identifier of a process that no other process with the same pid ever has; '' if it is not running."""
    found = Identity.of(pid)
    return "" if found is None else f"{found.pid}-{found.start_time}-{found.boot_id[:_BOOT_DIGITS]}"


def _owner_of_new(parent: int, desired: File) -> tuple[int, int]:
    """Return the user and group that must own the new file, -1 for ours."""
    if desired.owner is not None or desired.group is not None or os.geteuid() != 0:
        return _id(desired.owner), _id(desired.group)
    around = os.fstat(parent)
    with suppress(FileNotFoundError):
        found = os.stat(desired.path.name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISREG(found.st_mode) and keeps_owner(user=around.st_uid, mode=around.st_mode):
            return found.st_uid, found.st_gid
    return -1, -1


def _target(path: PurePosixPath) -> str:
    with suppress(OSError):  # another user's process in /proc, or already gone
        return os.readlink(path)  # noqa: PTH115 - a text, not a path: it is taken to pieces
    return ""


def _keep_label(path: PurePosixPath, opened: int) -> None:
    """Copy the SELinux label of the replaced file to a new one: `useradd` and others expect that of /etc/passwd."""
    with suppress(OSError):  # no old file, or a file system without labels
        os.setxattr(opened, _LABEL, os.getxattr(path, _LABEL, follow_symlinks=False))


def _id(number: int | None) -> int:
    return -1 if number is None else number
