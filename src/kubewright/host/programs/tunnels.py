"""WireGuard interfaces, through `ip` and `wg`: the kernel's and those of wireguard-go alike.

Keys are passed on standard input, never as arguments.

wg(8) documents the formats of `wg`; `ip -json` is iproute2's. The decisions of `ensure` are pure.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final, Protocol

from kubewright.base.change import Action, Change
from kubewright.base.errors import HostError
from kubewright.base.masking import remember
from kubewright.base.plain_text import one_line
from kubewright.base.records import dataclass, replace
from kubewright.host.desired import Tunnel, TunnelKey, TunnelPeer
from kubewright.host.programs import tunnel_guard
from kubewright.host.programs.commands import Commands, Ended
from kubewright.host.readers import FileReader, Programs
from kubewright.host.states import TunnelPeerState, TunnelState

WITHIN: Final = 30.0
_GONE: Final = "does not exist"
_STDIN: Final = "/dev/stdin"
_FORWARDING: Final[Mapping[int, str]] = {4: "net/ipv4/ip_forward", 6: "net/ipv6/conf/all/forwarding"}
_TOGETHER: Final = 100
"""Peers that are changed by one command."""
DAEMON: Final = "wireguard-go"
_PACKAGES: Final[Mapping[str, str]] = {"ip": "iproute2", "wg": "wireguard-tools", DAEMON: "wireguard-go", tunnel_guard.PROGRAM: "nftables"}


def configuration(desired: Tunnel) -> str:
    """Render an interface and its peers in the format of `wg syncconf`. It contains the private key."""
    lines = ["[Interface]", f"PrivateKey = {desired.private_key}", f"ListenPort = {desired.port}"]
    for peer in desired.peers:
        lines += ["[Peer]", f"PublicKey = {peer.public_key}"]
        lines += [f"AllowedIPs = {', '.join(peer.networks)}"] if peer.networks else []
        lines += [f"PersistentKeepalive = {peer.keepalive}"] if peer.keepalive else []
    return "".join(f"{one_line(line, what=f'the configuration of {desired.name}')}\n" for line in lines)


def read_dump(text: str) -> tuple[str, int, tuple[TunnelPeerState, ...]]:
    """Parse the output of `wg show NAME dump`: the private key, the port, the peers. Raises ValueError."""
    first, *rows = [line.split("\t") for line in text.splitlines()]
    private, _, port, _ = first
    return ("" if private == "(none)" else remember(private)), int(port), tuple(map(_peer, rows))


def _peer(fields: Sequence[str]) -> TunnelPeerState:
    key, _, _, networks, handshake, _, _, keepalive = fields
    return TunnelPeerState(
        public_key=key,
        networks=frozenset() if networks == "(none)" else frozenset(networks.split(",")),
        keepalive=0 if keepalive == "off" else int(keepalive),
        handshake=float(handshake),
    )


def read_link(text: str) -> tuple[frozenset[str], int, bool]:
    """Parse the output of `ip -json address show dev NAME`: addresses except link-local ones, the MTU, whether it is up.

    Raises ValueError.
    """
    try:
        [link] = [row for row in json.loads(text) if row]
        rows: list[Mapping[str, Any]] = link["addr_info"]
        addresses = frozenset(f"{row['local']}/{row['prefixlen']}" for row in rows if row.get("scope") != "link")
        return addresses, int(link["mtu"]), "UP" in link["flags"]
    except (LookupError, TypeError) as error:
        raise ValueError(f"no link: {error}") from error


def decide(found: TunnelState | None, desired: Tunnel) -> Change:
    """Compare an interface. The reasons say what differs; they contain public keys only."""
    if found is None:
        return Change(target=desired.target, action=Action.CREATE, reason=f"{', '.join(desired.addresses)}; {len(desired.peers)} peers")
    reasons = [text for text, differs in _differences(found, desired).items() if differs] + peer_differences(found, desired)
    return Change(target=desired.target, action=Action.UPDATE if reasons else Action.NONE, reason=", ".join(reasons))


def _differences(found: TunnelState, desired: Tunnel) -> dict[str, bool]:
    return {
        "no device": not found.device,
        "other rules": found.guard != tunnel_guard.mark(desired.name, desired.outside),
        "another key": found.private_key != desired.private_key,
        f"port {found.port}": found.port != desired.port,
        f"addresses {', '.join(sorted(found.addresses)) or 'none'}": found.addresses != frozenset(desired.addresses),
        f"MTU {found.mtu}": found.mtu != desired.mtu,
        "down": not found.up,
        "no forwarding": not found.forwards,
    }


def peer_differences(found: TunnelState, desired: Tunnel) -> list[str]:
    """Return which peers are missing, wrong, or superfluous."""
    wanted = {peer.public_key: (frozenset(peer.networks), peer.keepalive) for peer in desired.peers}
    known = {peer.public_key: (peer.networks, peer.keepalive) for peer in found.peers}
    counts = {
        "new": len(wanted.keys() - known.keys()),
        "changed": len([key for key in wanted.keys() & known.keys() if wanted[key] != known[key]]),
        "surplus": len(known.keys() - wanted.keys()),
    }
    return [f"{count} {kind} peer{'s' * (count > 1)}" for kind, count in counts.items() if count]


def decide_key(found: TunnelState | None, desired: TunnelKey) -> Change:
    """Compare the key of an interface. Raises HostError if the interface does not exist."""
    if found is None or not found.device:
        raise HostError(f"the interface {desired.name} does not exist", remedy=f"start it: systemctl restart {desired.name}")
    same = found.private_key == desired.private_key
    return Change(target=desired.target, action=Action.NONE if same else Action.UPDATE, reason="" if same else "another private key")


def peer_changes(name: str, peers: Sequence[TunnelPeer], without: Sequence[str]) -> Change:
    """Return the change of an interface that gets some peers and loses others."""
    counts = {"put": len(peers), "removed": len(without)}
    changes = ", ".join(f"{count} peer{'s' * (count > 1)} {what}" for what, count in counts.items() if count)
    return Change(target=f"tunnel {name}", action=Action.UPDATE if changes else Action.NONE, reason=changes)


def decide_removal(found: TunnelState | None, name: str) -> Change:
    """Decide the removal of an interface."""
    return Change(target=f"tunnel {name}", action=Action.NONE if found is None else Action.DELETE)


@dataclass(frozen=True, kw_only=True)
class TunnelPrograms:
    """The paths of a machine's programs. `daemon` is wireguard-go, None if the kernel has WireGuard."""

    ip: PurePosixPath
    wg: PurePosixPath
    daemon: PurePosixPath | None = None


