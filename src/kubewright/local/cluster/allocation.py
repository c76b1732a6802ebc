"""Names, addresses and ports for the machines of a cluster.

Clusters that start at the same time must not choose the same address. Some tenths of a second pass between choosing
an address and binding its ports; during that time, the process holds a name in the abstract namespace of Unix
sockets, which has the same scope as the network namespace of the address and is released when the process ends.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kubewright.base.errors import KubewrightError, PortInUse
from kubewright.base.records import replace
from kubewright.host.network.interfaces import RealNetwork
from kubewright.local import record
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord, LocalMachineRecord

UNUSED_ADDRESS: Final = "127.255.255.254"
"""An address on which nothing listens: if one of its ports is blocked, the blocker listens on all addresses."""


class AddressClaims:
    """The addresses that this process has claimed; released when the `with` block ends."""

    def __init__(self) -> None:
        self._held: dict[str, socket.socket] = {}

    def take(self, address: str) -> bool:
        """Claim an address. False if another process has done so."""
        if address in self._held:
            return True
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            claim.bind(f"\0kubewright/{address}")
        except OSError:
            claim.close()
            return False
        self._held[address] = claim
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for claim in self._held.values():
            claim.close()
        self._held.clear()


def resized(paths: ClusterPaths, cluster: ClusterRecord, *, control_planes: int, claims: AddressClaims) -> ClusterRecord:
    """Return a cluster with so many control planes: new machines are allocated, or surplus ones marked as leaving."""
    cluster = cluster.shrunk(control_planes)
    while 1 + len(cluster.further) < control_planes:
        taken = [one.address for one in cluster.machines]
        cluster = replace(cluster, machines=(*cluster.machines, new_machine(paths, cluster.free_name(), claims=claims, taken=taken)))
    return cluster


def new_machine(paths: ClusterPaths, name: str, *, claims: AddressClaims, taken: Sequence[str] = ()) -> LocalMachineRecord:
    """Choose a free address and ports for a new machine, except the addresses of stopped clusters."""
    others = [found for path in sorted(paths.root.parent.glob("*/cluster.json")) if (found := _readable(path)) is not None]
    avoid = [*taken, *(one.address for other in others for one in other.machines)]
    blank = LocalMachineRecord(name=name, address="")
    while True:
        chosen = _free(blank, avoid)
        # the previous owner of the claim may since have released it, and listen
        if claims.take(chosen.address) and chosen == _free(blank, avoid):
            return chosen
        avoid.append(chosen.address)


def _free(blank: LocalMachineRecord, taken: list[str]) -> LocalMachineRecord:
    """Give a machine the first address with all ports free. If something listens on all addresses, use other ports."""
    network, wanted = RealNetwork(), list(blank.ports.values())
    try:
        return replace(blank, address=network.free_loopback(wanted, avoid=taken))
    except PortInUse:
        possible = [port for port in wanted if network.owner_of_port(UNUSED_ADDRESS, port) is None]
        address = network.free_loopback(possible, avoid=taken)
        chosen = network.free_ports(address, wanted)
        return replace(blank, address=address, ports=dict(zip(blank.ports, chosen, strict=True)))


def _readable(path: Path) -> ClusterRecord | None:
    try:
        return record.load(path)
    except KubewrightError:  # a broken record of another user must not prevent this cluster from starting
        return None
