"""The hub's end of a cluster's VPN: an interface whose peers are exactly those of the nodes' records.

A caller that has stored a record waits until the interface has it; concurrent callers share one comparison. Manual
changes of the interface are reverted by the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kubewright.apis.join_records import JoinRecord
from kubewright.base.change import Change
from kubewright.base.errors import HostError
from kubewright.enrollment.vpn import network as vpns
from kubewright.enrollment.vpn.network import VPN
from kubewright.host.desired import File, Service, TunnelPeer
from kubewright.host.programs import tunnels
from kubewright.host.programs.tunnels import TunnelPrograms
from kubewright.host.states import TunnelState
from kubewright.manifests import tunnels as units

if TYPE_CHECKING:
    from kubewright.host.seam import Host

_log = logging.getLogger(__name__)

AGAIN: Final = 30.0
"""Seconds between two checks of an interface without known changes."""
_FRESH: Final = 0.4
"""Seconds for which one comparison of an interface is shared by all callers."""
LINGER: Final = 5.0
"""Seconds that the peer of a departed node stays, so that the node can learn the result."""


def ensure(host: Host, vpn: VPN, private_key: str, peers: Iterable[TunnelPeer], *, found: TunnelPrograms) -> list[Change]:
    """Ensure the hub's interface, with the programs that were found. Raises HostError."""
    changes = []
    if found.daemon is not None:
        unit = File(path=units.unit_path(vpn.interface), content=units.device_unit(vpn.interface, found).encode(), mode=0o644)
        changes.append(host.ensure(Service(name=vpn.interface, enabled=True, units=(unit,))))
    return [*changes, host.ensure(vpns.tunnel(vpn, private_key, peers))]


def remove(host: Host, vpn: VPN) -> list[Change]:
    """Remove the hub's interface. Raises HostError."""
    changes = []
    path = units.unit_path(vpn.interface)
    if units.is_ours(host.read(path)):
        changes += [
            host.ensure(Service(name=vpn.interface, running=False)),
            host.remove_units(vpn.interface, units=(path,)),
        ]
    return [*changes, host.remove_tunnel(vpn.interface)]


class HubTunnel:
    """The interface of one cluster.

    Nothing is read before `follow`. The peer of a departed node stays for `linger` seconds.
    """

    def __init__(self, vpn: VPN, private_key: str, *, host: Host, linger: float = LINGER) -> None:
        self.linger = linger
        self._vpn = vpn
        self._private_key = private_key
        self._host = host
        self._programs: TunnelPrograms | None = None
        self._peers: dict[str, TunnelPeer] = {}
        self._leaving: dict[str, tuple[TunnelPeer, float]] = {}
        self._offers: dict[str, tuple[TunnelPeer, float]] = {}
        self._state: TunnelState | None = None
        self._looked = float("-inf")
        self._known: Mapping[str, TunnelPeer] | None = None
        """The peers that the interface was given, None if it must be read."""
        self._lock = asyncio.Lock()
        self._asked = self._done = 0

    def load(self, records: Iterable[JoinRecord]) -> None:
        """Record all records."""
        self._peers = {record.node: found for record in records if (found := vpns.peer(record)) is not None}

    def put(self, record: JoinRecord) -> None:
        """Record one record that has changed."""
        found = vpns.peer(record)
        if found is None:
            self._peers.pop(record.node, None)
        else:
            self._peers[record.node] = found

    def let_go(self, node: str) -> None:
        """Keep the peer of a leaving node for a while, whatever its record says, unless another node gets its address or key."""
        found = self._peers.get(node)
        if found is not None:
            self._leaving[node] = found, asyncio.get_running_loop().time() + self.linger

    def offer(self, node: str, key: str) -> float:
        """Accept a second key of a node in addition to its current one.

        Return for how many seconds it has been accepted.
        """
        now = asyncio.get_running_loop().time()
        known = self._offers.get(node)
        if known is None or known[0].public_key != key:
            self._offers[node] = known = TunnelPeer(public_key=key, networks=()), now
        return now - known[1]

    def withdraw(self, node: str) -> None:
        """Record that a node no longer offers another key."""
        self._offers.pop(node, None)

    async def heard(self, node: str, key: str) -> bool:
        """Whether the last handshake with a node used its second key. Raises HostError."""
        if node not in self._offers or self._offers[node][0].public_key != key:
            return False
        async with self._lock:
            if asyncio.get_running_loop().time() - self._looked > _FRESH:
                self._state = await asyncio.to_thread(self._host.tunnel, self._vpn.interface)
                self._looked = asyncio.get_running_loop().time()
        calls = {peer.public_key: peer.handshake for peer in self._state.peers} if self._state is not None else {}
        had = self._peers.get(node)
        return calls.get(key, 0.0) > 0 and calls[key] >= (calls.get(had.public_key, 0.0) if had is not None else 0.0)

    def _ensure(self, peers: tuple[TunnelPeer, ...]) -> list[Change]:
        if self._programs is None:
            self._programs = tunnels.find_programs(self._host, self._host.programs, hub=True)
        return ensure(self._host, self._vpn, self._private_key, peers, found=self._programs)

    def _wanted(self) -> tuple[TunnelPeer, ...]:
        now = asyncio.get_running_loop().time()
        self._leaving = {node: row for node, row in self._leaving.items() if row[1] > now}
        held = {word for peer in self._peers.values() for word in (peer.public_key, *peer.networks)} if self._leaving else set()
        lingering = [peer for peer, _ in self._leaving.values() if held.isdisjoint((peer.public_key, *peer.networks))]
        offered = [peer for peer, _ in self._offers.values() if peer.public_key not in {one.public_key for one in self._peers.values()}]
        return (*self._peers.values(), *lingering, *offered)

    async def follow(self, *, look: bool = False) -> None:
        """Make the interface match the current records. Raises HostError.

        Only changes since the last time are sent to the interface, which costs the same for any number of nodes; with
        `look`, and after a failure, it is compared with all of them.
        """
        self._asked += 1
        mine = self._asked
        async with self._lock:
            if self._done >= mine and not look:
                return
            covered, wanted = self._asked, {peer.public_key: peer for peer in self._wanted()}
            known, self._known = self._known, None
            for change in await asyncio.to_thread(self._apply, wanted, None if look else known):
                if change:
                    _log.info("%s: %s: %s", change.target, change.action.value, change.reason)
            self._done, self._known = covered, wanted

    def _apply(self, wanted: Mapping[str, TunnelPeer], known: Mapping[str, TunnelPeer] | None) -> list[Change]:
        if known is None:
            return self._ensure(tuple(wanted.values()))
        put = [peer for key, peer in wanted.items() if known.get(key) != peer]
        try:
            return [self._host.set_peers(self._vpn.interface, peers=put, without=[key for key in known if key not in wanted])]
        except HostError as error:  # most likely the interface was deleted
            _log.info("%s will be checked again: %s", self._vpn.interface, error)
            return self._ensure(tuple(wanted.values()))
