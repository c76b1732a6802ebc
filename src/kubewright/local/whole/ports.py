"""The published ports of a cluster of machines: its record contains them, and its daemon forwards them."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from kubewright.base.change import Action, Change
from kubewright.base.records import replace
from kubewright.base.wait import Waiter
from kubewright.host.detached import DetachedProcess
from kubewright.local import published, record
from kubewright.local.paths import ClusterPaths
from kubewright.local.published import PublishedPort
from kubewright.local.record import ClusterRecord
from kubewright.local.up_options import UpOptions
from kubewright.local.whole import machines, members, owner
from kubewright.local.whole.services import client
from kubewright.machines.network import range_of


def wanted(cluster: ClusterRecord, options: UpOptions) -> tuple[PublishedPort, ...]:
    """Return the ports of a cluster after an `up`. Raises UsageError for one that is published to another target already."""
    return published.added(cluster.published, options.publish)


def require_free(paths: ClusterPaths, cluster: ClusterRecord, options: UpOptions) -> None:
    """Require that the ports of a cluster can be published, before anything is started.

    Addresses of the cluster's own network are not checked: its bridge may not exist now. Raises PortInUse with the owner
    of a port, HostError for an address that the host does not have.
    """
    served = client.status(paths).get("ports", ())
    fresh = [port for port in wanted(cluster, options) if str(port) not in served and not _is_of_bridge(port, cluster)]
    if fresh:
        from kubewright.local.whole.services import forwarding  # loads asyncio, which other commands do without

        for port in fresh:
            forwarding.require_free(port)


def _is_of_bridge(port: PublishedPort, cluster: ClusterRecord) -> bool:
    """Return whether the address of a port is in the network of the cluster's machines."""
    ranges = [ipaddress.ip_network(range_of(machine.address)) for machine in cluster.machines if machine.address]
    return any(ipaddress.ip_address(port.address) in one for one in ranges)


def ensure(
    paths: ClusterPaths, cluster: ClusterRecord, options: UpOptions, *, daemon: DetachedProcess | None, waiter: Waiter
) -> list[Change]:
    """Tell a cluster's daemon about machines and ports; returns the new ports. `daemon` is its process if it was just started.

    Raises PortInUse with the owner of a port.
    """
    client.ready(paths, daemon, waiter=waiter)
    client.expect(paths, members.addresses(cluster))
    present = set(client.status(paths).get("ports", ()))
    desired = wanted(cluster, options)
    client.publish(paths, desired)
    return [Change(target=f"port {port}", action=Action.CREATE) for port in desired if str(port) not in present]


def change(paths: ClusterPaths, *, add: Sequence[PublishedPort] = (), remove: Sequence[str] = ()) -> tuple[PublishedPort, ...]:
    """Publish some ports, and stop publishing others; returns the ports that are published then.

    A stopped cluster applies the change when it is started. Raises UsageError for ports that conflict or are not
    published, PortInUse with the owner of a port; nothing has changed then.
    """
    with machines.changed(paths, f"change of the ports of cluster {paths.name}") as cluster:
        found = published.added(published.without(cluster.published, remove), add)
        if client.status(paths):
            client.publish(paths, found)
        elif any(members.machine_of(paths, cluster, name).leader for name in members.members(cluster)):
            raise client.absent(paths)
        with owner.acting_as(owner.of_cluster(paths)):
            record.save(replace(cluster, publish=tuple(map(str, found))), paths.record)
    return found


def rows(ports: Sequence[PublishedPort], daemon: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the ports for `-o json`, with whether the daemon forwards them."""
    served = set(daemon.get("ports", ()))
    return [
        {"address": one.address, "port": one.port, "target": one.target, "protocol": one.protocol, "listens": str(one) in served}
        for one in ports
    ]
