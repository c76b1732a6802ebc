"""The machines' network: one network namespace per machine, connected by a bridge, with static routes to the pods of the others.

Nothing leaves the host: no address is translated, and the only way out of the namespaces is the bridge, which
forwards nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from testbed.running import quietly, run

PREFIX = "kwtb"


@dataclass(frozen=True)
class Network:
    """The network of a bed. `number` distinguishes beds: 0 to 255.

    It must not lie inside the service subnet 10.96.0.0/12, because kube-proxy drops packets to addresses there that
    no Service owns.
    """

    number: int

    @property
    def bridge(self) -> str:
        return f"{PREFIX}{self.number}"

    @property
    def gateway(self) -> str:
        """The host's own address on the bridge."""
        return f"172.31.{self.number}.1"

    def address(self, index: int) -> str:
        """The address of the machine with this index, counted from 1."""
        return f"172.31.{self.number}.{10 + index}"

    def pods(self, index: int) -> str:
        """The range of the machine's pods."""
        return f"10.244.{index}.0/24"

    def namespace(self, index: int) -> str:
        """The name of the machine's network namespace."""
        return f"{PREFIX}{self.number}-{index}"

    def make(self) -> None:
        run("ip", "link", "add", self.bridge, "type", "bridge")
        run("ip", "address", "add", f"{self.gateway}/24", "dev", self.bridge)
        run("ip", "link", "set", self.bridge, "up")

    def attach(self, index: int, *, machines: int) -> None:
        """Create the namespace of one of `count` machines."""
        name, outside, inside = self.namespace(index), f"{self.bridge}v{index}", "eth0"
        run("ip", "netns", "add", name)
        run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", name)
        run("ip", "link", "set", outside, "master", self.bridge, "up")
        within = ("ip", "-n", name)
        run(*within, "link", "set", "lo", "up")
        run(*within, "address", "add", f"{self.address(index)}/24", "dev", inside)
        run(*within, "link", "set", inside, "up")
        run(*within, "route", "add", "default", "via", self.gateway)
        for other in range(1, machines + 1):
            if other != index:
                run(*within, "route", "add", self.pods(other), "via", self.address(other))
        run("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv4.ip_forward=1")

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


def namespaces() -> list[str]:
    """Return the names of all network namespaces of the host."""
    return [row["name"] for row in json.loads(run("ip", "-j", "netns", "list") or "[]")]


def bridges() -> set[str]:
    """Return the names of all bridges of the host."""
    return _links("type", "bridge")


def _links(*which: str) -> set[str]:
    return {row["ifname"] for row in json.loads(run("ip", "-j", "link", "show", *which) or "[]")}
