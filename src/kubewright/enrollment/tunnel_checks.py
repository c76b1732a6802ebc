"""What a node requires of the VPN that a hub gives it: that it is one, and that it takes no traffic that is none of its business. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis import formats
from kubewright.apis.formats import Network
from kubewright.base.errors import TrustError
from kubewright.base.messages import quoted
from kubewright.enrollment import vpn
from kubewright.enrollment.answers import TunnelAnswer
from kubewright.enrollment.vpn import KEEPALIVE, LEAST_MTU, MOST_MTU, MTU
from kubewright.manifests.tunnels import NODE_INTERFACE, NodeTunnel
from kubewright.pki import wireguard

_MOST_NETWORKS: Final = 4
_MOST_KEEPALIVE: Final = 65535


def networks(ends: TunnelAnswer) -> list[Network]:
    """Read what lies behind the tunnel. Raises TrustError."""
    texts = ends.cidr.split(",")
    if len(texts) > _MOST_NETWORKS:
        raise TrustError(f"{len(texts)} networks are more than {_MOST_NETWORKS}")
    return list(map(_network, texts))


def _network(text: str) -> Network:
    try:
        found = ipaddress.ip_network(text)
    except ValueError as error:
        raise TrustError(f"{quoted(text)} is no network") from error
    problem = vpn.unusable(found)
    if problem:
        raise TrustError(problem)
    return found


def require(ends: TunnelAnswer, *, offered: bool, machine: Sequence[str]) -> None:
    """Require ends that can be used. `offered`: this machine has sent a key; `machine` are its addresses outside of the VPN. Raises TrustError."""
    behind = networks(ends)
    _require_addresses(ends, behind, several=not ends.private_key)
    for text in machine:
        found = ipaddress.ip_address(text)
        inside = next((network for network in behind if found.version == network.version and found in network), None)
        if inside is not None:
            raise TrustError(f"{inside} is where this machine has the address {found}", remedy="have the hub use another network")
    _require_endpoint(ends, behind)
    if not wireguard.is_key(ends.endpoint_key):
        raise TrustError("the hub's key is none")
    if not ends.private_key and not offered:
        raise TrustError("it has no key")
    if ends.private_key and not wireguard.is_key(ends.private_key):
        raise TrustError("its key is none")
    _number(ends.mtu, MTU, LEAST_MTU, MOST_MTU, "MTU")
    _number(ends.keepalive, KEEPALIVE, 0, _MOST_KEEPALIVE, "keepalive")


def _require_addresses(ends: TunnelAnswer, behind: Sequence[Network], *, several: bool) -> None:
    texts = ends.address.split(",")
    if len(texts) > (2 if several else 1) or (not several and len(behind) > 1):
        raise TrustError("it has more addresses or networks than one")
    families = set()
    for text in texts:
        try:
            found = ipaddress.ip_interface(text)
        except ValueError as error:
            raise TrustError(f"{quoted(text)} is no address with a mask") from error
        if found.network not in behind or found.ip in {found.network.network_address, found.network.broadcast_address}:
            raise TrustError(f"{found} is no address of {ends.cidr}")
        families.add(found.version)
    if len(families) != len(texts):
        raise TrustError("it has two addresses of one family")


def _require_endpoint(ends: TunnelAnswer, behind: Sequence[Network]) -> None:
    try:
        host, port = formats.host_port(ends.endpoint)
    except ValueError as error:
        raise TrustError(f"its endpoint: {error}") from error
    if not port:
        raise TrustError("its endpoint has no port")
    found = formats.address(host)
    if found is not None and any(found.version == network.version and found in network for network in behind):
        raise TrustError("its endpoint would be reached through itself")


def _number(text: str, default: int, least: int, most: int, what: str) -> int:
    value = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(most)) else None if text else default
    if value is None or not least <= value <= most:
        raise TrustError(f"its {what} is not between {least} and {most}")
    return value


def node_tunnel(ends: TunnelAnswer, *, key_file: PurePosixPath) -> NodeTunnel:
    """Return what ends that were checked mean for this machine."""
    addresses = tuple(ends.address.split(","))
    return NodeTunnel(
        name=NODE_INTERFACE,
        key_file=key_file,
        addresses=addresses,
        networks=tuple(map(str, networks(ends))),
        peer=ends.endpoint_key,
        endpoint=ends.endpoint,
        mtu=_number(ends.mtu, MTU, LEAST_MTU, MOST_MTU, "MTU"),
        keepalive=_number(ends.keepalive, KEEPALIVE, 0, _MOST_KEEPALIVE, "keepalive"),
        node_addresses=() if ends.private_key else tuple(str(ipaddress.ip_interface(text).ip) for text in addresses),
    )
