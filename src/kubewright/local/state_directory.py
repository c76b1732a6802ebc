"""The directory of a cluster while it is being changed: private, and locked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from kubewright.base.errors import HostError
from kubewright.host.desired import Directory
from kubewright.host.filesystem.files import Files
from kubewright.host.locks import Lock
from kubewright.local.paths import ClusterPaths

PRIVATE = 0o700


@contextmanager
def changing(paths: ClusterPaths, *, doing: str) -> Iterator[None]:
    """Hold the lock of a cluster's directory, which is created if necessary, and removed again if it contains no cluster then.

    Raises HostError as `require_private` does, and Locked while another process holds the lock.
    """
    Files().make(Directory(path=PurePosixPath(paths.root), mode=PRIVATE))
    require_private(paths.root)
    lock = Lock(PurePosixPath(paths.lock), doing=doing)
    lock.acquire()
    try:
        yield
    finally:
        made = paths.record.exists()
        lock.release(remove=not made)
        if not made:
            with suppress(OSError):  # the directory is not empty
                paths.root.rmdir()


def require_private(root: Path) -> None:
    """Require that other users cannot enter a cluster's directory, before keys are written to it. Raises HostError."""
    mode = root.lstat().st_mode & 0o777
    if mode & 0o077:
        raise HostError(
            f"{root} is open to other users",
            detail=f"its mode is {mode:04o}; the keys of the cluster are there",
            remedy=f"check its contents, then run `chmod 0700 {root}`",
        )
