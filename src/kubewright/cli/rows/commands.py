"""The command table: every command of kubewright.

Help, completion, parsing and the documentation are all generated from its rows.

The first words are here, in the order of help: `--help` needs no more. The rows below a word are in other modules of
this package, imported when a command is called or read; phases become commands as their tree defines.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kubewright.base.records import dataclass
from kubewright.cli.rows.model import ANY, BOOL, KUBEADM, LEVEL, MODULES, Argument, Command, Flag

if TYPE_CHECKING:
    from dataclasses import KW_ONLY

GLOBAL_FLAGS = (
    Flag("rootfs", "change the root directory to this one before anything else", metavar="dir"),
    Flag(
        "v",
        "verbosity of the log on stderr, 0 to 10: 4 shows decisions, 5 the traceback of an error, 6 requests, 8 differences",
        kind=LEVEL,
        default=0,
        short="v",
        metavar="level",
    ),
    Flag(
        "vmodule",
        "verbosity by source file, pattern=N,…; accepted for compatibility with kubeadm, without effect",
        kind=MODULES,
        metavar="levels",
    ),
)

VERSION = Flag(
    "version",
    "print the version of this program, and the Kubernetes version that it supports",
    kind=BOOL,
    default=False,
    not_as="kubeadm",
)
"""kubeadm has no such flag: scripts must not be able to distinguish us from it."""

ROOT = Command("", "Bring up Kubernetes control planes and join machines to them", flags=(VERSION,), exit_scheme=KUBEADM, shows_help=True)


@dataclass(eq=False)
class Head:
    """A first word: its summary, and the module with its rows as ROWS."""

    word: str
    summary: str
    rows: str = __name__
    _: KW_ONLY
    alias: str = ""
    hidden: bool = False


_LOCAL = "kubewright.cli.rows.local"
_MACHINE = "kubewright.cli.rows.machine"
_CLUSTER = "kubewright.cli.rows.cluster"
_AGENT = "kubewright.cli.rows.agent"
_CONTROLLERS = "kubewright.cli.rows.controllers"
_HUB = "kubewright.cli.rows.hub"
_NODE = "kubewright.cli.rows.node"
_ETCD = "kubewright.cli.rows.etcd"
_BACKUP = "kubewright.cli.rows.backup"

HEADS = (
    Head("up", "Start a local cluster, or repair and scale an existing one", _LOCAL),
    Head("down", "Stop a local cluster and remove it", _LOCAL),
    Head("local", "Inspect local clusters", _LOCAL),
    Head("binaries", "Fetch the component binaries", _LOCAL),
    Head("preflight", "Check whether this machine can become part of a cluster", _MACHINE),
    Head("init", "Make this machine the first control plane of a cluster", _MACHINE),
    Head("join", "Join this machine to a cluster", _MACHINE),
    Head("reset", "Undo the changes of init or join on this machine", _MACHINE),
    Head("controllers", "Approve and sign certificate requests in place of kube-controller-manager", _CONTROLLERS),
    Head("csr", "Inspect certificate requests", _CONTROLLERS),
    Head("agent", "Make this machine a node without a kubelet", _AGENT),
    Head("hub", "Let machines join clusters with NodeJoinRequests", _HUB),
    Head("node", "Join this machine to a cluster through a hub", _NODE),
    Head("upgrade", "Upgrade a cluster to another version", _MACHINE),
    Head("etcd", "Manage etcd: its members and snapshots of its data", _ETCD),
    Head("backup", "Save a control plane to a file, and restore it on a fresh machine", _BACKUP),
    Head("certs", "Manage certificates", _CLUSTER, alias="certificates"),
    Head("config", "Print, check and migrate configuration files", _CLUSTER),
    Head("kubeconfig", "Create kubeconfig files", _CLUSTER),
    Head("token", "Manage bootstrap tokens", _CLUSTER),
    Head("version", "Print the version"),
    Head("completion", "Print the completion script of a shell"),
    Head("help", "Explain a command"),
    Head("recover", "Complete files that a power cut left partly replaced", _MACHINE, hidden=True),
    Head("alpha", "Experimental commands; there are none now", hidden=True),
)
_SUMMARIES = {head.word: head.summary for head in HEADS}


def summary(word: str) -> str:
    """Return the summary of a first word."""
    return _SUMMARIES[word]


_VERSION_FORMATS = ("", "short", "json", "yaml")

ROWS = (
    Command(
        "version",
        summary("version"),
        handler="kubewright.cli.handlers.light_commands:version",
        flags=(
            Flag("output", "format of the result: short, json, yaml", default="", short="o", choices=_VERSION_FORMATS, metavar="format"),
        ),
        exit_scheme=KUBEADM,
    ),
    Command(
        "completion",
        summary("completion"),
        handler="kubewright.cli.handlers.completion:completion",
        argument=Argument("shell", "bash, zsh or fish", shown="SHELL", most=ANY),
        exit_scheme=KUBEADM,
        examples=("source <(kubewright completion bash)", "kubewright completion fish | source"),
    ),
    Command(
        "help",
        summary("help"),
        handler="kubewright.cli.printers.helptext:explain",
        argument=Argument("command", "words of the command; none: all commands", shown="[command]", most=ANY),
        exit_scheme=KUBEADM,
        examples=("help init phase certs",),
    ),
    Command("alpha", summary("alpha"), exit_scheme=KUBEADM, hidden=True, shows_help=True),
)
"""The rows of `version`, `completion`, `help` and `alpha`."""


class Table:
    """The commands below these first words.

    Rows are imported when they are read, and the commands of phases are then generated from their trees.
    """

    def __init__(self, heads: Sequence[Head]) -> None:
        self.heads = {head.word: head for head in heads}
        self._made: dict[str, tuple[Command, ...]] = {}

    def below(self, parent: Command, word: str) -> Command | None:
        """Return the command that a word denotes directly below another one, aliases included."""
        if not parent.words:
            head = next((head for head in self.heads.values() if word and word in {head.word, head.alias}), None)
            return self._rows(head.word)[0] if head else None
        return next((row for row in self._directly_below(parent) if word == row.words[-1] or word in row.aliases), None)

    def children(self, parent: Command, *, hidden: bool = False) -> tuple[Command, ...]:
        """Return the commands directly below one, in the table's order; for the program itself, only with path and summary."""
        if not parent.words:
            heads = (head for head in self.heads.values() if hidden or not head.hidden)
            return tuple(Command(head.word, head.summary, hidden=head.hidden) for head in heads)
        return tuple(row for row in self._directly_below(parent) if hidden or not row.hidden)

    def command(self, *words: str) -> Command:
        """Return the command with a path, aliases included. Raises KeyError if there is none."""
        found = ROOT
        for word in words:
            row = self.below(found, word)
            if row is None:
                raise KeyError(" ".join(words))
            found = row
        return found

    def every(self) -> tuple[Command, ...]:
        """Return all rows, the program itself first. Imports every row module."""
        return (ROOT, *(one for word in self.heads for row in self._rows(word) for one in (row, *self._below_row(row))))

    def _directly_below(self, parent: Command) -> list[Command]:
        depth = len(parent.words)
        rows = self._rows(parent.words[0])
        made = (one for row in rows if row.words == parent.words[: len(row.words)] for one in self._below_row(row))
        return [row for row in (*rows, *made) if len(row.words) == depth + 1 and row.words[:depth] == parent.words]

    def _rows(self, word: str) -> list[Command]:
        """Return the rows under a first word, its own first."""
        return [row for row in imported(f"{self.heads[word].rows}:ROWS") if row.words[0] == word]

    def _below_row(self, row: Command) -> tuple[Command, ...]:
        """Return the commands that are generated below a row, the same ones each time."""
        if row.path not in self._made:
            self._made[row.path] = (*_phase_commands(row), *(imported(row.makes)() if row.makes else ()))
        return self._made[row.path]


TABLE = Table(HEADS)


def imported(name: str) -> Any:
    """Import an object named as `module:name`."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _phase_commands(row: Command) -> list[Command]:
    """Return `… phase` and a command for each phase of a command's tree.

    A group of phases has neither handler nor flags.
    """
    workflow = row.workflow
    if workflow is None or not workflow.phases:
        return []
    found = [Command(f"{row.path} phase", f"Run one phase of {row.words[-1]}", exit_scheme=row.exit_scheme)]
    for node in imported(workflow.phases).commands:
        phase = node.phase
        leaf = not phase.children
        found.append(
            Command(
                f"{row.path} phase {node.name.replace('/', ' ')}",
                phase.summary,
                flags=tuple(workflow.flags[flag] for flag in f"{phase.flags} {workflow.ours}".split()) if leaf else (),
                argument=workflow.arguments.get(phase.argument),
                aliases=phase.aliases,
                exit_scheme=row.exit_scheme,
                workflow=workflow if leaf else None,
            )
        )
    return found
