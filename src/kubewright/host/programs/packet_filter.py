"""Rules of kube-proxy and CNI plugins in the packet filter: how to recognize them, and the commands that remove them.

Every command is an argument list from the tables here; rules are recognized by the names that these programs give them
(kube-proxy v1.36: pkg/proxy/{nftables,iptables,ipvs}; CNI plugins v1.9: portmap, bridge).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kubewright.base.change import Action, Change
from kubewright.base.errors import HostError
from kubewright.base.patterns import Pattern
from kubewright.base.records import dataclass
from kubewright.host.programs.commands import Commands
from kubewright.host.readers import Programs

WITHIN: Final = 60.0
"""Seconds per command: tens of thousands of rules take a while."""

TABLES: Final = frozenset({"kube-proxy", "cni_hostport", "cni_plugins_masquerade"})
"""nftables: each program has its own tables."""

SAVERS: Final[Mapping[str, str]] = {
    "iptables-save": "iptables-restore",
    "ip6tables-save": "ip6tables-restore",
    "iptables-legacy-save": "iptables-legacy-restore",
    "ip6tables-legacy-save": "ip6tables-legacy-restore",
}
"""The commands that show and change the chains of iptables; either of its two implementations may be in use."""

DEVICE: Final = "kube-ipvs0"
"""The network device that kube-proxy creates in `ipvs` mode. If it exists, the virtual servers are kube-proxy's."""

_CHAIN: Final = Pattern(r":((?:KUBE|CNI)-\S+) ")
_JUMP: Final = Pattern(r"-A (?P<chain>\S+) .*-[jg] (?P<to>(?:KUBE|CNI)-\S+)(?: |$)")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """A separately removable part of the packet filter: `target` names it, `argv` removes it, with `text` as standard input."""

    target: str
    argv: tuple[str, ...]
    text: str = ""


class RealPacketFilter:
    """The packet filter of this machine, accessed with the installed tools."""

    def __init__(self, commands: Commands, *, programs: Programs) -> None:
        self._commands = commands
        self._programs = programs

    def found(self) -> list[Rules]:
        return [*self._nftables(), *self._iptables(), *self._ipvs()]

    def remove(self, rules: Rules, /) -> Change:
        self._run(rules.argv, text=rules.text)
        return Change(target=rules.target, action=Action.DELETE)

    def _nftables(self) -> Iterator[Rules]:
        if self._programs.path("nft") is not None:
            yield from of_nftables(self._run(("nft", "list", "tables")))

    def _iptables(self) -> Iterator[Rules]:
        for save, restore in SAVERS.items():
            if self._programs.path(save) is not None and self._programs.path(restore) is not None:
                yield from of_iptables(self._run((save,)), restore=restore)

    def _ipvs(self) -> Iterator[Rules]:
        if self._programs.path("ipvsadm") is None or self._programs.path("ip") is None:
            return
        if DEVICE in self._run(("ip", "-oneline", "link", "show")):
            yield Rules(target="virtual servers of ipvs", argv=("ipvsadm", "--clear"))
            yield Rules(target=f"network device {DEVICE}", argv=("ip", "link", "delete", DEVICE))

    def _run(self, argv: Sequence[str], *, text: str = "") -> str:
        ended = self._commands.run(argv, within=WITHIN, text=text)
        if ended.code:
            raise HostError(
                f"`{' '.join(argv)}` failed", detail=ended.err.strip() or f"exit code {ended.code}", remedy="run it by hand to see why"
            )
        return ended.out


def of_nftables(tables: str) -> Iterator[Rules]:
    """Find our tables in the output of `nft list tables`: one line `table FAMILY NAME` each."""
    for words in map(str.split, tables.splitlines()):
        if len(words) == 3 and words[0] == "table" and words[2] in TABLES:
            yield Rules(target=f"nftables {' '.join(words)}", argv=("nft", "delete", *words))


def of_iptables(saved: str, *, restore: str) -> Iterator[Rules]:
    """Find our chains in the output of `iptables-save`, and the rules of other chains that jump to them: one value per table."""
    table, lines = "", list[str]()
    for line in saved.splitlines():
        if line.startswith("*"):
            table, lines = line[1:], []
        elif line == "COMMIT":
            yield from _of_table(table, lines, restore=restore)
        else:
            lines.append(line)


def _of_table(table: str, lines: Sequence[str], *, restore: str) -> Iterator[Rules]:
    chains = [found[1] for line in lines if (found := _CHAIN.match(line))]
    if not chains:
        return
    own = set(chains)
    jumps = [line for line in lines if (found := _JUMP.match(line)) and found["to"] in own and found["chain"] not in own]
    text = [f"*{table}", *(f":{chain} - [0:0]" for chain in chains)]  # naming a chain empties it
    text += [f"-D {line.removeprefix('-A ')}" for line in jumps]
    text += [f"-X {chain}" for chain in chains]
    name = restore.removesuffix("-restore")
    target = f"{name} table {table}: {len(chains)} chains KUBE-* and CNI-*"
    yield Rules(target=target, argv=(restore, "--noflush", "--wait"), text="\n".join([*text, "COMMIT", ""]))
