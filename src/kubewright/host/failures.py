"""Errors of the operating system, as errors that name the object and the remedy."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath

from kubewright.base.errors import DiskFull, HostError, KubewrightError

BUG = "this is a bug in kubewright; please report it with the output of the same command with -v 5"
"""The remedy for an exception that should have been a KubewrightError."""


def expected(error: Exception) -> KubewrightError:
    """Return a KubewrightError for any exception raised by one of several actions that are all attempted."""
    if isinstance(error, KubewrightError):
        return error
    bug = HostError(f"internal error: {type(error).__name__}: {error}", remedy=BUG)
    bug.__cause__ = error
    return bug


def explained(error: OSError, doing: str, path: PurePath) -> HostError:
    """Return the error for a refused file operation. `doing` is a verb such as `write` or `remove`."""
    code = error.errno
    if code in {errno.ENOSPC, errno.EDQUOT}:
        why = "the disk is full" if code == errno.ENOSPC else "your disk quota is used up"
        return DiskFull(
            f"cannot {doing} {path}: {why}", remedy=f"free some space (`df -h {path.parent}` shows it), then run the same command again"
        )
    if code == errno.EROFS:
        return HostError(
            f"cannot {doing} {path}: the file system is read-only",
            remedy=f"remount it writable (`findmnt --target {path.parent}` shows it), or choose another directory",
        )
    if code in {errno.EACCES, errno.EPERM}:
        return HostError(
            f"cannot {doing} {path}: not allowed as user {os.geteuid()}",
            detail=error.strerror or "",
            remedy=f"run the command as root or as the owner (`namei -l {path}` shows the modes), or choose a directory of your own",
        )
    return HostError(f"cannot {doing} {path}", detail=error.strerror or str(error), remedy=_remedy(code, path))


def _remedy(code: int | None, path: PurePath) -> str:
    if code == errno.ENOTDIR:
        return f"a component of {path} is not a directory: `namei -l {path}` shows it"
    if code == errno.ENOTEMPTY:
        return "a process still writes there: stop it, then run the same command again"
    return f"inspect it with `namei -l {path}`, then run the same command again"


@contextmanager
def explaining(doing: str, path: PurePath) -> Iterator[None]:
    """Turn an OSError of the block into a HostError about `path`."""
    try:
        yield
    except OSError as error:
        raise explained(error, doing, path) from error
