"""The machines' network: one network namespace per machine, connected by a bridge, with static routes to the pods of the others.

Without `translate`, no address is translated, and nothing leaves the host.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from ipaddress import IPv4Network
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
"""Where ranges are searched. None lies inside the service subnet 10.96.0.0/12: kube-proxy drops packets to addresses there that no Service owns."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """The network of a group of machines.

    `bridge` is the name of the bridge, of at most ten characters: the names of links and namespaces start with it.
    `range` has 256 addresses.
    """

    bridge: str
    range: str

    @property
    def gateway(self) -> str:
        """The host's own address on the bridge."""
        return str(IPv4Network(self.range)[1])

    def address(self, index: int) -> str:
        """The address of the machine with this index, counted from 1."""
        return str(IPv4Network(self.range)[_FIRST + index])

    def pods(self, index: int) -> str:
        """The range of the machine's pods."""
        return str(list(IPv4Network(POD_SUBNET).subnets(new_prefix=24))[index])

    def namespace(self, index: int) -> str:
        """The name of the machine's network namespace."""
        return f"{self.bridge}-{index}"

    def spare(self) -> list[str]:
        """Return the addresses that no machine ever has."""
        return [str(IPv4Network(self.range)[host]) for host in range(_FIRST + MOST + 1, 255)]

    def routes(self) -> dict[str, str]:
        """Return the machines to which the host sends packets for single addresses, by these addresses."""
        rows = json.loads(run("ip", "-4", "-j", "route", "show", "dev", self.bridge) or "[]")
        return {str(row["dst"]): str(row["gateway"]) for row in rows if "gateway" in row}

    def route(self, address: str, via: str) -> None:
        """Let the host send packets for an address to a machine."""
        _ip(f"route replace {address}/32 via {via} dev {self.bridge}")

    def end_route(self, address: str) -> None:
        """End what `route` did."""
        _ip(f"route delete {address}/32 dev {self.bridge}")

    def exists(self) -> bool:
        """Return whether the bridge exists."""
        return self.bridge in _links("type", "bridge")

    def make(self) -> None:
        """Create the bridge."""
        _ip(
            f"link add {self.bridge} type bridge",
            f"address add {self.gateway}/24 dev {self.bridge}",
            f"link set {self.bridge} up",
        )

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
        _ip(
            "link set lo up",
            f"address add {self.address(index)}/24 dev eth0",
            "link set eth0 up",
            f"route add default via {self.gateway}",
            namespace=name,
        )
        run("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv4.ip_forward=1")

    def connect(self, indices: Sequence[int]) -> None:
        """Give every one of these machines routes to the pods of the others."""
        for index in indices:
            routes = [f"route replace {self.pods(other)} via {self.address(other)}" for other in indices if other != index]
            _ip(*routes, namespace=self.namespace(index))

    def detach(self, index: int) -> None:
        """Remove the namespace of one machine with everything in it."""
        quietly(["ip", "link", "delete", f"{self.bridge}v{index}"], ["ip", "netns", "delete", self.namespace(index)])

    def remove(self) -> None:
        """Remove the bridge and every namespace; missing ones are no error."""
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


def overlapping(range_: str, others: Iterable[str]) -> list[str]:
    """Return those ranges that have addresses in common with one."""
    return [other for other in others if IPv4Network(other).overlaps(IPv4Network(range_))]


def routed(rows: Sequence[dict[str, Any]] | None = None) -> set[str]:
    """Return the IPv4 ranges to which the host has routes, except the default route."""
    if rows is None:
        rows = json.loads(run("ip", "-4", "-j", "route", "show", "table", "all") or "[]")
    found = {str(row["dst"]) for row in rows if row.get("dst", "default") != "default"}
    return {str(ipaddress.ip_network(text, strict=False)) for text in found if ":" not in text}


def namespaces() -> list[str]:
    """Return the names of all network namespaces of the host."""
    return [row["name"] for row in json.loads(run("ip", "-j", "netns", "list") or "[]")]


def bridges() -> set[str]:
    """Return the names of all bridges of the host."""
    return _links("type", "bridge")


def _links(*which: str) -> set[str]:
    return {row["ifname"] for row in json.loads(run("ip", "-j", "link", "show", *which) or "[]")}


def _ip(*commands: str, namespace: str = "") -> None:
    """Run commands of `ip` in order, in one process."""
    if commands:
        run("ip", *(["-n", namespace] if namespace else []), "-batch", "-", text="\n".join(commands) + "\n")


def translate(network: Network, indices: Sequence[int]) -> None:
    """Let machines and their pods reach what the host reaches. Replaces what an earlier call made."""
    _nft(_masquerade(network.bridge, source=network.range, but=network.range))
    for index in indices:
        _nft(_masquerade("kubewright", source=POD_SUBNET, but=POD_SUBNET), namespace=network.namespace(index))


def end_translation(network: Network) -> None:
    """Remove the host's rules of `translate`; those of the machines end with their namespaces."""
    with suppress(HostError):  # there are none, or the kernel has no such rules
        _nft(f"delete table ip {network.bridge}\n")


def _masquerade(table: str, *, source: str, but: str) -> str:
    """Return a table that gives packets from a range to anywhere but another range the address of the link by which they leave."""
    return f"""\
table ip {table}
delete table ip {table}
table ip {table} {{
  chain postrouting {{
    type nat hook postrouting priority srcnat;
    ip saddr {source} ip daddr != {but} masquerade
  }}
}}
"""


def _nft(text: str, *, namespace: str = "") -> None:
    """Load rules with the program of the machines' Debian tree, which hosts need not have."""
    inside = ["ip", "netns", "exec", namespace] if namespace else []
    tree = ["chroot", str(place())] if place().exists() else []
    run(*inside, *tree, "nft", "-f", "-", text=text)
