"""The flags of `hub cluster add` about a VPN."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

from kubewright.apis import formats
from kubewright.apis.join_records import JoinRecord
from kubewright.base.errors import HostError, UsageError
from kubewright.base.messages import quoted
from kubewright.base.randomness import SystemRandom
from kubewright.base.records import dataclass
from kubewright.cli.handlers import machine
from kubewright.cli.parsing import inputs
from kubewright.enrollment.state.clusters import LoadedCluster, TenantCluster
from kubewright.enrollment.vpn import hub_tunnels, network
from kubewright.enrollment.vpn.network import VPN
from kubewright.host.programs import tunnels
from kubewright.pki import wireguard


@dataclass(frozen=True, kw_only=True)
class VPNOptions:
    """The flags of `hub cluster add` about a VPN; without networks there is no VPN."""

    vpn_cidr: tuple[str, ...]
    vpn_endpoint: str
    vpn_interface: str
    vpn_mtu: int
    vpn_keepalive: int
    vpn_server: str


def wanted(options: VPNOptions, name: str, *, subnets: Sequence[str], server: str, clusters: Sequence[TenantCluster]) -> VPN | None:
    """Return the requested VPN, None if there is none. Raises UsageError."""
    networks = tuple(map(_network, options.vpn_cidr))
    if not networks:
        return None
    if not options.vpn_endpoint:
        raise UsageError(
            "--vpn-endpoint is missing", remedy="set the address at which nodes reach this hub: --vpn-endpoint hub.example:51820"
        )
    known = next((one.vpn for one in clusters if one.name == name), None)
    found = VPN(
        networks=networks,
        endpoint=options.vpn_endpoint,
        interface=options.vpn_interface or network.interface_name(name),
        mtu=options.vpn_mtu or network.MTU,
        keepalive=options.vpn_keepalive,
        server=options.vpn_server.rstrip("/"),
        hub=known.hub if known is not None else (),
    )
    others = [one.vpn for one in clusters if one.name != name and one.vpn is not None]
    problem = network.problem(found, subnets=subnets, server=server, others=others)
    if problem:
        raise UsageError(f"{quoted(name)} cannot have this VPN: {problem}", remedy="see `kubewright hub cluster add --help`, flags --vpn-…")
    return found


def require_room(found: VPN | None, records: Iterable[JoinRecord]) -> None:
    """Require that the addresses of existing nodes stay in the VPN. Raises UsageError."""
    pools = found.pools if found is not None else ()
    outside = [
        record.node
        for record in records
        if record.active and not all(any(pool.may_give(ipaddress.ip_address(text)) for pool in pools) for text in record.leases)
    ]
    if outside:
        raise UsageError(
            f"{len(outside)} nodes have addresses in the present VPN",
            detail=", ".join(sorted(outside)[:20]),
            remedy="pass the same --vpn-cidr as before, or let these nodes leave first",
        )


def key(found: VPN | None, known: TenantCluster | None) -> str:
    """Return the private key of the hub's end: the existing one, otherwise a new one."""
    if found is None:
        return ""
    return (known.vpn_key if known is not None else "") or wireguard.new_private_key(SystemRandom())


def warn_of_missing_programs(found: VPN | None) -> None:
    """Warn if this machine, which is probably the hub's, lacks a program that the VPN needs."""
    if found is None:
        return
    host = machine.host()
    try:
        tunnels.find_programs(host, host.programs, hub=True)
    except HostError as error:
        inputs.warn([f"{error}: {error.remedy}"])


def remove(found: VPN) -> None:
    """Remove the hub's interface: a daemon that is not running now would not know about it later."""
    try:
        hub_tunnels.remove(machine.host(), found)
    except HostError as error:
        inputs.warn([f"the interface {found.interface} stays: {error}"])


def row(loaded: LoadedCluster) -> dict[str, object]:
    """Return the description of a VPN in `hub cluster list`."""
    found = loaded.cluster.vpn
    if found is None:
        return {}
    addresses = ",".join(str(pool.hub) for pool in found.pools)
    ends = {"vpnInterface": found.interface, "vpnEndpoint": found.endpoint, "vpnKey": loaded.tunnel_key}
    return {"vpn": ",".join(found.networks), "vpnAddress": addresses, **ends}


def _network(text: str) -> str:
    try:
        [found] = formats.subnets(text)
    except ValueError as error:
        raise UsageError(f"--vpn-cidr: {error}", remedy="write a network like 10.64.0.0/16") from error
    return str(found)