def find_programs(files: FileReader, programs: Programs, *, hub: bool = False) -> TunnelPrograms:
    """Find the programs that a machine needs for a tunnel, or for being its hub.

    Raises HostError for a missing one, naming its package.
    """
    if hub:
        _require(programs, tunnel_guard.PROGRAM)
    daemon = None if in_kernel(files) else _require(programs, DAEMON)
    return TunnelPrograms(ip=_require(programs, "ip"), wg=_require(programs, "wg"), daemon=daemon)


def _require(programs: Programs, name: str) -> PurePosixPath:
    found = programs.path(name)
    if found is None:
        why = "; the kernel of this machine has no WireGuard" if name == DAEMON else ""
        raise HostError(
            f"{name} is not installed",
            detail=f"the VPN needs it{why}",
            remedy=f"install the package {_PACKAGES[name]}, or make sure that {name} is on PATH",
        )
    return found


def in_kernel(files: FileReader) -> bool:
    """Return whether the kernel of a machine supports WireGuard: loaded, built in, or loadable."""
    if files.state(PurePosixPath("/sys/module/wireguard")) is not None:
        return True
    release = (files.read(PurePosixPath("/proc/sys/kernel/osrelease")) or b"").decode(errors="replace").strip()
    modules = PurePosixPath("/lib/modules") / release
    lists = (files.read(modules / name) or b"" for name in ("modules.builtin", "modules.dep"))
    return bool(release) and any(b"/wireguard.ko" in content for content in lists)


_ONLY_RULES: Final = TunnelState(private_key="", port=0, addresses=frozenset(), mtu=0, up=False, forwards=False, guard="left", device=False)


