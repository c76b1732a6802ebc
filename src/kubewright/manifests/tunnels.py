"""Systemd units for WireGuard interfaces. Pure.

On a node, the unit does everything, so that after a boot the tunnel is up before the kubelet starts: it runs `ip` and
`wg` and reads the key from a file. On a hub, it only runs the process of wireguard-go, which outlives the hub's own;
the hub does the rest. If the kernel has WireGuard, there is no process: a node's unit creates the device, and a hub
needs no unit.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.errors import HostError
from kubewright.base.records import dataclass
from kubewright.host.programs.tunnels import TunnelPrograms
from kubewright.manifests import units

NODE_INTERFACE: Final = "oi-wg"
"""A node's interface and unit have oneinfra's name."""
UNIT_HEADER: Final = "# Installed by kubewright for a tunnel. `kubewright reset` and `kubewright node leave` remove it."
_PEER: Final = re.compile(r"(\bpeer )[A-Za-z0-9+/]{43}=")
_ADDRESSES: Final = "X-NodeAddresses="
"""A place for the addresses that the kubelet must report: systemd ignores names that begin with X- (systemd.unit(5))."""
_UNIT: Final = """\
{header}
[Unit]
Description=WireGuard tunnel {name}
Wants=network-online.target
After=network-online.target
Before=kubelet.service
{addresses}
[Service]
{service}
Restart=on-failure
RestartSec=2

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True, kw_only=True)
class NodeTunnel:
    """A node's end of a tunnel.

    `addresses` include the prefix length, `networks` are routed to its only peer, `endpoint` is host:port.
    `node_addresses` are those that the kubelet reports, none if the tunnel does not carry the traffic of the node.
    """

    name: str
    key_file: PurePosixPath
    addresses: tuple[str, ...]
    networks: tuple[str, ...]
    peer: str
    endpoint: str
    mtu: int
    keepalive: int
    node_addresses: tuple[str, ...] = ()


def unit_path(name: str) -> PurePosixPath:
    """Return the path of an interface's unit."""
    return PurePosixPath(f"/etc/systemd/system/{name}.service")


def node_unit(tunnel: NodeTunnel, programs: TunnelPrograms) -> str:
    """Return the unit of a node's tunnel. Raises HostError for a path that a unit cannot contain."""
    return _unit(tunnel.name, programs, _steps(tunnel, programs), node_addresses=tunnel.node_addresses)


def device_unit(name: str, programs: TunnelPrograms) -> str:
    """Return the unit of a device that another process configures."""
    return _unit(name, programs, ())


def is_ours(content: bytes | None) -> bool:
    """Return whether kubewright created a unit."""
    return content is not None and content.startswith(UNIT_HEADER.encode())


def node_addresses(content: bytes | None) -> tuple[str, ...]:
    """Return the addresses that a unit of ours stores for the kubelet."""
    lines = (content or b"").decode(errors="replace").split("\n") if is_ours(content) else []
    found = next((line.removeprefix(_ADDRESSES) for line in lines if line.startswith(_ADDRESSES)), "")
    return tuple(found.split(",")) if found else ()


def with_peer(content: bytes, key: str) -> bytes:
    """Return the unit of a node's tunnel with another key of its only peer.

    Raises HostError for a unit without a peer.
    """
    text, count = _PEER.subn(lambda found: f"{found[1]}{units.arguments(key)}", content.decode(errors="replace"))
    if count != 1:
        raise HostError("the unit of the tunnel contains no peer", remedy="join this machine again")
    return text.encode()


def _unit(name: str, programs: TunnelPrograms, steps: Sequence[str], *, node_addresses: tuple[str, ...] = ()) -> str:
    lines = _of_kernel(name, programs, steps) if programs.daemon is None else _of_daemon(name, programs.daemon, steps)
    addresses = f"{_ADDRESSES}{units.rest_of_line(','.join(node_addresses))}\n" if node_addresses else ""
    return _UNIT.format(header=UNIT_HEADER, name=units.rest_of_line(name), addresses=addresses, service="\n".join(lines))


def _of_kernel(name: str, programs: TunnelPrograms, steps: Sequence[str]) -> list[str]:
    deletes = _command(programs.ip, "link", "delete", "dev", name)
    return [
        *("Type=oneshot", "RemainAfterExit=yes", f"ExecStartPre=-{deletes}"),
        f"ExecStart={_command(programs.ip, 'link', 'add', 'dev', name, 'type', 'wireguard')}",
        *(f"ExecStart={step}" for step in steps),
        f"ExecStop={deletes}",
    ]


def _of_daemon(name: str, daemon: PurePosixPath, steps: Sequence[str]) -> list[str]:
    """Return the unit's commands: the first process exits when device and socket exist, systemd monitors the second one."""
    return ["Type=forking", f"ExecStart={_command(daemon, name)}", *(f"ExecStartPost={step}" for step in steps)]


def _steps(tunnel: NodeTunnel, programs: TunnelPrograms) -> list[str]:
    dev = ("dev", tunnel.name)
    peer = (tunnel.peer, "endpoint", tunnel.endpoint, "persistent-keepalive", str(tunnel.keepalive))
    return [
        _command(
            programs.wg, "set", tunnel.name, "private-key", str(tunnel.key_file), "peer", *peer, "allowed-ips", ",".join(tunnel.networks)
        ),
        *(_command(programs.ip, "address", "replace", address, *dev) for address in tunnel.addresses),
        _command(programs.ip, "link", "set", *dev, "mtu", str(tunnel.mtu), "up"),
        *(_command(programs.ip, "route", "replace", network, *dev) for network in _routed(tunnel)),
    ]


def _routed(tunnel: NodeTunnel) -> Iterable[str]:
    """Return the networks that need a route: those that contain no address of the tunnel."""
    own = {ipaddress.ip_interface(address).network for address in tunnel.addresses}
    return [text for text in tunnel.networks if ipaddress.ip_network(text) not in own]


def _command(program: PurePosixPath, *words: str) -> str:
    return f"{units.program(program)} {units.arguments(*words)}"
