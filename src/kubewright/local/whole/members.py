"""The machines of a cluster as a group: names, addresses, directories and mounts.

The group is named after the cluster's directory, so that it is found even if the cluster's record is lost.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from kubewright.base.change import Action, Change
from kubewright.base.errors import HostError, UsageError
from kubewright.base.messages import quoted
from kubewright.base.records import replace
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import DISKS, NO_CNI, ClusterRecord
from kubewright.local.up_options import UpOptions
from kubewright.local.whole import kernel, resolvers, subnets
from kubewright.machines import group, program
from kubewright.machines.group import Group, Names
from kubewright.machines.machine import Bind, Machine
from kubewright.machines.network import Network, is_ipv6, range_of
from kubewright.machines.parts import Parts
from kubewright.machines.places import MachinePlaces, disks

HOST_NAME: Final = "host.kubewright.internal"
"""The host, in machines and pods."""
ENDPOINT: Final = "api.kubewright.internal"
"""The API server, in machines: all control planes. Clients try one address after the other, so they survive the loss of one."""
HOSTS_FILES: Final = "/etc/containerd/certs.d"
"""Where containerd looks for hosts files of registries (`machines.kit`)."""
_FIRST_WORKER: Final = 50
"""Workers have the indices after this one, control planes those before."""


def group_name(paths: ClusterPaths) -> str:
    """Return the name of a cluster's group."""
    return f"kw-{hashlib.sha256(str(paths.root).encode()).hexdigest()[:8]}"


def require_disks(cluster: ClusterRecord) -> None:
    """Require that this command would look for the disks of the cluster where they are: XDG_STATE_HOME decides that. Raises HostError."""
    if cluster.disks in {"", str(disks())}:
        return
    place = shlex.quote(str(Path(cluster.disks).parents[len(DISKS) - 1]))
    raise HostError(
        f"the disks of cluster {quoted(cluster.name)} are in {cluster.disks}, not in {disks()}",
        detail="it was created with another XDG_STATE_HOME",
        remedy=f"run the same command with this variable, for example `sudo env XDG_STATE_HOME={place} kubewright down --name {cluster.name}`",
    )


def directory(paths: ClusterPaths) -> Path:
    """Return the directory of a cluster's machines, which belongs to root."""
    return disks() / group_name(paths)


def members(cluster: ClusterRecord) -> dict[str, int]:
    """Return the machines of a cluster with their indices, which never change. Control planes that leave are among them."""
    planes = {machine.name: index_of(cluster.name, machine.name) for machine in cluster.machines}
    return planes | {name: index_of(cluster.name, name) for name in cluster.workers}


def network_of(paths: ClusterPaths) -> Network:
    """Return the network of a cluster that has been started. Needs root."""
    return group.network_of(group_name(paths), directory(paths))


def claim_network(paths: ClusterPaths, cluster: ClusterRecord) -> Network:
    """Return the network of a cluster, creating it if necessary. Needs root. Raises HostError."""
    wanted = subnets.of(cluster.config)
    return group.claim_network(
        group_name(paths),
        directory(paths),
        pods=wanted.pods,
        services=wanted.services,
        ipv6_first=is_ipv6(wanted.services[0]),
        reserved=resolvers.of_host().servers,
    )


def index_of(cluster: str, machine: str) -> int:
    """Return the index of a machine of a cluster, also of one that the record no longer has."""
    number = machine.rpartition("-")[2]
    if machine.startswith(f"{cluster}-worker-"):
        return _FIRST_WORKER + int(number)
    return int(number) if number.isdigit() else 1


def group_of(
    paths: ClusterPaths, cluster: ClusterRecord, *, network: Network, parts: Parts, shared: Mapping[str, Path] = MappingProxyType({})
) -> Group:
    """Return the group of a cluster's machines. The program and, with `shared`, further files of the host are visible in them.

    If the user installs a network plugin, the machines' network has no part for pods.
    """
    return Group(
        group_name(paths),
        directory=directory(paths),
        network=replace(network, pods=()) if cluster.cni == NO_CNI else network,
        members=members(cluster),
        parts=parts,
        names=Names(
            aliases={ENDPOINT: [machine.name for machine in cluster.settled().machines]},
            gateway=(HOST_NAME,),
            resolv_conf=resolvers.of_host().text(ipv6=network.has_ipv6),
        ),
        shared={**program.own().shared, **kernel.shared(), **shared},
        mounts=binds(cluster),
        outside=True,
    )


