"""The names that a node may have, and the names and addresses in its serving certificate. Pure.

A rule is a row: it checks one name and returns what is wrong with it. The rules apply to all issuers: a hub, and an
approver of kubelet-serving requests.
"""

from __future__ import annotations

import fnmatch
import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from kubewright.apis import formats
from kubewright.apis.formats import IPAddress, Network
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass, field

MOST_NAMES: Final = 16
_LOCAL_NAMES: Final = frozenset({"localhost", "localhost.localdomain"})
_KUBERNETES: Final = "kubernetes"
LOOPBACKS: Final = ("localhost", "127.0.0.1", "::1")
"""Names in serving certificates of stock joins in addition to the node's own."""


@dataclass(frozen=True, kw_only=True)
class NamePolicy:
    """The names that a cluster allows."""

    reserved: frozenset[str] = frozenset()
    """The names and addresses of control planes, API endpoints, etcd and the hub, in the form of `known_as`."""
    networks: tuple[Network, ...] = ()
    """The networks of Services, pods and VPNs, in which no node may have an address."""
    domain: str = "cluster.local"
    foreign: Mapping[str, str] = field(default_factory=dict)
    """The names and addresses of other nodes, in the form of `known_as`, with the name of the node."""
    node_names: tuple[str, ...] = ()
    """Patterns, one of which the name of a node must match; none: any name."""
    names: tuple[str, ...] = ()
    """Patterns of the DNS names that a certificate may have in addition to the node's own name."""
    ranges: tuple[Network, ...] = ()
    """The networks in which the addresses of a certificate must be, unless `open_addresses`."""
    open_addresses: bool = True
    """Whether any address is allowed that is neither reserved nor another node's."""


@dataclass(frozen=True, kw_only=True)
class NameRefused:
    """A name that is not allowed: `rule` is the rule's short name, `message` contains the value."""

    rule: str
    message: str


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """A name requested by a node. `address` is its value as an address, None for a DNS name."""

    text: str
    node: str
    address: IPAddress | None


Rule = Callable[[_Asked, NamePolicy], str]
"""Returns what is wrong, '' if nothing is."""


def _has_form(asked: _Asked, _: NamePolicy) -> str:
    if asked.address is not None:
        return "" if _canonical(asked.text) else "is an address in an unusual form"
    if asked.text.startswith("*"):
        return "is a wildcard"
    return "; ".join(formats.subdomain_problems(asked.text))


def _canonical(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text


def _is_reserved(asked: _Asked, policy: NamePolicy) -> str:
    if known_as(asked.text) in policy.reserved:
        return "belongs to the control plane"
    return _reserved_address(asked.address, policy.networks) if asked.address is not None else _reserved_name(asked.text, policy.domain)


def _reserved_address(found: IPAddress, networks: Sequence[Network]) -> str:
    kinds = {
        "a loopback address": found.is_loopback,
        "a link-local address": found.is_link_local,
        "a multicast address": found.is_multicast,
        "the unspecified address": found.is_unspecified,
    }
    for kind, holds in kinds.items():
        if holds:
            return f"is {kind}"
    for network in networks:
        if found.version == network.version and found in network:
            return f"is in {network}, which is for Services, pods or a VPN"
    return ""


def _reserved_name(name: str, domain: str) -> str:
    first, _, _ = name.partition(".")
    if name in _LOCAL_NAMES or name.endswith(".localhost"):
        return "is every machine's own name"
    if first == _KUBERNETES or name.endswith((".svc", f".svc.{domain}")) or name in {"svc", domain}:
        return "is one of the cluster's own names"
    return ""


def _is_foreign(asked: _Asked, policy: NamePolicy) -> str:
    owner = policy.foreign.get(known_as(asked.text))
    return f"belongs to the node {owner}" if owner is not None and owner != asked.node else ""


def _is_allowed(asked: _Asked, policy: NamePolicy) -> str:
    if asked.address is None:
        return "" if asked.text == asked.node or _fits(asked.text, policy.names) else "is not among the names that this cluster allows"
    found = asked.address
    inside = any(found.version == network.version and found in network for network in policy.ranges)
    return "" if inside or policy.open_addresses else "is not in the ranges that this cluster allows"


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


RULES: Final[Mapping[str, Rule]] = {
    "SanForm": _has_form,
    "ReservedName": _is_reserved,
    "ForeignName": _is_foreign,
    "NotAllowed": _is_allowed,
}
"""In the order of evaluation: the first problem is reported."""


def broken(rule: str, name: str, node: str, policy: NamePolicy) -> str:
    """Return what is wrong with one name or address of a node by one rule of `RULES`; '' if nothing is."""
    return RULES[rule](_Asked(text=name, node=node, address=formats.address(name)), policy)


def known_as(name: str) -> str:
    """Return the canonical form in which names and addresses are stored and compared: `2001:DB8:0::1` is `2001:db8::1`."""
    address = formats.address(name)
    return name if address is None else str(address)


def node_name_refused(name: str, policy: NamePolicy) -> NameRefused | None:
    """Return why a node may not have a name: its form, reserved, used by another node, or not allowed by the cluster."""
    asked = _Asked(text=name, node=name, address=formats.address(name))
    problem = "is an address" if asked.address is not None else _has_form(asked, policy)
    if problem:
        return NameRefused(rule="NameForm", message=f"the node name {quoted(name)} {problem}")
    problem = _is_reserved(asked, policy)
    if problem:
        return NameRefused(rule="NameReserved", message=f"the node name {quoted(name)} {problem}")
    problem = _is_foreign(asked, policy)
    if problem:
        return NameRefused(rule="NameTaken", message=f"the node name {quoted(name)} {problem}")
    if policy.node_names and not _fits(name, policy.node_names):
        return NameRefused(rule="NameNotAllowed", message=f"the node name {quoted(name)} fits none of {', '.join(policy.node_names)}")
    return None


def names_refused(names: Sequence[str], node: str, policy: NamePolicy, *, loopback: bool = False) -> NameRefused | None:
    """Return which of the names for a node's certificate is not allowed, and why.

    `loopback` allows those of stock joins.
    """
    if len(names) > MOST_NAMES:
        return NameRefused(rule="SanForm", message=f"{len(names)} names are more than {MOST_NAMES}")
    seen: set[str] = set()
    for name in names:
        if loopback and name in LOOPBACKS:
            continue
        address = formats.address(name)
        asked = _Asked(text=name, node=node, address=address)
        found = next(((rule, problem) for rule, look in RULES.items() if (problem := look(asked, policy))), None)
        if found is None and known_as(name) in seen:
            found = ("SanForm", "is listed twice")
        if found is not None:
            return NameRefused(rule=found[0], message=f"{quoted(name[:253])} {found[1]}")
        seen.add(known_as(name))
    return None
