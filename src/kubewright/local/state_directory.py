"""The directory of a cluster while it is being changed: private, and locked. It is removed when it is empty, with those that we made above it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from kubewright.base.errors import HostError
from kubewright.host.desired import Directory
from kubewright.host.filesystem.files import Files
from kubewright.host.locks import Lock
from kubewright.local.paths import CLUSTERS, ClusterPaths

PRIVATE = 0o700
_TRIES = 10


@contextmanager
def changing(paths: ClusterPaths, *, doing: str) -> Iterator[None]:
    """Hold the lock of a cluster's directory, which is created if necessary, and removed again if it contains no cluster then.

    Raises HostError as `require_private` does, and Locked while another process holds the lock.
    """
    lock = _locked(paths, doing)
    try:
        yield
    finally:
        made = paths.record.exists()
        lock.release(remove=not made)
        if not made:
            remove_empty(paths.root)


def _locked(paths: ClusterPaths, doing: str) -> Lock:
    """Make the directory and take its lock. The end of another cluster may remove empty directories in the meantime."""
    left = _TRIES
    while True:
        try:
            Files().make(Directory(path=PurePosixPath(paths.root), mode=PRIVATE))
            require_private(paths.root)
            lock = Lock(PurePosixPath(paths.lock), doing=doing)
            lock.acquire()
        except (HostError, FileNotFoundError) as error:
            left -= 1
            if not left or FileNotFoundError not in {type(error), type(error.__cause__)}:
                raise
        else:
            return lock


def remove_empty(root: Path) -> None:
    """Remove a cluster's directory if it is empty, and then, in its usual place, those of all clusters and of kubewright.

    Above a directory that the user has named, nothing is removed.
    """
    usual = (root.parent, root.parent.parent) if root.parts[-3:-1] == CLUSTERS else ()
    with suppress(OSError):  # one is not empty: other clusters are there, or the next `up` has already begun
        for directory in (root, *usual):
            directory.rmdir()


def require_private(root: Path) -> None:
    """Require that other users cannot enter a cluster's directory, before keys are written to it. Raises HostError."""
    mode = root.lstat().st_mode & 0o777
    if mode & 0o077:
        raise HostError(
            f"{root} is open to other users",
            detail=f"its mode is {mode:04o}; the keys of the cluster are there",
            remedy=f"check its contents, then run `chmod 0700 {root}`",
        )
