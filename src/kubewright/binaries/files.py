"""Writes files of the cache, one run at a time: partial files never have their final name, even after a kill or a power cut."""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Final

from kubewright.base.clock import Clock
from kubewright.base.errors import DiskFull, HostError
from kubewright.base.events import Reporter
from kubewright.base.wait import PollingWaiter
from kubewright.binaries.settings import CACHE_VARIABLE
from kubewright.host.filesystem import paths
from kubewright.host.filesystem.trees import remove_tree
from kubewright.host.locks import Lock

CHUNK: Final = 1 << 20
WORK_PREFIX: Final = "work-"
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

LOCK_NAME: Final = "lock"
LOCK_PATIENCE: Final = 7200.0
"""Seconds to wait for another run: more than any build takes."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert errors of the operating system while writing below `path` into DiskFull or HostError."""
    try:
        yield
    except OSError as error:
        raise host_error(error, path) from error


def host_error(error: OSError, path: Path) -> HostError:
    """Return our error for a failed write below `path`."""
    if error.errno in _FULL:
        return DiskFull(
            f"there is not enough space for {path}", detail=str(error), remedy=f"free some space, or set {CACHE_VARIABLE} to another disk"
        )
    return HostError(
        f"{path} cannot be written: {error.strerror or error}",
        remedy=f"set {CACHE_VARIABLE} to a directory that you may write to",
    )


def make_directory(path: Path) -> None:
    """Create a directory and its missing parents; only their owner may change them, regardless of the umask."""
    with writing(path):
        for directory in [*reversed(path.parents), path]:
            if not directory.exists():
                directory.mkdir(mode=0o755, exist_ok=True)


def weakness(path: Path) -> str:
    """Return what lets others change the object at a path; '' if nothing does.

    A path that cannot be checked counts as changeable.
    """
    try:
        return paths.weakness(PurePosixPath(path.absolute()))
    except OSError as error:
        return f"{path} cannot be inspected: {error.strerror}"


def require_own(directory: Path) -> None:
    """Require a directory of the cache into which no one else can put programs. Raises HostError."""
    if fault := weakness(directory):
        raise HostError(
            f"the cache at {directory} is not used: {fault}",
            detail="anyone with write access there decides which programs are run",
            remedy=f"remove write access for others, or set {CACHE_VARIABLE} to another directory",
        )


def write(path: Path, content: bytes) -> None:
    """Replace a small file atomically: temporary file, fsync, rename, fsync of the directory."""
    with writing(path):
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        sync_directory(path.parent)


def move_into_place(source: Path, target: Path) -> None:
    """Move a finished program to its final name on the same file system: mode 0755, fsync, rename, fsync of the directory."""
    with writing(target):
        descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fchmod(descriptor, 0o755)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        source.replace(target)
        sync_directory(target.parent)


def sync_directory(path: Path) -> None:
    """Make a rename in a directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def work_directory(root: Path) -> Iterator[Path]:
    """Create a directory for unfinished files below the cache's root, and remove it at the end.

    The caller holds the lock of the cache.
    """
    with writing(root):
        path = Path(tempfile.mkdtemp(dir=root, prefix=WORK_PREFIX))
    try:
        yield path
    finally:
        _remove(path)


def remove_stale(root: Path) -> list[Path]:
    """Remove the work directories of runs that were killed, and return them.

    The caller holds the lock, so none is in use.
    """
    stale = sorted(root.glob(f"{WORK_PREFIX}*"))
    for path in stale:
        _remove(path)
    return stale


def _remove(path: Path) -> None:
    with suppress(HostError):  # leftovers do no harm, and the next run tries again
        remove_tree(PurePosixPath(path))


@contextmanager
def cache_lock(root: Path, *, task: str, wait: bool, clock: Clock, reporter: Reporter) -> Iterator[None]:
    """Hold the lock of the cache at `root`; `task` is shown to processes that wait for it ("fetching kube-apiserver").

    With `wait`, waits for another holder and reports it; otherwise raises Locked, naming the holder. Raises HostError
    if the lock cannot be created.
    """
    make_directory(root)
    require_own(root)
    lock = Lock(PurePosixPath(root / LOCK_NAME), doing=task, clock=clock)
    try:
        _acquire(lock, wait=wait, clock=clock, reporter=reporter)
    except DiskFull:
        raise
    except HostError as error:
        raise HostError(error.what, detail=error.detail, remedy=f"set {CACHE_VARIABLE} to a directory that you may write to") from error
    try:
        yield
    finally:
        lock.release()


def _acquire(lock: Lock, *, wait: bool, clock: Clock, reporter: Reporter) -> None:
    if not wait:
        lock.acquire()
    elif lock.try_acquire() is not None:
        waiter = PollingWaiter(clock=clock, reporter=reporter)
        waiter.until(
            lock.try_acquire, within=LOCK_PATIENCE, saying="another kubewright to finish with the binaries", remedy="stop it if it hangs"
        )
