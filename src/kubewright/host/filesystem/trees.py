"""Walking and removing trees of files that others fill, of any depth, within one mount.

No recursion, few descriptors, no link followed.

A pod can nest directories until their path exceeds the system's limit (PATH_MAX), and move them during the walk.
Therefore each step uses one name, relative to an open directory; `..` is trusted only if it is the directory that we
came from.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.errors import HostError
from kubewright.base.records import dataclass, field, replace
from kubewright.host.failures import explained, explaining
from kubewright.host.filesystem.mounts import mount_of, mounted_at, unknown_mounts

_CHILD: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_HELD: Final = 8
"""Levels whose directories stay open: those above are reached by `..` again."""
_SHOWN: Final = 1024
"""Characters of a path above which its middle is left out."""

Failed = Callable[[HostError], None]
"""Receives the error of an entry; raises to end the walk."""
Act = Callable[[int, str], None]
"""Acts on a name in an open directory; raises OSError."""

NAMED_REFUSALS: Final = 8
"""How many entries that could not be removed are named."""


def fail(error: HostError) -> None:
    """End a walk at the first error."""
    raise error


def names(opened: int) -> list[str]:
    """Return the names in an open directory, sorted."""
    with os.scandir(opened) as entries:
        return sorted(entry.name for entry in entries)


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work on a tree: `leaf` for non-directories, `directory` for a directory after everything in it.

    `doing` is a verb such as `remove`. With `one_mount`, a mounted file system is refused. Without /proc, mounts are
    unknown: then every non-empty directory is refused, unless the tree is `ours`, created by us where no one else may
    write.
    """

    doing: str
    leaf: Act
    directory: Act
    one_mount: bool
    ours: bool = False


def visit(parent: int, name: str, path: PurePosixPath, *, work: Work, failed: Failed) -> bool:
    """Do the work on an entry of an open directory and on all below it, the deepest first.

    Return whether everything was done. `path` is the entry's, for errors. An entry that is already gone counts as done.
    """
    return _Walk(parent, path, work=work, failed=failed).run(name)


@dataclass(kw_only=True)
class _Level:
    """A directory on the way.

    `opened` is -1 if it was closed, `mount` None if it has not been read, `whole` False after a failure.
    """

    name: str
    opened: int
    identity: tuple[int, int]
    waiting: list[str]
    mount: str | None = None
    whole: bool = True

    def close(self) -> None:
        opened, self.opened = self.opened, -1  # invalidate it first: Ctrl-C during the call must not cause a second close
        if opened >= 0:
            os.close(opened)


