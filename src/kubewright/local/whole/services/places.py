"""The files of the daemon of a cluster of machines: a directory of root, named after the cluster's group, that is lost at a reboot.

The daemon runs as root and reads nothing that the cluster's owner could change, so that it cannot be made to act for
another user; only the commands that it starts do (`commands`), as with sudo. The owner may reach its sockets.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kubewright.local.paths import ClusterPaths
from kubewright.local.whole import members

RUN: Final = Path("/run/kubewright-clusters")
MODE: Final = 0o711
MODULE: Final = "kubewright.local.whole.services.daemon"
"""The daemon; its arguments are its own directory, the cluster's, and the user id of the owner."""


def runtime(paths: ClusterPaths) -> ClusterPaths:
    """Return the paths of the daemon's own files: socket, identity and log."""
    return ClusterPaths(RUN / members.group_name(paths))
