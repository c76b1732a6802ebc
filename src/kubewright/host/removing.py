"""Removing trees of files, within one mount and without following links."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

from kubewright.base.errors import HostError
from kubewright.host.failures import explaining

_CHILD: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Failed = Callable[[HostError], None]
"""Takes what could not be removed. To end the removal there, it raises."""


def fail(error: HostError) -> None:
    """End a removal with the first thing that cannot be removed."""
    raise error


def remove_entry(parent: int, name: str, path: PurePosixPath, *, failed: Failed) -> bool:
    """Remove an entry of an open directory with everything below it; says whether it is gone. One that is gone already is fine.

    What is mounted in it is told as failed, and nothing of that is removed.
    """
    try:
        with explaining("remove", path):
            try:
                return _remove(parent, name, path, failed=failed)
            except FileNotFoundError:
                return True
    except HostError as error:
        failed(error)
        return False


def names(opened: int) -> list[str]:
    """Return what is in an open directory, sorted."""
    with os.scandir(opened) as entries:
        return sorted(entry.name for entry in entries)


def _remove(parent: int, name: str, path: PurePosixPath, *, failed: Failed) -> bool:
    found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=parent)
        return True
    opened = os.open(name, _CHILD, dir_fd=parent)
    try:
        if found.st_dev != os.fstat(parent).st_dev or _mount(opened) != _mount(parent):
            raise HostError(f"a file system is mounted at {path}", detail="what is on it is not ours to remove", remedy=f"umount {path}")
        gone = [remove_entry(opened, child, path / child, failed=failed) for child in names(opened)]
    finally:
        os.close(opened)
    if not all(gone):
        return False
    os.rmdir(name, dir_fd=parent)
    return True


def _mount(opened: int) -> str:
    """Return the number of the mount that a directory is opened on: a bind mount has the device of what it shows. '' without /proc."""
    with suppress(OSError):
        told = Path(f"/proc/self/fdinfo/{opened}").read_text(encoding="ascii")
        return next((line for line in told.splitlines() if line.startswith("mnt_id:")), "")
    return ""
