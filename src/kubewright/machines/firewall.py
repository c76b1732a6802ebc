"""Firewalls of the host that drop forwarded packets: exceptions for a single bridge.

Docker sets the policy of iptables' FORWARD chain to DROP, ufw and firewalld refuse forwarded packets, and a ruleset of
nftables may do the same. A packet must be accepted by each of them, so each gets its own exceptions: for packets
from the bridge, and for answers to it. They do not let others open connections to machines. Reloading a firewall
removes them, so they are ensured periodically.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from kubewright.base.errors import HostError
from kubewright.base.records import dataclass, field
from kubewright.machines.base import place
from kubewright.machines.running import PATH, run

_MARK: Final = "kubewright"
_OF_IPTABLES: Final = frozenset({"filter", "nat", "mangle", "raw", "security"})
"""Tables of nftables that belong to iptables, whose program is used for them."""
_FAMILIES: Final = frozenset({"ip", "ip6", "inet", "bridge"})
_REFUSING: Final = frozenset({"drop", "reject", "jump", "goto"})
_ROUTED: Final = ("iifname {}", "oifname {} ct state established,related")
_BRIDGED: Final = ("meta ibrname {}",)
"""Conditions for packets that are routed from and to the bridge, and between its ports, which have names of their own."""
_FIREWALLD: Final = "firewalld"


@dataclass(frozen=True, kw_only=True)
class Command:
    """A program with its arguments and standard input."""

    argv: tuple[str, ...]
    text: str = ""


class FirewallPrograms(Protocol):
    """Access to the host's firewalls; tests replace it."""

    def has(self, program: str) -> bool:
        """Return whether a program is installed."""
        ...

    def run(self, command: Command) -> str:
        """Run a program and return its output. Raises HostError if it fails."""
        ...


class HostFirewallPrograms:
    """This host. `nft` is the program of the machines' Debian tree, which hosts need not have."""

    def has(self, program: str) -> bool:
        return program == "nft" or shutil.which(program, path=PATH) is not None

    def run(self, command: Command) -> str:
        inside = ["chroot", str(place())] if command.argv[0] == "nft" and place().exists() else []
        return run(*inside, *command.argv, text=command.text)


@dataclass(frozen=True, kw_only=True)
class Ruleset:
    """The ruleset of nftables: the names of tables, chains with the hook `forward`, and rules."""

    tables: frozenset[tuple[str, str]] = frozenset()
    chains: tuple[Mapping[str, Any], ...] = ()
    rules: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Firewall:
    """A kind of firewall: the commands that add the exceptions which a bridge lacks, and those that remove its exceptions."""

    name: str
    lacking: Callable[[str, FirewallPrograms, Ruleset], Iterator[Command]] = field(repr=False)
    leftover: Callable[[str, FirewallPrograms, Ruleset], Iterator[Command]] = field(repr=False)


def ensure(bridge: str, host: FirewallPrograms | None = None) -> list[str]:
    """Add the exceptions that a bridge lacks; returns the firewalls that were changed. Raises HostError."""
    host = host or HostFirewallPrograms()
    ruleset = read(host)
    changed = []
    for firewall in FIREWALLS:
        commands = list(firewall.lacking(bridge, host, ruleset))
        for command in commands:
            host.run(command)
        changed += [firewall.name] if commands else []
    return changed


def remove(bridge: str, host: FirewallPrograms | None = None) -> None:
    """Remove the exceptions of a bridge; those of a firewall that has stopped in the meantime are gone already."""
    host = host or HostFirewallPrograms()
    ruleset = read(host)
    for firewall in FIREWALLS:
        with suppress(HostError):
            for command in firewall.leftover(bridge, host, ruleset):
                host.run(command)


def read(host: FirewallPrograms) -> Ruleset:
    """Read the ruleset of nftables; an empty one if the kernel has none."""
    try:
        rows = json.loads(host.run(Command(argv=("nft", "-j", "list", "ruleset"))) or "{}").get("nftables", [])
    except (HostError, ValueError):
        return Ruleset()
    chains = [row["chain"] for row in rows if "chain" in row]
    return Ruleset(
        tables=frozenset((row["table"]["family"], row["table"]["name"]) for row in rows if "table" in row),
        chains=tuple(chain for chain in chains if chain.get("hook") == "forward" and chain.get("type") == "filter"),
        rules=tuple(row["rule"] for row in rows if "rule" in row),
    )