class RealTunnels:
    """The interfaces of this machine. `proc` is where procfs is mounted. Implements `host.seam.Tunnels`."""

    def __init__(self, commands: Commands, *, programs: Programs, proc: Path = Path("/proc")) -> None:
        self._commands = commands
        self._programs = programs
        self._sysctls = proc / "sys"

    def state(self, name: str, /) -> TunnelState | None:
        if self._programs.path("ip") is None:  # without the tool, no interface was created
            return None
        guard = self._guard(name)
        answer = self._commands.run(("ip", "-json", "address", "show", "dev", name), within=WITHIN)
        if answer.code and _GONE in answer.err:
            return _ONLY_RULES if guard else None
        dump = ("wg", "show", name, "dump")
        try:
            addresses, mtu, up = read_link(_required(answer, ("ip", "address", "show", "dev", name)))
            private, port, peers = read_dump(self._run(dump))
        except ValueError as error:
            raise HostError(
                f"the tunnel {name} cannot be read", detail=str(error), remedy=f"see the output of `wg show {name}` and `ip address`"
            ) from error
        forwards = all(self._forwards(family) for family in _families(addresses))
        return TunnelState(private_key=private, port=port, addresses=addresses, mtu=mtu, up=up, forwards=forwards, guard=guard, peers=peers)

    def _guard(self, name: str) -> str:
        if self._programs.path(tunnel_guard.PROGRAM) is None:
            return ""
        listed = self._commands.run((tunnel_guard.PROGRAM, "list", "table", "inet", tunnel_guard.table(name)), within=WITHIN)
        return "" if listed.code else tunnel_guard.found_mark(listed.out) or "foreign"

    def apply(self, desired: Tunnel, found: TunnelState | None, /) -> None:
        name = desired.name
        if found is None or found.guard != tunnel_guard.mark(name, desired.outside):
            self._run((tunnel_guard.PROGRAM, "-f", _STDIN), text=tunnel_guard.rules(name, desired.outside))
        known = found if found is not None and found.device else None
        if known is None:
            self._run(("ip", "link", "add", "dev", name, "type", "wireguard"))
        if known is None or peer_differences(known, desired) or (known.private_key, known.port) != (desired.private_key, desired.port):
            self._run(("wg", "syncconf", name, _STDIN), text=configuration(desired))
        before = known.addresses if known is not None else frozenset()
        for address in sorted(before - set(desired.addresses)):
            self._run(("ip", "address", "delete", address, "dev", name))
        for address in desired.addresses:
            if address not in before:
                self._run(("ip", "address", "replace", address, "dev", name))
        if known is None or not known.up or known.mtu != desired.mtu:
            self._run(("ip", "link", "set", "dev", name, "mtu", str(desired.mtu), "up"))
        for family in _families(desired.addresses):
            if not self._forwards(family):
                self._forward(family)

    def set_peers(self, name: str, peers: Sequence[TunnelPeer], without: Sequence[str], /) -> None:
        words: list[tuple[str, ...]] = [("peer", key, "remove") for key in without]  # first: an address belongs to one peer at a time
        words += [
            ("peer", peer.public_key, "persistent-keepalive", str(peer.keepalive), "allowed-ips", ",".join(peer.networks)) for peer in peers
        ]
        for begin in range(0, len(words), _TOGETHER):
            self._run(("wg", "set", name, *(word for some in words[begin : begin + _TOGETHER] for word in some)))

    def set_key(self, desired: TunnelKey, /) -> None:
        self._run(("wg", "set", desired.name, "private-key", _STDIN), text=f"{desired.private_key}\n")

    def remove(self, name: str, found: TunnelState, /) -> None:
        if found.device:
            self._run(("ip", "link", "delete", "dev", name))
        if found.guard:
            self._run((tunnel_guard.PROGRAM, "delete", "table", "inet", tunnel_guard.table(name)))

    def _forwards(self, family: int) -> bool:
        try:
            return (self._sysctls / _FORWARDING[family]).read_text(encoding="ascii").strip() != "0"
        except OSError:  # a kernel without IPv6 does not forward it
            return family == 6

    def _forward(self, family: int) -> None:
        path = self._sysctls / _FORWARDING[family]
        try:
            path.write_text("1\n", encoding="ascii")
        except OSError as error:
            setting = _FORWARDING[family].replace("/", ".")
            raise HostError(
                f"{setting} cannot be set", detail=error.strerror or str(error), remedy=f"set it with `sysctl -w {setting}=1`"
            ) from error

    def _run(self, argv: Sequence[str], *, text: str = "") -> str:
        return _required(self._commands.run(argv, within=WITHIN, text=text), argv)


def _required(ended: Ended, argv: Sequence[str]) -> str:
    if ended.code:
        raise HostError(
            f"`{' '.join(argv)}` failed",
            detail=ended.err.strip() or f"exit code {ended.code}",
            remedy="run it manually as root to see why; a kernel without WireGuard needs wireguard-go",
        )
    return ended.out


def _families(addresses: Sequence[str] | frozenset[str]) -> list[int]:
    return sorted({ipaddress.ip_interface(address).version for address in addresses})


class _Reader(Protocol):
    def tunnel(self, name: str, /) -> TunnelState | None: ...


def _planned_peer(peer: TunnelPeer) -> TunnelPeerState:
    return TunnelPeerState(public_key=peer.public_key, networks=frozenset(peer.networks), keepalive=peer.keepalive)


class PlannedTunnels:
    """The interfaces of the host below; created or removed ones count as such."""

    def __init__(self, base: _Reader) -> None:
        self._base = base
        self._planned: dict[str, TunnelState | None] = {}

    def state(self, name: str, /) -> TunnelState | None:
        return self._planned[name] if name in self._planned else self._base.tunnel(name)

    def apply(self, desired: Tunnel, found: TunnelState | None, /) -> None:
        self._planned[desired.name] = TunnelState(
            private_key=desired.private_key,
            port=desired.port,
            addresses=frozenset(desired.addresses),
            mtu=desired.mtu,
            up=True,
            forwards=True,
            guard=tunnel_guard.mark(desired.name, desired.outside),
            peers=tuple(map(_planned_peer, desired.peers)),
        )

    def set_peers(self, name: str, peers: Sequence[TunnelPeer], without: Sequence[str], /) -> None:
        found = self.state(name)
        if found is None:
            raise HostError(f"the interface {name} does not exist", remedy="make it first")
        other = {*without, *(peer.public_key for peer in peers)}
        kept = [peer for peer in found.peers if peer.public_key not in other]
        self._planned[name] = replace(found, peers=(*kept, *map(_planned_peer, peers)))

    def set_key(self, desired: TunnelKey, /) -> None:
        found = self.state(desired.name)
        self._planned[desired.name] = replace(found, private_key=desired.private_key) if found is not None else None

    def remove(self, name: str, found: TunnelState, /) -> None:
        self._planned[name] = None
