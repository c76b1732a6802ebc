"""Directories and files of the host that the machines of a cluster see, as users write them: `PATH:PATH[:ro]`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from kubewright.base.errors import UsageError
from kubewright.base.homes import expanded
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass

_REMEDY: Final = "write PATH:PATH or PATH:PATH:ro, for example $PWD/data:/data:ro"
_MACHINES_OWN: Final = tuple(map(PurePosixPath, ("/bin", "/dev", "/etc", "/lib", "/proc", "/run", "/sbin", "/sys", "/usr", "/var/lib")))
"""Directories that machines need; directories below them can be mounts, except those of the kernel's file systems."""
_KERNELS: Final = tuple(map(PurePosixPath, ("/dev", "/proc", "/run", "/sys", "/tmp", "/var/run")))  # noqa: S108 - a machine's own, a tmpfs


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A directory or file of the host, and the path at which machines see it."""

    source: Path
    target: PurePosixPath
    read_only: bool = False

    def __str__(self) -> str:
        return f"{self.source}:{self.target}" + (":ro" if self.read_only else "")


def parse(text: str) -> Mount:
    """Parse what a user writes; a relative path of the host begins in the current directory. Raises UsageError."""
    parts = text.split(":")
    if not 2 <= len(parts) <= 3 or not all(parts) or not text.isprintable() or parts[2:] not in ([], ["ro"], ["rw"]):
        raise UsageError(f"{quoted(text)} is not a mount", remedy=_REMEDY)
    target = PurePosixPath(re.sub("^/+", "/", parts[1]))  # two slashes at the start would stay (pathlib)
    if not target.is_absolute() or ".." in target.parts:
        raise UsageError(f"{quoted(text)}: a path in machines must be absolute, unlike {quoted(parts[1])}", remedy=_REMEDY)
    if any(own.is_relative_to(target) for own in _MACHINES_OWN) or any(target.is_relative_to(kernels) for kernels in _KERNELS):
        raise UsageError(f"{quoted(text)} would hide {target}, which machines need", remedy="choose another path, for example /mnt/data")
    source = Path(os.path.normpath(expanded(parts[0]).absolute()))
    if ":" in str(source) or not str(source).isprintable():  # the current directory may be such a path
        raise UsageError(f"{quoted(text)}: machines cannot see {quoted(str(source))}", remedy="use a path without a colon")
    return Mount(source=source, target=target, read_only=parts[2:] == ["ro"])


def parse_all(texts: Iterable[str]) -> tuple[Mount, ...]:
    """Parse several. Raises UsageError, also for two at the same path."""
    found: dict[PurePosixPath, Mount] = {}
    for mount in map(parse, texts):
        if mount.target in found:
            raise UsageError(f"two mounts have the path {mount.target} in machines", remedy="choose another path for one of them")
        found[mount.target] = mount
    return tuple(found.values())


def require_sources(mounts: Sequence[Mount]) -> None:
    """Require that the host has what is to be mounted. Raises UsageError."""
    for mount in mounts:
        if not mount.source.exists():
            raise UsageError(
                f"{mount.source}, to be mounted at {mount.target}, does not exist",
                remedy=f"create it, for example with `mkdir -p {mount.source}`",
            )
