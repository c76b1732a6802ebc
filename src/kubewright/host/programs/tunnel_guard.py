"""Rules that limit which machines a tunnel's peers may reach: each other, given networks, and clients that they answer.

There is an nftables table for each interface. Its comment identifies the rules in it, so that nothing has to compare
rules as `nft` prints them. Pure.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Sequence
from typing import Final

from kubewright.base.patterns import Pattern

PROGRAM: Final = "nft"
_MARK: Final = Pattern(r'.*comment "kubewright ([0-9a-f]{16})".*', 0)
_CHAIN: Final = """\
  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname != "{name}" accept
    oifname "{name}" accept
    ct state established,related accept
{outside}    drop
  }}
"""


def table(name: str) -> str:
    """Return the name of an interface's table."""
    return f"kubewright-{name}"


def rules(name: str, outside: Sequence[str]) -> str:
    """Return the input of `nft -f` that atomically replaces the table. `outside` are networks that peers may reach."""
    head = f"table inet {table(name)}"
    return f'{head}\ndelete {head}\n{head} {{\n  comment "kubewright {mark(name, outside)}"\n{_chain(name, outside)}}}\n'


def mark(name: str, outside: Sequence[str]) -> str:
    """Return a mark that identifies these rules."""
    return hashlib.sha256(_chain(name, outside).encode()).hexdigest()[:16]


def found_mark(listed: str) -> str:
    """Return the mark in the output of `nft list table`, '' if it has none."""
    marks = (found[1] for line in listed.splitlines() if (found := _MARK.match(line)) is not None)
    return next(marks, "")


def _chain(name: str, outside: Sequence[str]) -> str:
    networks = map(ipaddress.ip_network, outside)
    allowed = (f"    {'ip' if network.version == 4 else 'ip6'} daddr {network} accept\n" for network in networks)
    return _CHAIN.format(name=name, outside="".join(allowed))
