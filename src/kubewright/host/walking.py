"""Reaching the directory of a file step by step, so that nobody else can lead us somewhere else on the way.

Every directory on the way belongs to somebody we trust: root, ourselves, or whoever owns `/` (root as a user namespace shows it).
A symbolic link on the way is followed only if it belongs to one of them; `/var/run` and a PKI that an administrator moved are such links.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final

from kubewright.base.errors import HostError

_STEP: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLLOW: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_LAST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
OUTER_MODE: Final = 0o755
"""Mode of directories that are made above the one that was asked for."""


def checked(path: PurePosixPath) -> PurePosixPath:
    """Return the path. Raises HostError unless it is absolute, names something, and has no `..`."""
    if not path.is_absolute() or ".." in path.parts or path.name == "":
        raise HostError(
            f"{str(path)!r} is not a path to write to", detail="it has to be absolute and free of `..`", remedy="give a full path"
        )
    return path


@contextmanager
def directory(path: PurePosixPath, *, make: int | None = None, durable: bool = False) -> Iterator[int]:
    """Open a directory for the block; the value can be listed, synced and given as `dir_fd`.

    With `make`, missing directories are made: the last one with that mode, those above with OUTER_MODE.
    Raises OSError as the system does, and HostError if somebody else owns a part of the way.
    """
    trusted = frozenset({0, os.geteuid(), Path("/").stat().st_uid})
    here = os.open("/", _FOLLOW)
    try:
        for depth, name in enumerate(path.parts[1:], start=2):
            mode = None if make is None else make if depth == len(path.parts) else OUTER_MODE
            above, here = here, _step(here, name, PurePosixPath(*path.parts[:depth]), trusted=trusted, make=mode, durable=durable)
            os.close(above)  # nobody's any more: Ctrl-C during this call must not have it closed twice
        opened = os.open(".", _LAST, dir_fd=here)
    finally:
        os.close(here)
    try:
        yield opened
    finally:
        os.close(opened)


def _step(here: int, name: str, path: PurePosixPath, *, trusted: frozenset[int], make: int | None, durable: bool) -> int:
    """Open the next directory."""
    try:
        below = _open(here, name, path, trusted)
    except FileNotFoundError:
        if make is None:
            raise
        _make(here, name, make, durable=durable)
        below = _open(here, name, path, trusted)
    owner = os.fstat(below).st_uid
    if owner not in trusted:
        os.close(below)
        raise _foreign(path, "directory", owner)
    return below


def _open(here: int, name: str, path: PurePosixPath, trusted: frozenset[int]) -> int:
    try:
        return os.open(name, _STEP, dir_fd=here)
    except NotADirectoryError:
        found = os.stat(name, dir_fd=here, follow_symlinks=False)
        if not stat.S_ISLNK(found.st_mode):
            raise
        if found.st_uid not in trusted:
            raise _foreign(path, "symbolic link", found.st_uid) from None
        return os.open(name, _FOLLOW, dir_fd=here)


def _make(here: int, name: str, mode: int, *, durable: bool) -> None:
    """Make a directory with exactly this mode, whatever the umask. Another thread or process may make it first."""
    try:
        os.mkdir(name, mode, dir_fd=here)  # killed before the next call, it is what was wanted, but for the umask
    except FileExistsError:
        return
    os.chmod(name, mode, dir_fd=here)
    if durable:
        sync(here)


def sync(here: int) -> None:
    """Make what was renamed, made or removed in an open directory survive a power cut."""
    opened = os.open(".", _LAST, dir_fd=here)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _foreign(path: PurePosixPath, kind: str, owner: int) -> HostError:
    return HostError(
        f"{path} is a {kind} that belongs to user {owner}",
        detail=f"user {owner} could put something else in the place of what user {os.geteuid()} writes below it",
        remedy=f"choose another directory, or take it over with `chown -h {os.geteuid()} {path}`",
    )
