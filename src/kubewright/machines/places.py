"""The directories of machines: parts that are built once are in the cache, everything else belongs to one machine.

- `cache/base-<key>`: the Debian tree, never written to after it was made; `kit-<key>`: what every machine has in addition to it (programs,
  units, configuration); `store-<key>`: the container runtime's directory with all images unpacked.
- Each machine has a directory: upper and work of the overlay, root (its mount point), containerd.
- `/run/kubewright-machines`: the host's settings before the first machine, and locks between processes; for the whole host, as cgroups
  and networks are.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from kubewright.base.errors import HostError
from kubewright.base.homes import expanded
from kubewright.base.records import dataclass
from kubewright.host.filesystem.paths import weakness

RUN = Path("/run/kubewright-machines")
"""On a file system that is cleared at boot, as the settings are."""


def cache() -> Path:
    """Return the directory of files that are made once. Raises HostError as root if other users could change them."""
    base = os.environ.get("XDG_CACHE_HOME") or expanded("~/.cache")
    return _trusted(Path(base) / "kubewright" / "testbed")


@contextmanager
def making(place: Path) -> Iterator[Path]:
    """Yield a path at which to make a file or directory. It is moved to `place` at the end of the block, unless that fails."""
    partial = place.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    yield partial
    partial.rename(place)


def disks() -> Path:
    """Return the directory of the groups of root's machines. On the file system of the cache, stores are shared by hard links.

    Raises HostError as root if other users could change it.
    """
    base = os.environ.get("XDG_STATE_HOME") or Path("~root").expanduser() / ".local" / "state"
    return _trusted(Path(base) / "kubewright" / "machines")


def _trusted(path: Path) -> Path:
    """Return a path. `sudo -E` may make it one of the caller's, who would then decide which programs root runs in machines."""
    if os.geteuid() == 0 and (fault := weakness(PurePosixPath(path))):
        raise HostError(
            f"{path} is not used: {fault}",
            detail="anyone with write access there decides what runs as root",
            remedy="run `sudo` without -E, or set XDG_CACHE_HOME and XDG_STATE_HOME to directories that only root can write to",
        )
    return path


@dataclass(frozen=True)
class MachinePlaces:
    """The directories of one machine."""

    root_directory: Path

    @property
    def upper(self) -> Path:
        """The files that the machine wrote: its disk."""
        return self.root_directory / "upper"

    @property
    def work(self) -> Path:
        """The working directory that the overlay needs next to `upper`."""
        return self.root_directory / "work"

    @property
    def root(self) -> Path:
        """The mount point of its file system."""
        return self.root_directory / "root"

    @property
    def containerd(self) -> Path:
        """The container runtime's directory: must not be on an overlay."""
        return self.root_directory / "containerd"

    @property
    def console(self) -> Path:
        """The console output of systemd and the units."""
        return self.root_directory / "console.log"


@contextmanager
def usual_modes() -> Iterator[None]:
    """Make files that are created in the block readable by everyone, regardless of the umask: not every process in a machine is root's.

    Applies to the whole process. Private files and directories have modes of their own.
    """
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock on a file that exists only while it is locked, waiting for it if necessary."""
    while True:
        # another process may remove the directory at any moment
        with suppress(FileExistsError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_at(descriptor, path):
                break
            os.close(descriptor)
    try:
        yield
    finally:
        path.unlink()
        os.close(descriptor)
        with suppress(OSError):  # others have files there
            path.parent.rmdir()


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is still the one at the path: its previous holder removes it."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False
