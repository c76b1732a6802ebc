"""The machines' network: one network namespace per machine, connected by a bridge, with static routes to the pods of the others.

Without `translate`, no address is translated, and nothing leaves the host. A network may have IPv6 next to IPv4.
"""

from __future__ import annotations

import hashlib
import ipaddress
import itertools
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any, Final

from kubewright.base.errors import HostError
from kubewright.base.records import dataclass
from kubewright.machines.base import place
from kubewright.machines.running import quietly, run

POD_SUBNET: Final = "10.244.0.0/16"
_FIRST: Final = 10
"""The host part of a machine's address is its index plus this."""
MOST: Final = 200
"""The largest index of a machine."""
_WIDE: Final = ("172.30.0.0/16", "172.31.0.0/16", "192.168.0.0/16", "10.200.0.0/16")
"""Where ranges are searched.

None is inside the service subnet 10.96.0.0/12: kube-proxy drops packets to addresses there that no Service owns.
"""
_SHARES: Final = 8
"""Bits that number the machines in a range of pods."""
_IPV6: Final = Path("/proc/sys/net/ipv6/conf")


@dataclass(frozen=True, kw_only=True)
class Network:
    """The network of a group of machines.

    `bridge` is the name of the bridge, of at most ten characters: the names of links and namespaces start with it.
    `ranges` has 256 addresses of IPv4 and, in a network with IPv6, a /64; the one of the machines' first addresses comes
    first. `pods` are the ranges of all pods, at most one of each family; without any, nothing here is for pods: they have
    another network. `services` are ranges that kube-proxy answers for; machines need a route to them even if nothing
    outside can be reached.
    """

    bridge: str
    ranges: tuple[str, ...] = ()
    pods: tuple[str, ...] = (POD_SUBNET,)
    services: tuple[str, ...] = ()

    @property
    def gateway(self) -> str:
        """The host's own address on the bridge, of the machines' first family."""
        return self.gateways[0]

    @property
    def gateways(self) -> tuple[str, ...]:
        """The host's own addresses on the bridge."""
        return self._hosts(1)

    @property
    def has_ipv6(self) -> bool:
        """Whether machines have addresses of IPv6."""
        return any(map(is_ipv6, self.ranges))

    def address(self, index: int) -> str:
        """The first address of the machine with this index, counted from 1."""
        return self.addresses(index)[0]

    def addresses(self, index: int) -> tuple[str, ...]:
        """All addresses of a machine."""
        return self._hosts(_FIRST + index)

    def shares(self, index: int) -> tuple[str, ...]:
        """The ranges of the machine's own pods."""
        return tuple(share_of(wide, index) for wide in self.pods)

    def namespace(self, index: int) -> str:
        """The name of the machine's network namespace."""
        return f"{self.bridge}-{index}"

    def spare(self) -> list[str]:
        """Return the addresses that no machine ever has."""
        return [address for host in range(_FIRST + MOST + 1, 255) for address in self._hosts(host)]

    def _hosts(self, number: int) -> tuple[str, ...]:
        return tuple(str(ipaddress.ip_network(one)[number]) for one in self.ranges)

    def routes(self) -> dict[str, str]:
        """Return the machines to which the host sends packets for single addresses, by these addresses."""
        rows = _routes("dev", self.bridge)
        return {str(row["dst"]): str(row["gateway"]) for row in rows if "gateway" in row}

    def route(self, address: str, via: str) -> None:
        """Add a route of the host for an address via a machine."""
        _ip(f"route replace {address} via {via} dev {self.bridge}")

    def end_route(self, address: str) -> None:
        """Remove the route."""
        _ip(f"route delete {address} dev {self.bridge}")

    def is_complete(self) -> bool:
        """Return whether the bridge exists and has everything: it is set up last."""
        rows = listed(run("ip", "-j", "link", "show", "type", "bridge"))
        return any(row["ifname"] == self.bridge and "UP" in row["flags"] for row in rows)

    def make(self) -> None:
        """Create the bridge, or complete what an interrupted call has left."""
        if self.bridge not in bridges():
            _ip(f"link add {self.bridge} type bridge")
        if self.has_ipv6:  # the host's default may be to have none
            (_IPV6 / self.bridge / "disable_ipv6").write_text("0", encoding="ascii")
        _ip(*self._assigned(1, self.bridge), f"link set {self.bridge} up")

    def _assigned(self, number: int, link: str) -> list[str]:
        """Return the commands that give a link the addresses of a host, without duplicate address detection (RFC 4862): duplicates are impossible."""
        pairs = zip(self.ranges, self._hosts(number), strict=True)
        return [
            f"address replace {one}/{ipaddress.ip_network(wide).prefixlen} dev {link}{' nodad' if is_ipv6(wide) else ''}"
            for wide, one in pairs
        ]

    def attach(self, index: int) -> None:
        """Create the namespace of a machine; an existing one stays."""
        name, outside = self.namespace(index), f"{self.bridge}v{index}"
        if name in namespaces():
            return
        _ip(
            f"netns add {name}",
            f"link add {outside} type veth peer name eth0 netns {name}",
            f"link set {outside} master {self.bridge} up",
        )
        gateways = {is_ipv6(one): one for one in self.gateways}
        routes = [f"route add default via {gateway}" for gateway in self.gateways if not is_ipv6(gateway) or ipv6_uplinks()]
        if len(routes) < len(gateways):  # packets to the outside are refused at once, not lost
            routes += [f"route add {wide} via {gateways[True]}" for wide in self.services if is_ipv6(wide)]
        _ip("link set lo up", *self._assigned(_FIRST + index, "eth0"), "link set eth0 up", *routes, namespace=name)
        forwarding = ["net.ipv4.ip_forward=1", *(["net.ipv6.conf.all.forwarding=1"] if self.has_ipv6 else [])]
        run("ip", "netns", "exec", name, "sysctl", "-qw", *forwarding)

    def connect(self, indices: Sequence[int]) -> None:
        """Give each of these machines routes to the pods of the others."""
        for index in indices:
            routes = [route for other in indices if other != index for route in self._to_pods(other)]
            _ip(*routes, namespace=self.namespace(index))

    def _to_pods(self, index: int) -> list[str]:
        via = {is_ipv6(one): one for one in self.addresses(index)}
        return [f"route replace {share} via {via[is_ipv6(share)]}" for share in self.shares(index)]

    def detach(self, index: int) -> None:
        """Remove the namespace of one machine with everything in it."""
        quietly(["ip", "link", "delete", f"{self.bridge}v{index}"], ["ip", "netns", "delete", self.namespace(index)])

    def remove(self) -> None:
        """Remove the bridge and every namespace, if they exist."""
        # the links first: a namespace that something still holds would keep its end of the link, and with it the
        # other end
        ours = [name for name in _links() if name.startswith(f"{self.bridge}v")]
        names = [name for name in namespaces() if name.startswith(f"{self.bridge}-")]
        quietly(*(["ip", "link", "delete", name] for name in [*ours, self.bridge]), *(["ip", "netns", "delete", name] for name in names))


