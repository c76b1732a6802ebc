"""Where the testbed stores things: what is kept in the cache, and what belongs to one bed.

- `cache/base-<key>`: the Debian tree, never written to after it was made; `kit-<key>`: what every machine has in addition to it (programs,
  units, configuration); `store-<key>`: the container runtime's directory with all images unpacked.
- `state/<bed>/<machine>`: upper and work of the overlay, root (its mount point), containerd.
- `/run/kubewright-testbed/<bed>.lock`: locked while a bed is up; for the whole host, as cgroups and networks are.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


def cache() -> Path:
    """Return the directory of what is made once."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kubewright" / "testbed"


def beds() -> Path:
    """Return the directory of all beds that are up, or were when they were killed."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "kubewright" / "testbed"


def locks() -> Path:
    """Return the directory of the locks between processes of this host."""
    return Path("/run/kubewright-testbed")


@dataclass(frozen=True)
class MachinePlaces:
    """The directories of one machine."""

    root_directory: Path

    @property
    def upper(self) -> Path:
        """What the machine wrote: its disk."""
        return self.root_directory / "upper"

    @property
    def work(self) -> Path:
        return self.root_directory / "work"

    @property
    def root(self) -> Path:
        """The mount point of its file system."""
        return self.root_directory / "root"

    @property
    def containerd(self) -> Path:
        """The container runtime's directory: must not lie on an overlay."""
        return self.root_directory / "containerd"

    @property
    def console(self) -> Path:
        """What systemd and the units wrote to the console."""
        return self.root_directory / "console.log"
