"""Removing the machines of a cluster, with all their files, networks and cgroups on the host."""

from __future__ import annotations

import os
from contextlib import suppress

from kubewright.base.errors import HostError
from kubewright.base.messages import quoted
from kubewright.local import record
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord
from kubewright.local.whole import members
from kubewright.local.whole.services import client
from kubewright.machines import cgroups, group
from kubewright.machines.places import disks


def exist(paths: ClusterPaths) -> bool:
    """Return whether a cluster has machines, according to its record or, if that is lost, to the host."""
    found = _recorded(paths)
    if found is not None:
        return found.is_whole
    return bool(cgroups.named(members.group_name(paths))) or (os.geteuid() == 0 and members.directory(paths).exists())


def _recorded(paths: ClusterPaths) -> ClusterRecord | None:
    """Return the record of a cluster, None if it cannot be read."""
    try:
        return record.load(paths.record)
    except HostError:
        return None


def require_root(paths: ClusterPaths) -> None:
    """Raise HostError, with the same command as root as its remedy, unless the user is root."""
    if os.geteuid() != 0:
        raise HostError(
            f"cluster {quoted(paths.name)} consists of machines, which only root can remove",
            remedy=f"run `sudo kubewright down --name {paths.name}`",
        )


def require_disks(paths: ClusterPaths) -> None:
    """Raise HostError if the disks of a cluster would not be found. Without its record, nobody knows where they are."""
    found = _recorded(paths)
    if found is not None:
        members.require_disks(found)


def sweep(paths: ClusterPaths, *, keep_data: bool = False) -> None:
    """Stop the daemon and all machines of a cluster, and remove them; their disks stay with `keep_data`.

    Changes nothing if there are none.
    """
    client.stop(paths)
    group.sweep(members.group_name(paths), members.directory(paths), keep=keep_data)
    with suppress(OSError):  # root has other machines or clusters there, or none
        disks().parent.rmdir()
