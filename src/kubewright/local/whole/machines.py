"""Stopping, starting, pausing and removing single machines of a cluster; `up` adds them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from kubewright.base.clock import SystemClock
from kubewright.base.errors import HostError, UsageError
from kubewright.base.events import Reporter
from kubewright.base.messages import quoted
from kubewright.base.wait import PollingWaiter
from kubewright.binaries import BinarySources
from kubewright.local import mounts, record
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord
from kubewright.local.up_options import MOST_CONTROL_PLANES, UpOptions
from kubewright.local.whole import endpoints, members, owner, registries, removal, scheduling
from kubewright.local.whole.services import client
from kubewright.machines.machine import Machine
from kubewright.machines.parts import Parts, ensure_parts


def kill(paths: ClusterPaths, name: str) -> bool:
    """Stop a machine as a power failure would; returns whether it was running. Its disk stays as it was at that moment."""
    with _machines_changed(paths, f"kill of machine {name}") as cluster:
        machine = members.machine_of(paths, cluster, name)
        ran = bool(machine.leader)
        machine.cut_power()
        _disconnect(paths, cluster, name)
        return ran


def stop(paths: ClusterPaths, name: str) -> bool:
    """Shut a machine down, as its power button does; returns whether it was running."""
    with _machines_changed(paths, f"stop of machine {name}") as cluster:
        machine = members.machine_of(paths, cluster, name)
        ran = bool(machine.leader)
        machine.shut_down()
        _disconnect(paths, cluster, name)
        return ran


def _disconnect(paths: ClusterPaths, cluster: ClusterRecord, name: str) -> None:
    """Remove the network of a stopped machine: the kernel would continue to forward packets by its rules."""
    members.network_of(paths).detach(members.members(cluster)[name])


def pause(paths: ClusterPaths, name: str) -> bool:
    """Freeze all processes of a machine, as if it hung; returns whether it was running. `start` resumes them."""
    with _machines_changed(paths, f"pause of machine {name}") as cluster:
        machine = members.machine_of(paths, cluster, name)
        ran = machine.runs
        if not machine.leader:
            raise HostError(f"machine {name} is stopped", remedy=f"`kubewright local machine start {name}` starts it")
        machine.pause()
        return ran


def remove(paths: ClusterPaths, name: str, *, reporter: Reporter) -> None:
    """Remove a worker, or a control plane other than the first one, with its Node and its disk.

    Raises APIError if the API server does not answer; the next `up` then removes the machine.
    """
    with _machines_changed(paths, f"removal of machine {name}") as cluster:
        wanted = removal.without(cluster, name)
        with owner.acting_as(owner.of_cluster(paths)):
            record.save(wanted, paths.record)
        clock = SystemClock()
        with endpoints.client(paths, cluster, clock=clock) as api:
            removal.remove(paths, wanted, name, api, waiter=PollingWaiter(clock=clock, reporter=reporter))
            scheduling.ensure(api, wanted)
        if client.status(paths):
            client.expect(paths, members.addresses(wanted.settled()))
        with owner.acting_as(owner.of_cluster(paths)):
            record.save(wanted.settled(), paths.record)


def addition(cluster: ClusterRecord, name: str = "") -> tuple[str, UpOptions]:
    """Return the name of the machine to add, by default a worker with the lowest free number, and the options of `up` that add it.

    Raises UsageError for a name that is neither that of the next worker nor that of the next control plane.
    """
    (worker,) = set(cluster.scaled(cluster.nodes + 1).workers) - set(cluster.workers)
    found = {worker: UpOptions(nodes=cluster.nodes + 1), cluster.free_name(): UpOptions(control_planes=2 + len(cluster.further))}
    if name and name not in found:
        what = "has a machine" if name in members.members(cluster) else "cannot add a machine"
        raise UsageError(f"cluster {quoted(cluster.name)} {what} {quoted(name)}", remedy=f"the next ones are {' and '.join(found)}")
    if (found[name or worker].control_planes or 0) > MOST_CONTROL_PLANES:
        raise UsageError(
            f"cluster {quoted(cluster.name)} has {MOST_CONTROL_PLANES} control planes, the most that are possible",
            remedy=f"add a worker: {worker}",
        )
    return name or worker, found[name or worker]


def start(paths: ClusterPaths, name: str, *, sources: BinarySources, chosen: bool, reporter: Reporter) -> bool:
    """Start a machine with its disk and wait for its container runtime, or resume a paused one; returns whether it was not running.

    Its parts are those of the last `up`. If they do not exist any more, or the user has `chosen` sources, they are taken from these.
    """
    with _machines_changed(paths, f"start of machine {name}") as cluster:
        members.machine_of(paths, cluster, name)
        mounts.require_sources(cluster.mounted)
        registries.require_directory(cluster)
        parts = None if chosen else Parts.remembered(members.directory(paths))
        parts = parts or ensure_parts(version=cluster.kubernetes_version, sources=sources, reporter=reporter)
        network = members.claim_network(paths, cluster)
        shared = registries.shared(paths)
        return bool(members.group_of(paths, cluster, network=network, parts=parts, shared=shared).up([name]))


def running(paths: ClusterPaths, cluster: ClusterRecord) -> list[Machine]:
    """Return the running machines of a cluster. Raises HostError if there are none."""
    found = [members.machine_of(paths, cluster, name) for name in members.members(cluster)]
    alive = [machine for machine in found if machine.runs]
    if not alive:
        raise HostError(f"no machine of cluster {quoted(paths.name)} runs", remedy=f"`sudo kubewright up --name {paths.name}` starts them")
    return alive


def require_root(what: str, *, to: str = "add and remove machines") -> None:
    """Raise HostError, with the same command as root as its remedy, unless the user is root."""
    if os.geteuid() != 0:
        raise HostError(f"only root can {to}", remedy=f"run `sudo kubewright {what}`")


@contextmanager
def changed(paths: ClusterPaths, doing: str) -> Iterator[ClusterRecord]:
    """Hold the lock of an existing cluster of machines. Raises UsageError if there is none."""
    with owner.changing_as(owner.of_cluster(paths), paths, doing=doing):
        found = record.load(paths.record)
        require_whole(paths, found)
        assert found is not None
        yield found


@contextmanager
def _machines_changed(paths: ClusterPaths, doing: str) -> Iterator[ClusterRecord]:
    """Hold the lock of a cluster, and afterwards make its kubeconfig refer to a running control plane."""
    with changed(paths, doing) as found:
        members.require_disks(found)
        yield found
        endpoints.follow(paths, found)


def require_whole(paths: ClusterPaths, cluster: ClusterRecord | None) -> None:
    """Raise UsageError unless a cluster consists of machines."""
    if cluster is None:
        raise UsageError(
            f"there is no cluster {quoted(paths.name)}", remedy=f"`sudo kubewright up --machines --name {paths.name}` creates it"
        )
    if not cluster.is_whole:
        raise UsageError(
            f"cluster {quoted(paths.name)} consists of processes, not of machines",
            remedy="name another one, or create one with `sudo kubewright up --machines --name NAME`",
        )