def free_range(taken: Iterable[str]) -> str:
    """Return the first range of 256 addresses that overlaps none of these. Raises HostError if there is none."""
    used = set(taken)
    for wide in _WIDE:
        for candidate in map(str, IPv4Network(wide).subnets(new_prefix=24)):
            if not overlapping(candidate, used):
                return candidate
    raise HostError(
        "no range of addresses is free for the network of the machines", detail=f"searched: {', '.join(_WIDE)}", remedy="see `ip route`"
    )


def free_local_range(bridge: str, taken: Iterable[str]) -> str:
    """Return a /64 of unique local addresses (RFC 4193) that overlaps none of these. Raises HostError if there is none.

    The global ID comes from the name of the bridge, so that two hosts hardly ever choose the same one.
    """
    used = set(taken)
    start = int(f"fd{hashlib.sha256(bridge.encode()).hexdigest()[:10]}", 16) << 80
    for candidate in map(str, itertools.islice(IPv6Network((start, 48)).subnets(new_prefix=64), 256)):
        if not overlapping(candidate, used):
            return candidate
    raise HostError("no range of IPv6 addresses is free for the network of the machines", remedy="see `ip -6 route`")


def overlapping(range_: str, others: Iterable[str]) -> list[str]:
    """Return the ranges that overlap with a given one."""
    return [other for other in others if ipaddress.ip_network(other).overlaps(ipaddress.ip_network(range_))]


def range_of(address: str) -> str:
    """Return the range of a network in which a machine has this address."""
    return str(ipaddress.ip_network(f"{address}/{64 if is_ipv6(address) else 24}", strict=False))


