"""Stopping and starting single machines of a cluster; `up` adds and removes them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from kubewright.base.errors import HostError, UsageError
from kubewright.base.events import Reporter
from kubewright.base.messages import quoted
from kubewright.local import mounts, record
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord
from kubewright.local.whole import members, owner
from kubewright.machines.group import claim_network
from kubewright.machines.machine import Machine
from kubewright.machines.parts import ensure_parts


def kill(paths: ClusterPaths, name: str) -> bool:
    """Stop a machine like a power failure; returns whether it ran. Its disk stays as it was at that moment."""
    with changed(paths, f"kill of machine {name}") as cluster:
        machine = members.machine_of(paths, cluster, name)
        ran = bool(machine.leader)
        machine.cut_power()
        _disconnect(paths, cluster, name)
        return ran


def stop(paths: ClusterPaths, name: str) -> bool:
    """Shut a machine down, as its power button does; returns whether it ran."""
    with changed(paths, f"stop of machine {name}") as cluster:
        machine = members.machine_of(paths, cluster, name)
        ran = bool(machine.leader)
        machine.shut_down()
        _disconnect(paths, cluster, name)
        return ran


def _disconnect(paths: ClusterPaths, cluster: ClusterRecord, name: str) -> None:
    """Remove the network of a machine that does not run: the kernel would go on to forward packets by its rules."""
    members.network_of(paths).detach(members.members(cluster)[name])


def start(paths: ClusterPaths, name: str, *, reporter: Reporter) -> bool:
    """Start a machine with its disk, and wait for its container runtime; returns whether it was stopped."""
    with changed(paths, f"start of machine {name}") as cluster:
        members.machine_of(paths, cluster, name)
        mounts.require_sources(cluster.mounted)
        parts = ensure_parts(version=cluster.kubernetes_version, reporter=reporter)
        network = claim_network(members.group_name(paths), members.directory(paths))
        return bool(members.group_of(paths, cluster, network=network, parts=parts).up([name]))


def running(paths: ClusterPaths, cluster: ClusterRecord) -> list[Machine]:
    """Return the machines of a cluster that run. Raises UsageError if it has no machines, HostError if none runs."""
    _require_whole(paths, cluster)
    found = [members.machine_of(paths, cluster, name) for name in members.members(cluster)]
    alive = [machine for machine in found if machine.leader]
    if not alive:
        raise HostError(f"no machine of cluster {quoted(paths.name)} runs", remedy=f"`sudo kubewright up --name {paths.name}` starts them")
    return alive


def require_last_worker(cluster: ClusterRecord, name: str) -> None:
    """Require that a machine may be removed: the worker with the highest number, so that the names stay without gaps. Raises UsageError."""
    members.require_known(cluster, name)
    if not cluster.workers or name != cluster.workers[-1]:
        last = f"remove {cluster.workers[-1]} first" if cluster.workers else f"`kubewright down --name {cluster.name}` removes the cluster"
        raise UsageError(f"machine {name} cannot be removed: only the worker with the highest number can", remedy=last)


def require_root(what: str) -> None:
    """Raise HostError, with the command that works, unless the user is root."""
    if os.geteuid() != 0:
        raise HostError("only root can enter or change machines", remedy=f"run `sudo kubewright {what}`")


@contextmanager
def changed(paths: ClusterPaths, doing: str) -> Iterator[ClusterRecord]:
    """Hold the lock of an existing cluster of machines. Raises UsageError if there is none."""
    with owner.changing_as(owner.of_cluster(paths), paths, doing=doing):
        found = record.load(paths.record)
        _require_whole(paths, found)
        assert found is not None
        yield found


def _require_whole(paths: ClusterPaths, cluster: ClusterRecord | None) -> None:
    if cluster is None or not cluster.is_whole:
        raise UsageError(
            f"cluster {quoted(paths.name)} has no machines", remedy=f"`sudo kubewright up --machines --name {paths.name}` creates one"
        )
