"""The VPN of a tenant cluster: WireGuard, a star around the hub's interface, which forwards from one node to another. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from kubewright.apis import formats
from kubewright.apis.formats import IPAddress, Network
from kubewright.apis.join_records import JoinRecord
from kubewright.base.patterns import Pattern
from kubewright.base.records import dataclass, replace, shallow
from kubewright.enrollment.vpn import leases
from kubewright.enrollment.vpn.leases import Pool
from kubewright.host.desired import Tunnel, TunnelPeer

MTU: Final = 1420
"""The largest MTU for packets of 1500 bytes, even over IPv6."""
LEAST_MTU: Final = 1280
"""The minimum MTU of IPv6."""
MOST_MTU: Final = 9000
KEEPALIVE: Final = 20
"""In seconds, as in oneinfra."""
_NARROWEST: Final = 8
"""A network with a shorter prefix would route much of the internet through the hub."""
_INTERFACE: Final = Pattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
_DIGITS: Final = 12


@dataclass(frozen=True, kw_only=True)
class VPN:
    """The definition of a cluster's VPN.

    `networks` are CIDRs, one of each family; `endpoint` is the hub's host:port for nodes. `server` is the URL of the
    API server through the tunnel, '' if API traffic does not use it. `keepalive` is in seconds. `hub` are the hub's own
    addresses, if they are not the first ones of the networks.
    """

    networks: tuple[str, ...]
    endpoint: str
    interface: str
    mtu: int = MTU
    keepalive: int = KEEPALIVE
    server: str = ""
    hub: tuple[str, ...] = ()

    @property
    def ranges(self) -> tuple[Network, ...]:
        """The networks, parsed."""
        return tuple(network for text in self.networks for network in formats.subnets(text))

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The networks as address pools, each with the hub's address."""
        own = [address for text in self.hub if (address := formats.address(text)) is not None]
        return tuple(Pool(network=network, hub=_own_address(network, own)) for network in self.ranges)

    @property
    def port(self) -> int:
        """The port on which the hub listens."""
        return int(formats.split_host_port(self.endpoint)[1])

    @property
    def hub_addresses(self) -> tuple[str, ...]:
        """The hub's own addresses, with the prefix length."""
        return tuple(f"{pool.hub}/{pool.network.prefixlen}" for pool in self.pools)

    @property
    def behind(self) -> tuple[str, ...]:
        """The destinations that nodes send through the tunnel: its networks, and the API server if it is reached through it."""
        found = formats.address(urlsplit(self.server).hostname or "") if self.server else None
        outside = found is not None and not any(found.version == network.version and found in network for network in self.ranges)
        return (*self.networks, f"{found}/{found.max_prefixlen}") if found is not None and outside else self.networks

    def with_mask(self, lease: Sequence[str]) -> tuple[str, ...]:
        """Return addresses of a node with the prefix length of their network."""
        lengths = {network.version: network.prefixlen for network in self.ranges}
        return tuple(f"{text}/{lengths[6 if ':' in text else 4]}" for text in lease)

    def document(self) -> dict[str, Any]:
        """Return the stored form."""
        return {**shallow(self), "networks": list(self.networks), "hub": list(self.hub)}


def _own_address(network: Network, own: Sequence[IPAddress]) -> IPAddress:
    return next((address for address in own if address.version == network.version and address in network), leases.hub_address(network))


def read(document: Mapping[str, Any]) -> VPN:
    """Parse the result of `document`. Raises TypeError for missing or unknown fields."""
    return VPN(**{**document, "networks": tuple(document["networks"]), "hub": tuple(document.get("hub") or ())})


def avoiding(vpn: VPN, nodes: Iterable[str]) -> VPN:
    """Return the VPN with hub addresses that differ from these addresses of nodes. Raises NoAddressLeft."""
    taken = {found for text in nodes if (found := formats.address(text)) is not None}
    usual = [leases.hub_address(network) for network in vpn.ranges]
    own = [leases.hub_address(network, taken=taken) for network in vpn.ranges]
    return replace(vpn, hub=() if own == usual else tuple(map(str, own)))


def interface_name(cluster: str) -> str:
    """Return the name of a cluster's interface on the hub: at most fifteen characters, Linux's limit."""
    return f"wg-{hashlib.sha1(cluster.encode(), usedforsecurity=False).hexdigest()[:_DIGITS]}"


