"""Exceptions for the bridge of machines in the host's firewalls, with what the programs print as data."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubewright.base.errors import HostError
from kubewright.machines import firewall
from kubewright.machines.firewall import Command

BRIDGE = "kw01234567"


class FakeHost:
    """A host with iptables or not, and what nftables has."""

    def __init__(self, *rows: dict[str, Any], forward: str = "", program: str = "iptables", nft: bool = True) -> None:
        self.ruleset = json.dumps({"nftables": [{"metainfo": {}}, *rows]})
        self.forward = forward
        self.program = program
        self.nft = nft
        self.ran: list[Command] = []

    def has(self, program: str) -> bool:
        return program == "nft" or (program == self.program and bool(self.forward))

    def run(self, command: Command) -> str:
        if command.argv == ("nft", "-j", "list", "ruleset"):
            if not self.nft:
                raise HostError("nft: Protocol not supported")
            return self.ruleset
        if command.argv[1:] == ("-w", "-S", "FORWARD"):
            return self.forward
        self.ran.append(command)
        return ""


def chain(family: str = "inet", table: str = "filter", policy: str = "drop") -> dict[str, Any]:
    return {
        "chain": {
            "family": family,
            "table": table,
            "name": "forward",
            "handle": 1,
            "type": "filter",
            "hook": "forward",
            "prio": 0,
            "policy": policy,
        }
    }


def rule(expression: dict[str, Any], *, handle: int = 7, table: str = "filter", comment: str = "") -> dict[str, Any]:
    said = {"comment": comment} if comment else {}
    return {"rule": {"family": "inet", "table": table, "chain": "forward", "handle": handle, "expr": [expression], **said}}


def test_dockers_policy_gets_exceptions_once() -> None:
    host = FakeHost(forward="-P FORWARD DROP\n-A FORWARD -j DOCKER-USER\n")
    assert firewall.ensure(BRIDGE, host) == ["iptables"]
    assert [" ".join(command.argv) for command in host.ran] == [
        f"iptables -w -I FORWARD -i {BRIDGE} -m comment --comment kubewright -j ACCEPT",
        f"iptables -w -I FORWARD -o {BRIDGE} -m conntrack --ctstate RELATED,ESTABLISHED -m comment --comment kubewright -j ACCEPT",
    ]
    lines = [f"-A {' '.join(command.argv[3:])}\n" for command in host.ran]
    again = FakeHost(forward="-P FORWARD DROP\n" + "".join(lines))
    assert (firewall.ensure(BRIDGE, again), again.ran) == ([], [])
    firewall.remove(BRIDGE, again)
    assert [command.argv[2:5] for command in again.ran] == [("-D", "FORWARD", "-i"), ("-D", "FORWARD", "-o")]


def test_packets_of_ipv6_get_exceptions_too() -> None:
    host = FakeHost(forward="-P FORWARD DROP\n", program="ip6tables")
    assert firewall.ensure(BRIDGE, host) == ["ip6tables"]
    assert {command.argv[0] for command in host.ran} == {"ip6tables"}
    assert firewall.ensure(BRIDGE, FakeHost(chain("ip6"))) == ["nftables"]


def test_only_exceptions_that_a_reload_has_removed_are_added() -> None:
    host = FakeHost(forward=f"-P FORWARD DROP\n-A FORWARD -i {BRIDGE} -m comment --comment kubewright -j ACCEPT\n")
    assert firewall.ensure(BRIDGE, host) == ["iptables"]
    assert [command.argv[3:6] for command in host.ran] == [("FORWARD", "-o", BRIDGE)]


def test_rulesets_of_nftables_that_refuse_packets_get_exceptions() -> None:
    ours = f"kubewright {BRIDGE}"
    host = FakeHost(chain(), chain("ip", "mine", policy="accept"))
    assert firewall.ensure(BRIDGE, host) == ["nftables"]
    (command,) = host.ran
    assert command.text.splitlines() == [
        f'insert rule inet filter forward iifname {BRIDGE} accept comment "{ours}"',
        f'insert rule inet filter forward oifname {BRIDGE} ct state established,related accept comment "{ours}"',
    ]
    again = FakeHost(chain(), rule({"accept": None}, handle=8, comment=ours), rule({"accept": None}, handle=9, comment=f"{ours}9"))
    assert firewall.ensure(BRIDGE, again) == []
    firewall.remove(BRIDGE, again)
    assert [command.text for command in again.ran] == ["delete rule inet filter forward handle 8\n"]


@pytest.mark.parametrize("expression", [{"drop": None}, {"reject": {"type": "icmpx"}}, {"jump": {"target": "other"}}])
def test_a_chain_that_accepts_may_still_have_rules_that_refuse(expression: dict[str, Any]) -> None:
    assert firewall.ensure(BRIDGE, FakeHost(chain(policy="accept"), rule(expression))) == ["nftables"]
    assert firewall.ensure(BRIDGE, FakeHost(chain(policy="accept"), rule({"accept": None}))) == []


def test_firewalld_trusts_the_bridge() -> None:
    table = {"table": {"family": "inet", "name": "firewalld"}}
    host = FakeHost(table, chain(table="firewalld"))
    assert firewall.ensure(BRIDGE, host) == ["firewalld"]
    assert host.ran == [Command(argv=("firewall-cmd", "--zone=trusted", f"--add-interface={BRIDGE}"))]
    match = {"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": BRIDGE}}
    again = FakeHost(table, chain(table="firewalld"), rule(match, table="firewalld"))
    assert firewall.ensure(BRIDGE, again) == []
    firewall.remove(BRIDGE, again)
    assert again.ran == [Command(argv=("firewall-cmd", "--zone=trusted", f"--remove-interface={BRIDGE}"))]


def test_nothing_is_done_without_a_firewall() -> None:
    for host in (FakeHost(), FakeHost(forward="-P FORWARD ACCEPT\n"), FakeHost(nft=False)):
        assert firewall.ensure(BRIDGE, host) == []
        firewall.remove(BRIDGE, host)
        assert host.ran == []


def test_tables_of_iptables_are_left_to_its_program() -> None:
    host = FakeHost(chain("ip"), forward="-P FORWARD DROP\n")
    assert firewall.ensure(BRIDGE, host) == ["iptables"]