class _Walk:
    """One walk: the levels from the directory that contains the entry to the current one."""

    def __init__(self, parent: int, path: PurePosixPath, *, work: Work, failed: Failed) -> None:
        self._path = path
        self._work = work
        self._failed = failed
        self._levels = [_Level(name="", opened=parent, identity=_identity(parent), waiting=[])]

    def run(self, name: str) -> bool:
        bottom = self._levels[0]
        bottom.waiting.append(name)
        try:
            while bottom.waiting or len(self._levels) > 1:
                level = self._levels[-1]
                if level.waiting:
                    self._remove_entry(level, level.waiting.pop())
                else:
                    self._leave()
        finally:
            for level in self._levels[1:]:
                level.close()
        return bottom.whole

    def _remove_entry(self, level: _Level, name: str) -> None:
        try:
            found = os.stat(name, dir_fd=level.opened, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                self._enter(level, name)
            else:
                self._work.leaf(level.opened, name)
        except FileNotFoundError:
            return
        except OSError as error:
            busy = error.errno == errno.EBUSY and self._work.one_mount and _is_mounted(level.opened, name)
            refusal = mounted_at(self._shown(name)) if busy else explained(error, self._work.doing, self._shown(name))
            self._refused(level, refusal, cause=error)
        except HostError as error:
            self._refused(level, error)

    def _enter(self, above: _Level, name: str) -> None:
        opened = os.open(name, _CHILD, dir_fd=above.opened)
        level = _Level(name=name, opened=opened, identity=_identity(opened), waiting=[])
        try:
            level.waiting = names(opened)[::-1]
            if self._work.one_mount:
                self._require_same_mount(above, level)
        except BaseException:
            level.close()
            raise
        self._levels.append(level)
        for far in self._levels[1:-_HELD][-1:]:  # never the descriptor that the caller passed
            far.close()

    def _leave(self) -> None:
        """Return to the parent directory, and do the work on the directory that we leave."""
        level, above = self._levels[-1], self._levels[-2]
        try:
            if above.opened < 0:
                self._reopen(above, level)
        except (OSError, HostError) as error:
            refusal = error if isinstance(error, HostError) else explained(error, self._work.doing, self._shown())
            self._give_up()
            self._refused(self._levels[-1], refusal, cause=error)
            return
        del self._levels[-1]
        level.close()
        if not level.whole:
            above.whole = False
            return
        try:
            self._work.directory(above.opened, level.name)
        except FileNotFoundError:
            return
        except OSError as error:
            self._refused(above, explained(error, self._work.doing, self._shown(level.name)), cause=error)

    def _reopen(self, above: _Level, level: _Level) -> None:
        opened = os.open("..", _CHILD, dir_fd=level.opened)
        if _identity(opened) != above.identity:
            os.close(opened)
            raise HostError(
                f"{self._shown()} was moved by another process during the removal",
                detail="the remaining files are left unchanged",
                remedy="stop the processes that use it, then run the same command again",
            )
        above.opened = opened

    def _give_up(self) -> None:
        """Forget the levels that can no longer be reached."""
        self._levels.pop().close()
        while self._levels[-1].opened < 0:
            self._levels.pop()

    def _require_same_mount(self, above: _Level, level: _Level) -> None:
        above.mount = mount_of(above.opened) if above.mount is None else above.mount
        level.mount = mount_of(level.opened)
        if not level.mount and level.waiting and not self._work.ours:
            raise unknown_mounts(f"{self._shown(level.name)} is left as it is")
        if level.mount != above.mount or level.identity[0] != above.identity[0]:
            raise mounted_at(self._shown(level.name))

    def _refused(self, level: _Level, error: HostError, *, cause: BaseException | None = None) -> None:
        level.whole = False
        if cause is not None and cause is not error:
            error.__cause__ = cause
        self._failed(error)

    def _shown(self, *more: str) -> PurePosixPath:
        """Return the path of an entry below the current level, or of that level; long paths are shortened."""
        parts = [*(level.name for level in self._levels[1:]), *more][1:]
        if sum(map(len, parts)) + len(parts) > _SHOWN:
            few = 3
            parts = [*parts[:few], f"({len(parts) - 2 * few} more)", *parts[-few:]]
        return self._path.joinpath(*parts)


def _identity(opened: int) -> tuple[int, int]:
    found = os.fstat(opened)
    return found.st_dev, found.st_ino


def _is_mounted(parent: int, name: str) -> bool:
    """Return whether something is mounted over a file, as a bind mount is."""
    opened = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        return mount_of(opened) != mount_of(parent)
    finally:
        os.close(opened)


def _unlink(parent: int, name: str) -> None:
    os.unlink(name, dir_fd=parent)


def _rmdir(parent: int, name: str) -> None:
    os.rmdir(name, dir_fd=parent)


_REMOVE: Final = Work(doing="remove", leaf=_unlink, directory=_rmdir, one_mount=True)
_REMOVE_OURS: Final = replace(_REMOVE, ours=True)


def remove_entry(parent: int, name: str, path: PurePosixPath, *, failed: Failed) -> bool:
    """Remove an entry of an open directory with everything below it; return whether it is gone.

    A missing one counts as gone. File systems mounted in it are reported as failed, and nothing in them is removed.
    """
    return visit(parent, name, path, work=_REMOVE, failed=failed)


def remove_tree(path: PurePosixPath) -> None:
    """Remove a file, link or tree that we created where no one else may write: neither its path nor its contents need checks.

    `Files.remove` is for directories that others use. Raises HostError at the first entry that cannot be removed. A
    missing path is not an error.
    """
    with explaining("remove", path), suppress(FileNotFoundError):
        parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            visit(parent, path.name, path, work=_REMOVE_OURS, failed=fail)
        finally:
            os.close(parent)


@dataclass(kw_only=True)
class Refusals:
    """The entries that could not be removed: the first few, and their number.

    A disk that turned read-only may refuse millions.
    """

    first: list[HostError] = field(default_factory=list)
    count: int = 0

    def note(self, error: HostError) -> None:
        """Add an error."""
        self.count += 1
        if len(self.first) < NAMED_REFUSALS:
            self.first.append(error)

    def require_none(self, path: PurePosixPath) -> None:
        """Raise HostError that names what is left in a directory, if anything is."""
        if self.count:
            more = [f"and {self.count - len(self.first)} more"] if self.count > len(self.first) else []
            remedies = dict.fromkeys(error.remedy for error in self.first if error.remedy)
            detail = "\n".join([*map(str, self.first), *more])
            raise HostError(f"{path} is not empty", detail=detail, remedy=next(iter(remedies), ""))