def share_of(wide: str, index: int) -> str:
    """Return the range for the pods of one machine in the range of all pods, which is 256 times larger."""
    whole = ipaddress.ip_network(wide)
    prefix = whole.prefixlen + _SHARES
    return f"{whole.network_address + (index << (whole.max_prefixlen - prefix))}/{prefix}"


def is_ipv6(text: str) -> bool:
    """Return whether an address or a range is one of IPv6."""
    return ":" in text


def routed(rows: Sequence[dict[str, Any]] | None = None) -> set[str]:
    """Return the ranges to which the host has routes, except the default routes.

    VPNs replace those by routes for either half of all addresses (openvpn(8), `--redirect-gateway def1`).
    """
    if rows is None:
        rows = _routes("table", "all")
    found = {str(row["dst"]) for row in rows if row.get("dst", "default") != "default"}
    return {str(one) for text in found if (one := ipaddress.ip_network(text, strict=False)).prefixlen > 1}


def ipv6_uplinks() -> list[str]:
    """Return the links by which the host reaches other networks with IPv6; none if it does not."""
    rows = listed(run("ip", "-6", "-j", "route", "show", "default")) if kernel_has_ipv6() else []
    hops = [hop for row in rows for hop in row.get("nexthops", [row])]
    return sorted({str(hop["dev"]) for hop in hops if hop.get("dev", "lo") != "lo"})


def kernel_has_ipv6() -> bool:
    """Return whether links of this host can have addresses of IPv6."""
    return _IPV6.exists()


def _routes(*which: str) -> list[dict[str, Any]]:
    """Return the host's routes of both families."""
    families = ("-4", "-6") if kernel_has_ipv6() else ("-4",)
    return [row for family in families for row in listed(run("ip", family, "-j", "route", "show", *which))]


def namespaces() -> list[str]:
    """Return the names of all network namespaces of the host."""
    return [row["name"] for row in listed(run("ip", "-j", "netns", "list"))]


def bridges() -> set[str]:
    """Return the names of all bridges of the host."""
    return _links("type", "bridge")


def _links(*which: str) -> set[str]:
    return {row["ifname"] for row in listed(run("ip", "-j", "link", "show", *which))}


def listed(text: str) -> list[dict[str, Any]]:
    """Return what `ip -j` has listed. iproute2 6.1 also prints an empty object for each link that is not of the requested type."""
    return [row for row in json.loads(text or "[]") if row]


def _ip(*commands: str, namespace: str = "") -> None:
    """Run commands of `ip` in order, in one process."""
    if commands:
        run("ip", *(["-n", namespace] if namespace else []), "-batch", "-", text="\n".join(commands) + "\n")


def translate(network: Network, indices: Sequence[int]) -> None:
    """Enable machines and their pods to reach everything that the host reaches. Replaces the rules of an earlier call."""
    _nft("".join(_masquerade(network.bridge, wide) for wide in network.ranges))
    inside = "".join(_masquerade("kubewright", wide) for wide in network.pods)
    for index in indices if inside else ():
        _nft(inside, namespace=network.namespace(index))


def end_translation(bridge: str) -> None:
    """Remove the host's rules of `translate`; those of the machines end with their namespaces."""
    for family in ("ip", "ip6"):
        with suppress(HostError):  # there are none, or the kernel has no such rules
            _nft(f"delete table {family} {bridge}\n")


def _masquerade(table: str, wide: str) -> str:
    """Return a table that gives packets from a range to anywhere outside of it the address of the link by which they leave.

    Connections use the packet size of that link, which may be smaller than that of the bridge (a VPN): machines learn it
    only from messages that many networks drop (RFC 2923).
    """
    family = "ip6" if is_ipv6(wide) else "ip"
    return f"""\
table {family} {table}
delete table {family} {table}
table {family} {table} {{
  chain postrouting {{
    type nat hook postrouting priority srcnat;
    {family} saddr {wide} {family} daddr != {wide} masquerade
  }}
  chain forward {{
    type filter hook forward priority mangle;
    {family} saddr {wide} tcp flags syn tcp option maxseg size set rt mtu
  }}
}}
"""


def _nft(text: str, *, namespace: str = "") -> None:
    """Load rules with the program of the machines' Debian tree, which hosts need not have."""
    inside = ["ip", "netns", "exec", namespace] if namespace else []
    tree = ["chroot", str(place())] if place().exists() else []
    run(*inside, *tree, "nft", "-f", "-", text=text)
