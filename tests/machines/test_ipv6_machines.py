"""Machines with IPv6 addresses only: a control plane comes up, and a worker joins it."""

from __future__ import annotations

from machine_kit import CONFIG, INIT, SHARED, eventually, join_command, kubectl, kubewright, patiently, write
from testbed.bed import Bed

from kubewright.machines.machine import Machine
from kubewright.machines.parts import Parts

ONLY_IPV6 = """\
ip -4 address flush dev eth0
ip -6 address add {address}/64 dev eth0 nodad
ip -6 route add default via fd00:31::1 dev eth0 onlink
sysctl -qw net.ipv6.conf.default.forwarding=1 net.ipv6.conf.all.forwarding=1
printf '127.0.0.1 localhost\n::1 localhost\nfd00:31::11 one cluster.test\nfd00:31::12 two\n' > /etc/hosts
"""
NETWORKS = 'networking: {podSubnet: "fd00:244::/56", serviceSubnet: "fd00:96::/112"}'


def addresses(machine: Machine, node: str) -> set[str]:
    rows = kubectl(machine, "get", "node", node).get("status", {}).get("addresses", [])
    return {row["address"] for row in rows if row["type"] == "InternalIP"}


def ready(machine: Machine, node: str) -> bool:
    rows = kubectl(machine, "get", "node", node).get("status", {}).get("conditions", [])
    return any(row["type"] == "Ready" and row["status"] == "True" for row in rows)


def test_a_cluster_of_machines_without_ipv4(parts: Parts) -> None:
    with Bed("one", "two", bed="ipv6", parts=parts, shared=SHARED) as bed:
        one, two = bed["one"], bed["two"]
        for machine, address in ((one, "fd00:31::11"), (two, "fd00:31::12")):
            machine.run("sh", "-ec", ONLY_IPV6.format(address=address))
        write(one, CONFIG, INIT.format(address='"fd00:31::11"').replace("networking:\n  podSubnet: 10.244.0.0/16", NETWORKS))
        kubewright(one, "init", "--config", CONFIG)
        assert kubewright(one, "init", "--plan", "--config", CONFIG).out == ""
        kubewright(two, *patiently(two, join_command(one)))
        eventually(lambda: ready(one, "one") and ready(one, "two"), "both Nodes to be Ready")
        assert [addresses(one, name) for name in ("one", "two")] == [{"fd00:31::11"}, {"fd00:31::12"}]
