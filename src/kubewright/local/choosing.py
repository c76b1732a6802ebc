"""Choosing the machines of a cluster: names, and addresses and ports that are free."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kubewright.base.errors import KubewrightError, PortInUse
from kubewright.base.records import replace
from kubewright.host.network import RealNetwork
from kubewright.local import record
from kubewright.local.claims import Claims
from kubewright.local.places import Places
from kubewright.local.record import ClusterRecord, Machine

NOBODYS = "127.255.255.254"
"""An address where nobody listens: what blocks a port there listens on all addresses."""


def resized(places: Places, cluster: ClusterRecord, *, control_planes: int, claims: Claims) -> ClusterRecord:
    """Return a cluster with so many control planes: new machines are chosen, or those that are too many marked as leaving."""
    cluster = cluster.shrunk(control_planes)
    while 1 + len(cluster.further) < control_planes:
        taken = [one.address for one in cluster.machines]
        cluster = replace(cluster, machines=(*cluster.machines, machine(places, cluster.free_name(), claims=claims, taken=taken)))
    return cluster


def machine(places: Places, name: str, *, claims: Claims, taken: Sequence[str] = ()) -> Machine:
    """Choose a free address and ports for a new machine; addresses of clusters that do not run are left to them."""
    others = [found for path in sorted(places.root.parent.glob("*/cluster.json")) if (found := _readable(path)) is not None]
    avoid = [*taken, *(one.address for other in others for one in other.machines)]
    blank = Machine(name=name, address="")
    while True:
        chosen = _free(blank, avoid)
        # whoever held the claim when we looked may have given it back since, and listen
        if claims.take(chosen.address) and chosen == _free(blank, avoid):
            return chosen
        avoid.append(chosen.address)


def _free(blank: Machine, taken: list[str]) -> Machine:
    """Give a machine the first address where all its ports are free; where something listens on all addresses, ports beside that."""
    network, wanted = RealNetwork(), list(blank.ports.values())
    try:
        return replace(blank, address=network.free_loopback(wanted, avoid=taken))
    except PortInUse:
        possible = [port for port in wanted if network.owner_of_port(NOBODYS, port) is None]
        address = network.free_loopback(possible, avoid=taken)
        chosen = network.free_ports(address, wanted)
        return replace(blank, address=address, ports=dict(zip(blank.ports, chosen, strict=True)))


def _readable(path: Path) -> ClusterRecord | None:
    try:
        return record.load(path)
    except KubewrightError:  # somebody else's broken record must not keep this cluster from starting
        return None