def binds(cluster: ClusterRecord) -> tuple[Bind, ...]:
    """Return the directories and files of the host that the machines of a cluster see, among them the hosts files of registries.

    A mount below another one comes after it; otherwise the other one would hide it.
    """
    own = [Bind(source=Path(cluster.registry_config), target=HOSTS_FILES, read_only=True)] if cluster.registry_config else []
    users = (Bind(source=one.source, target=str(one.target), read_only=one.read_only) for one in cluster.mounted)
    return tuple(sorted((*own, *users), key=lambda bind: bind.target))


def require_known(cluster: ClusterRecord, name: str) -> None:
    """Raise UsageError, naming the machines that exist, for an unknown one."""
    if name not in members(cluster):
        raise UsageError(
            f"cluster {quoted(cluster.name)} has no machine {quoted(name)}", remedy=f"its machines are: {', '.join(members(cluster))}"
        )


def machine_of(paths: ClusterPaths, cluster: ClusterRecord, name: str) -> Machine:
    """Return a machine that exists, to stop it or to run commands in it. Raises UsageError for an unknown name."""
    require_known(cluster, name)
    return machine_of_group(paths, name)


def machine_of_group(paths: ClusterPaths, name: str) -> Machine:
    """Return a machine of the cluster's group, also one that the record no longer has."""
    places = MachinePlaces(directory(paths) / name)
    return Machine(name, group=group_name(paths), places=places, lower=(), namespace="", address="")


def existing(paths: ClusterPaths) -> list[str]:
    """Return the names of the machines that have disks. Needs root."""
    return sorted(path.name for path in directory(paths).glob("*/") if path.is_dir())


def addresses_of(cluster: ClusterRecord, name: str) -> tuple[str, ...]:
    """Return the addresses of a machine's Node: all machines are in the ranges of the first one."""
    ranges = tuple(map(range_of, cluster.control_plane.node_addresses))
    return Network(bridge="", ranges=ranges).addresses(members(cluster)[name])


def addresses(cluster: ClusterRecord) -> dict[str, tuple[str, ...]]:
    """Return the addresses of all machines."""
    return {name: addresses_of(cluster, name) for name in members(cluster)}


def with_binds(cluster: ClusterRecord, options: UpOptions) -> ClusterRecord:
    """Return the record with the mounts and the registry configuration that an `up` wants; given ones replace all former ones."""
    return replace(
        cluster,
        mounts=cluster.mounts if options.mounts is None else tuple(map(str, options.mounts)),
        registry_config=cluster.registry_config if options.registry_config is None else options.registry_config,
    )


def while_changing(cluster: ClusterRecord, former: ClusterRecord) -> ClusterRecord:
    """Return the record for the time of an `up`: the former mounts with the paths of new ones, which the next `up` undoes if it is killed."""
    begun = {*former.begun, *(bind.target for bind in binds(cluster) if bind not in binds(former))}
    return replace(cluster, mounts=former.mounts, registry_config=former.registry_config, begun=tuple(sorted(begun)))


def ensure_mounts(paths: ClusterPaths, cluster: ClusterRecord, names: Collection[str], *, former: ClusterRecord) -> list[Change]:
    """Mount the cluster's directories and files in these running machines, and unmount former ones and those of a killed `up`.

    Raises HostError.
    """
    desired = binds(cluster)
    gone = sorted({*former.begun, *(bind.target for bind in binds(former) if bind not in desired)})
    changes = []
    for name in names if desired or gone else ():
        machine = machine_of(paths, cluster, name)
        removed = [target for target in gone if machine.unbind(target)]  # first: another directory may take its place
        added = [bind for bind in desired if machine.bind(bind)]
        changes += [Change(target=f"mount {target} of {name}", action=Action.DELETE) for target in removed]
        changes += [Change(target=f"mount {bind.target} of {name}", action=Action.CREATE) for bind in added]
    return changes
