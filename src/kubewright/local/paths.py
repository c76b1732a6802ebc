"""The files of local clusters: one directory per cluster that contains all of them, mode 0700."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Final

from kubewright.apis.machine import Layout
from kubewright.base.errors import UsageError
from kubewright.base.homes import expanded
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", re.ASCII)

CLUSTERS: Final = ("kubewright", "clusters")
"""The end of the path of the directory of all clusters."""


@dataclass(frozen=True)
class ClusterPaths:
    """The files of one cluster. Only sockets bound to its addresses are outside `root`."""

    root: Path

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.root.name

    @property
    def record(self) -> Path:
        """The description of the cluster: `ClusterRecord` as JSON."""
        return self.root / "cluster.json"

    @property
    def lock(self) -> Path:
        """Held by `up`, `down` and scaling while they change the cluster."""
        return self.root / "lock"

    @property
    def timings(self) -> Path:
        """How long the last `up` with changes took."""
        return self.root / "timings.json"

    @property
    def daemon_record(self) -> Path:
        """The identity of the daemon."""
        return self.root / "daemon.json"

    @property
    def daemon_log(self) -> Path:
        """The daemon's log."""
        return self.root / "daemon.log"

    @property
    def socket(self) -> Path:
        """The control socket."""
        return self.root / "control.sock"

    @property
    def contexts(self) -> Path:
        """The user's kubeconfigs that name the cluster."""
        return self.root / "contexts.json"

    @property
    def machines(self) -> Path:
        """One directory per machine."""
        return self.root / "machines"

    def machine(self, name: str) -> Path:
        """The state directory of a machine."""
        return self.machines / name

    def layout(self, machine: str) -> Layout:
        """kubeadm's tree below the machine's directory."""
        return Layout.below(PurePosixPath(self.machine(machine)))

    def admin_kubeconfig(self, machine: str) -> Path:
        """The administrator's kubeconfig of a control plane."""
        return Path(self.layout(machine).kubeconfig("admin"))

    def logs(self, machine: str) -> Path:
        """The log files of a machine's components."""
        return self.machine(machine) / "logs"

    @property
    def nodes(self) -> Path:
        """The data of worker nodes: their certificates."""
        return self.root / "nodes"


def state_directory(given: str = "") -> Path:
    """Return the directory of all clusters: the given one, else $XDG_STATE_HOME/kubewright/clusters.

    Raises UsageError if neither it nor a home directory is known.
    """
    if given:
        return expanded(given).absolute()
    base = os.environ.get("XDG_STATE_HOME", "")
    if not base.startswith("/"):  # a relative path is to be ignored (XDG Base Directory Specification)
        home = expanded("~")
        if not home.is_absolute():
            raise UsageError("no home directory is known", remedy="set HOME or XDG_STATE_HOME, or pass --state-dir")
        base = str(home / ".local" / "state")
    return Path(base, *CLUSTERS)


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a cluster, which is part of host names and paths."""
    return _NAME.fullmatch(text) is not None


def cluster_paths(name: str, *, state_dir: str = "") -> ClusterPaths:
    """Return the paths of a cluster. Raises UsageError for a name that cannot be part of host names and paths."""
    if not is_name(name):
        raise UsageError(f"{quoted(name)} cannot be the name of a cluster", remedy="use up to 40 lower-case letters, digits and hyphens")
    return ClusterPaths(state_directory(state_dir) / name)