def _iptables_rules(host: FirewallPrograms, program: str) -> list[list[str]]:
    """Return the lines of the FORWARD chain; nothing if it accepts everything, or the kernel has none."""
    try:
        said = host.run(Command(argv=(program, "-w", "-S", "FORWARD"))) if host.has(program) else ""
    except HostError:
        return []
    lines = [line.split() for line in said.splitlines()]
    return [] if lines == [["-P", "FORWARD", "ACCEPT"]] else lines


def _iptables(program: str) -> Firewall:
    """Return iptables, or its counterpart for IPv6."""

    def lacking(bridge: str, host: FirewallPrograms, _: Ruleset) -> Iterator[Command]:
        lines = _iptables_rules(host, program)
        wanted: dict[str, Sequence[str]] = {"-i": (), "-o": ("-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED")}
        for direction, condition in wanted.items():
            if lines and not any({direction, bridge, _MARK} <= set(line) for line in lines):
                rule = (direction, bridge, *condition, "-m", "comment", "--comment", _MARK, "-j", "ACCEPT")
                yield Command(argv=(program, "-w", "-I", "FORWARD", *rule))

    def leftover(bridge: str, host: FirewallPrograms, _: Ruleset) -> Iterator[Command]:
        for line in _iptables_rules(host, program):
            if {bridge, _MARK} <= set(line):
                yield Command(argv=(program, "-w", "-D", *line[1:]))

    return Firewall(name=program, lacking=lacking, leftover=leftover)


def _firewalld_knows(bridge: str, ruleset: Ruleset) -> bool:
    return any(rule["table"] == _FIREWALLD and bridge in json.dumps(rule) for rule in ruleset.rules)


def _firewalld_lacking(bridge: str, _: FirewallPrograms, ruleset: Ruleset) -> Iterator[Command]:
    if any(name == _FIREWALLD for _, name in ruleset.tables) and not _firewalld_knows(bridge, ruleset):
        yield Command(argv=("firewall-cmd", "--zone=trusted", f"--add-interface={bridge}"))


def _firewalld_leftover(bridge: str, _: FirewallPrograms, ruleset: Ruleset) -> Iterator[Command]:
    if _firewalld_knows(bridge, ruleset):
        yield Command(argv=("firewall-cmd", "--zone=trusted", f"--remove-interface={bridge}"))


def _nftables_lacking(bridge: str, host: FirewallPrograms, ruleset: Ruleset) -> Iterator[Command]:
    for chain in ruleset.chains:
        family, table, name = chain["family"], chain["table"], chain["name"]
        rules = [rule for rule in ruleset.rules if (rule["family"], rule["table"], rule["chain"]) == (family, table, name)]
        refuses = chain.get("policy") == "drop" or any(_REFUSING & set(part) for rule in rules for part in rule.get("expr", ()))
        others = table == _FIREWALLD or (table in _OF_IPTABLES and host.has("iptables"))
        if family not in _FAMILIES or others or not refuses or any(_is_ours(rule, bridge) for rule in rules):
            continue
        conditions = _BRIDGED if family == "bridge" else _ROUTED
        lines = [
            f'insert rule {family} {table} {name} {condition.format(bridge)} accept comment "{_MARK} {bridge}"\n'
            for condition in conditions
        ]
        yield Command(argv=("nft", "-f", "-"), text="".join(lines))


def _nftables_leftover(bridge: str, _: FirewallPrograms, ruleset: Ruleset) -> Iterator[Command]:
    for rule in ruleset.rules:
        if _is_ours(rule, bridge):
            place_of = f"{rule['family']} {rule['table']} {rule['chain']} handle {rule['handle']}"
            yield Command(argv=("nft", "-f", "-"), text=f"delete rule {place_of}\n")


def _is_ours(rule: Mapping[str, Any], bridge: str) -> bool:
    return bool(rule.get("comment") == f"{_MARK} {bridge}")


FIREWALLS: Final = (
    _iptables("iptables"),
    _iptables("ip6tables"),
    Firewall(name=_FIREWALLD, lacking=_firewalld_lacking, leftover=_firewalld_leftover),
    Firewall(name="nftables", lacking=_nftables_lacking, leftover=_nftables_leftover),
)
