"""Checks of the VPN that a hub assigns to a node: it must be valid, and must not take over other traffic. Pure.

The hub's texts are parsed into values, and everything that is written consists of these values. No text of the hub's
reaches a unit: an IPv6 zone, for instance, may contain any character, including line ends.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis import formats
from kubewright.apis.formats import IPAddress, Network
from kubewright.base.errors import TrustError
from kubewright.base.messages import quoted
from kubewright.base.patterns import Pattern
from kubewright.base.records import dataclass, field
from kubewright.enrollment.protocol.answers import TunnelAnswer
from kubewright.enrollment.vpn import network as vpn
from kubewright.enrollment.vpn.network import KEEPALIVE, LEAST_MTU, MOST_MTU, MTU
from kubewright.manifests.tunnels import NODE_INTERFACE, NodeTunnel
from kubewright.pki import wireguard

Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface

_WITH_MASK: Final = Pattern(r"[0-9A-Fa-f.:]+/[0-9]+")
"""An address or a network in the form that every hub writes: without a zone, with its prefix length as a number."""
_MOST_NETWORKS: Final = 4
_MOST_KEEPALIVE: Final = 65535


@dataclass(frozen=True, kw_only=True)
class CheckedEnds:
    """A node's end of the VPN. `host` is an address or a DNS name; an empty `private_key` means the node's own."""

    networks: tuple[Network, ...]
    addresses: tuple[Interface, ...]
    host: IPAddress | str
    port: int
    hub_key: str
    private_key: str = field(repr=False)
    mtu: int
    keepalive: int

    @property
    def endpoint(self) -> str:
        """The hub's address and port, as `wg` reads them."""
        return f"[{self.host}]:{self.port}" if isinstance(self.host, ipaddress.IPv6Address) else f"{self.host}:{self.port}"

    @property
    def shown_addresses(self) -> str:
        """The addresses in messages."""
        return ",".join(map(str, self.addresses))

    def has(self, address: IPAddress) -> bool:
        """Whether an address is reached through the tunnel."""
        return any(address.version == network.version and address in network for network in self.networks)


def require(ends: TunnelAnswer, *, offered: bool, machine: Sequence[str]) -> CheckedEnds:
    """Parse usable ends of an answer. `offered`: this machine has sent a key; `machine` are its addresses outside the VPN. Raises TrustError."""
    found = read(ends)
    for text in machine:
        address = ipaddress.ip_address(text)
        inside = next((network for network in found.networks if address.version == network.version and address in network), None)
        if inside is not None:
            raise TrustError(f"{inside} contains the address {address} of this machine", remedy="change the network on the hub")
    if not isinstance(found.host, str) and found.has(found.host):
        raise TrustError("its endpoint would be reached through itself")
    if not found.private_key and not offered:
        raise TrustError("it has no key")
    return found


def read(ends: TunnelAnswer) -> CheckedEnds:
    """Parse the ends of an answer. Raises TrustError for texts that are invalid or contradict each other."""
    networks = _networks(ends.cidr)
    addresses = _addresses(ends.address, networks, several=not ends.private_key)
    host, port = _endpoint(ends.endpoint)
    if not wireguard.is_key(ends.endpoint_key):
        raise TrustError("the hub's key is not a WireGuard key")
    if ends.private_key and not wireguard.is_key(ends.private_key):
        raise TrustError("its key is not a WireGuard key")
    return CheckedEnds(
        networks=networks,
        addresses=addresses,
        host=host,
        port=port,
        hub_key=ends.endpoint_key,
        private_key=ends.private_key,
        mtu=_number(ends.mtu, MTU, LEAST_MTU, MOST_MTU, "MTU"),
        keepalive=_number(ends.keepalive, KEEPALIVE, 0, _MOST_KEEPALIVE, "keepalive"),
    )


def _networks(text: str) -> tuple[Network, ...]:
    texts = text.split(",")
    if len(texts) > _MOST_NETWORKS:
        raise TrustError(f"{len(texts)} networks are more than {_MOST_NETWORKS}")
    return tuple(map(_network, texts))


def _network(text: str) -> Network:
    try:
        found = ipaddress.ip_network(_with_mask(text))
    except ValueError as error:
        raise TrustError(f"{quoted(text)} is not a network") from error
    problem = vpn.unusable(found)
    if problem:
        raise TrustError(problem)
    return found


def _with_mask(text: str) -> str:
    """Require a text that consists of an address and its prefix length only, and return it. Raises ValueError."""
    if _WITH_MASK.fullmatch(text) is None:
        raise ValueError("zones and other forms of a mask are not supported")
    return text


def _addresses(text: str, behind: Sequence[Network], *, several: bool) -> tuple[Interface, ...]:
    texts = text.split(",")
    if len(texts) > (2 if several else 1) or (not several and len(behind) > 1):
        raise TrustError("it has more than one address or network")
    found = tuple(_address(one, behind) for one in texts)
    if len({one.version for one in found}) != len(found):
        raise TrustError("it has two addresses of one family")
    return found


def _address(text: str, behind: Sequence[Network]) -> Interface:
    try:
        found = ipaddress.ip_interface(_with_mask(text))
    except ValueError as error:
        raise TrustError(f"{quoted(text)} is not an address with a prefix length") from error
    if found.network not in behind or found.ip in {found.network.network_address, found.network.broadcast_address}:
        raise TrustError(f"{found} is not an address in {', '.join(map(str, behind))}")
    return found


def _endpoint(text: str) -> tuple[IPAddress | str, int]:
    try:
        host, port = formats.host_port(text)
    except ValueError as error:
        raise TrustError(f"its endpoint: {error}") from error
    if not port:
        raise TrustError("its endpoint has no port")
    return formats.address(host) or host, int(port)


def _number(text: str, default: int, least: int, most: int, what: str) -> int:
    if not text:
        return default
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    if not is_number or not least <= int(text) <= most:
        raise TrustError(f"its {what} is not between {least} and {most}")
    return int(text)


def node_tunnel(ends: CheckedEnds, *, key_file: PurePosixPath) -> NodeTunnel:
    """Return the meaning of these ends for this machine."""
    return NodeTunnel(
        name=NODE_INTERFACE,
        key_file=key_file,
        addresses=tuple(map(str, ends.addresses)),
        networks=tuple(map(str, ends.networks)),
        peer=ends.hub_key,
        endpoint=ends.endpoint,
        mtu=ends.mtu,
        keepalive=ends.keepalive,
        node_addresses=() if ends.private_key else tuple(str(one.ip) for one in ends.addresses),
    )
