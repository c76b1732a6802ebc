"""Making or checking the host's side of a mount before a process starts, by the volume's type (Kubernetes API, HostPathVolumeSource)."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kubewright.base.errors import HostError
from kubewright.local.supervisor.pod import Mount


def ensure_host_path(mount: Mount) -> None:
    """Make what a volume's type says to make, for us alone; else check that it is there. Raises HostError naming the path."""
    path = Path(mount.host_path)
    try:
        if mount.type == "DirectoryOrCreate":
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif mount.type == "FileOrCreate":
            os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        elif mount.type:
            _check(path, mount.type)
    except OSError as error:
        raise HostError(
            f"the hostPath {path} of {mount.path} cannot be had as {mount.type}",
            detail=error.strerror or str(error),
            remedy="make it, or correct the volume",
        ) from error


_IS: Final[dict[str, Callable[[int], bool]]] = {"Directory": stat.S_ISDIR, "File": stat.S_ISREG, "Socket": stat.S_ISSOCK}


def _check(path: Path, kind: str) -> None:
    if not _IS[kind](path.stat().st_mode):
        raise HostError(f"the hostPath {path} is not a {kind}", remedy="correct the volume")
