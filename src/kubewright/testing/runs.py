"""A test run: the name and directory of its cluster, and the process that the cluster must not outlive.

The process that controls the run creates it; the workers of pytest-xdist receive it, so that all of them use the same
cluster.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from kubewright.base.errors import HostError
from kubewright.base.randomness import SystemRandom
from kubewright.base.records import asdict, dataclass
from kubewright.host.processes import Identity, RealProcesses
from kubewright.local.paths import ClusterPaths, cluster_paths, state_directory
from kubewright.tokens.strings import draw

_NAME: Final = re.compile(r"pytest-([0-9]+)-[a-z0-9]{5}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A test run. `owner` is the identity of the controlling process, '' if the cluster may outlive it."""

    name: str
    state_dir: str
    owner: str

    @classmethod
    def begin(cls, *, state_dir: str, keep: bool) -> Run:
        """Create the run that this process controls. Names of runs are unique, also across machines."""
        mine = os.getpid()
        name = f"pytest-{mine}-{draw(SystemRandom(), 5)}"
        return cls(name=name, state_dir=str(state_directory(state_dir)), owner="" if keep else str(Identity.of(mine)))

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Run:
        """Parse the result of `as_map`."""
        return cls(name=given["name"], state_dir=given["state_dir"], owner=given["owner"])

    def as_map(self) -> dict[str, str]:
        """Return it as plain values, for a worker."""
        return asdict(self)

    @property
    def paths(self) -> ClusterPaths:
        """The paths of its cluster."""
        return cluster_paths(self.name, state_dir=self.state_dir)

    @property
    def is_here(self) -> bool:
        """Whether the controlling process is on this machine: a worker of pytest-xdist may be elsewhere."""
        return not self.owner or RealProcesses().alive(Identity.parse(self.owner))


def abandoned(state_dir: str) -> Iterator[ClusterPaths]:
    """Find the clusters of runs that were killed together with their daemon, or before they had one, except those that were kept.

    A daemon that answers monitors its owner itself: the owner may be in another container, where our view of processes
    is meaningless.
    """
    from kubewright.local.cluster.daemon_client import ControlClient
    from kubewright.local.whole.services import client as machines

    for root in sorted(Path(state_dir).glob("pytest-*")):
        name, where = _NAME.fullmatch(root.name), ClusterPaths(root)
        if name is not None and _has_ended(where, int(name[1])) and not ControlClient(where).answers() and not machines.status(where):
            yield where


def _has_ended(where: ClusterPaths, pid: int) -> bool:
    """Return whether the run of a cluster has ended.

    If it was killed before it recorded its identity, its process id must be sufficient.
    """
    from kubewright.local.daemon_process import read_settings

    try:
        owner = read_settings(where).owner
    except HostError:
        return Identity.of(pid) is None
    return bool(owner) and not RealProcesses().alive(Identity.parse(owner))