def unusable(network: Network) -> str:
    """Return why a network cannot be a VPN's, '' if it can; hub and nodes use the same check."""
    mapped = network.version == 6 and network.network_address.ipv4_mapped is not None
    ours = network.is_loopback or network.is_multicast or network.is_link_local or network.is_unspecified or mapped
    if network.prefixlen < _NARROWEST or ours:
        return f"{network} cannot be the network of a VPN"
    return ""


def problem(vpn: VPN, *, subnets: Iterable[str], server: str, others: Iterable[VPN]) -> str:
    """Return why a cluster cannot have this VPN, '' if it can.

    `subnets` are those of Services and pods: kube-proxy would intercept their addresses, so nodes cannot have them.
    `server` is where nodes send join requests.
    """
    ranges = vpn.ranges
    families = [network.version for network in ranges]
    if len(set(families)) != len(families):
        return "it may have one network of each family"
    small = next((network for network in ranges if leases.capacity(network) < 1), None)
    if small is not None:
        return f"{small} is too small for a node"
    wrong = next(filter(None, map(unusable, ranges)), "")
    if wrong:
        return wrong
    taken = [network for text in subnets for network in formats.subnets(text)]
    overlap = _overlap(ranges, taken)
    if overlap:
        return f"{overlap}, which is for Services or pods"
    if _INTERFACE.fullmatch(vpn.interface) is None:
        return f"{vpn.interface} cannot be the name of an interface"
    if not LEAST_MTU <= vpn.mtu <= MOST_MTU:
        return f"the MTU is {vpn.mtu}, and not between {LEAST_MTU} and {MOST_MTU}"
    if not 0 <= vpn.keepalive <= 65535:
        return f"a keepalive of {vpn.keepalive} s is not possible"
    return _endpoint_problem(vpn) or _server_problem(vpn, server) or _conflict(vpn, others)


def _overlap(ranges: Sequence[Network], others: Iterable[Network]) -> str:
    for other in others:
        for network in ranges:
            if network.version == other.version and network.overlaps(other):
                return f"{network} overlaps {other}"
    return ""


def _endpoint_problem(vpn: VPN) -> str:
    try:
        host, port = formats.host_port(vpn.endpoint)
    except ValueError as error:
        return f"the endpoint {vpn.endpoint}: {error}"
    if not port:
        return f"the endpoint {vpn.endpoint} has no port"
    found = formats.address(host)
    if found is not None and any(found.version == network.version and found in network for network in vpn.ranges):
        return f"the endpoint {vpn.endpoint} is inside the VPN itself"
    return ""


def _server_problem(vpn: VPN, server: str) -> str:
    if not vpn.server:
        return ""
    parts = urlsplit(vpn.server)
    host = parts.hostname or ""
    if parts.scheme != "https" or formats.address(host) is None or parts.path not in {"", "/"}:
        return f"{vpn.server} is not https://ADDRESS:PORT"
    inside = vpn.behind == vpn.networks
    if not inside and host == formats.split_host_port(vpn.endpoint)[0]:
        return (
            f"{host} is outside the tunnel, which ends there; use the hub's address in the VPN, if the API server's certificate includes it"
        )
    return "" if server else "the cluster has no server"


def _conflict(vpn: VPN, others: Iterable[VPN]) -> str:
    for other in others:
        if other.interface == vpn.interface:
            return f"another cluster has the interface {vpn.interface}"
        if other.port == vpn.port:
            return f"another cluster has the port {vpn.port}"
        overlap = _overlap(vpn.ranges, other.ranges)
        if overlap:
            return f"{overlap}, which another cluster has"
    return ""


def peer(record: JoinRecord) -> TunnelPeer | None:
    """Return the WireGuard peer of a node, None if it has no place in the VPN."""
    if not (record.active and record.lease and record.tunnel_key):
        return None
    networks = tuple(f"{address}/{128 if ':' in address else 32}" for address in record.leases)
    return TunnelPeer(public_key=record.tunnel_key, networks=networks)


def tunnel(vpn: VPN, private_key: str, peers: Iterable[TunnelPeer]) -> Tunnel:
    """Return the hub's interface."""
    return Tunnel(
        name=vpn.interface,
        private_key=private_key,
        port=vpn.port,
        addresses=vpn.hub_addresses,
        mtu=vpn.mtu,
        peers=tuple(peers),
        outside=tuple(network for network in vpn.behind if network not in vpn.networks),
    )
