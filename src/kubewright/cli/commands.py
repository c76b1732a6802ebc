"""The command table: every command that kubewright has. Help, completion, parsing and the documentation all come from its rows.

The first words stand here, in the order in which help shows them: `--help` needs no more. The rows below a word are in modules of their own
(`*_rows`), imported when a command is called or looked at.
"""

from __future__ import annotations

from kubewright.cli.model import ANY, BOOL, KUBEADM, LEVEL, MODULES, Argument, Command, Flag

GLOBAL_FLAGS = (
    Flag("rootfs", "change the root directory to this one before anything else", metavar="dir"),
    Flag(
        "v",
        "verbosity of the log on stderr, 0 to 10: 4 tells decisions, 5 the traceback of an error, 6 requests, 8 differences",
        kind=LEVEL,
        default=0,
        short="v",
        metavar="level",
    ),
    Flag(
        "vmodule", "verbosity by source file, pattern=N,…; for kubeadm's scripts: checked, without effect", kind=MODULES, metavar="levels"
    ),
)

VERSION = Flag(
    "version", "print our version, and the version of Kubernetes that we are made for", kind=BOOL, default=False, not_as="kubeadm"
)
"""kubeadm has no such flag: scripts must not be able to tell us from it."""

ROOT = Command("", "Bring up Kubernetes control planes and join machines to them", flags=(VERSION,), exit_scheme=KUBEADM, shows_help=True)


class Head:
    """A first word: what it is about, and the module of `kubewright.cli` that holds its rows; those of this module without one."""

    def __init__(self, word: str, summary: str, rows: str = "", *, alias: str = "", hidden: bool = False) -> None:
        self.word = word
        self.summary = summary
        self.rows = rows
        self.alias = alias
        self.hidden = hidden


_HEADS = (
    Head("up", "Start a local cluster, or repair and scale the one that is there", "local_rows"),
    Head("down", "Stop a local cluster and remove it", "local_rows"),
    Head("local", "Look into local clusters", "local_rows"),
    Head("binaries", "Get the component binaries", "local_rows"),
    Head("preflight", "Check whether this machine can become a part of a cluster", "preflight_rows"),
    Head("init", "Make this machine the first control plane of a cluster", "init_rows"),
    Head("join", "Join this machine to a cluster", "join_rows"),
    Head("reset", "Undo on this machine what init or join did", "reset_rows"),
    Head("upgrade", "Upgrade a cluster to another version", "upgrade_rows"),
    Head("certs", "Look after certificates", "cluster_rows", alias="certificates"),
    Head("config", "Print, check and migrate configuration files", "cluster_rows"),
    Head("kubeconfig", "Make kubeconfig files", "cluster_rows"),
    Head("token", "Work with bootstrap tokens", "cluster_rows"),
    Head("version", "Print the version"),
    Head("completion", "Print the completion script of a shell"),
    Head("help", "Explain a command"),
    Head("alpha", "Experimental commands; there are none now", hidden=True),
)
HEADS = {head.word: head for head in _HEADS}


def summary(word: str) -> str:
    """Return what a first word is about."""
    return HEADS[word].summary


_VERSION_FORMATS = ("", "short", "json", "yaml")

OWN_ROWS = (
    Command(
        "version",
        summary("version"),
        handler="kubewright.cli.light_commands:version",
        flags=(Flag("output", "form of the result: short, json, yaml", default="", short="o", choices=_VERSION_FORMATS, metavar="format"),),
        exit_scheme=KUBEADM,
    ),
    Command(
        "completion",
        summary("completion"),
        handler="kubewright.cli.completion:completion",
        argument=Argument("shell", "bash, zsh or fish", shown="SHELL", most=ANY),
        exit_scheme=KUBEADM,
        examples=("source <(kubewright completion bash)", "kubewright completion fish | source"),
    ),
    Command(
        "help",
        summary("help"),
        handler="kubewright.cli.helptext:explain",
        argument=Argument("command", "words of the command; none: all commands", shown="[command]", most=ANY),
        exit_scheme=KUBEADM,
        examples=("help init phase certs",),
    ),
    Command("alpha", summary("alpha"), exit_scheme=KUBEADM, hidden=True, shows_help=True),
)
"""The rows of `version`, `completion`, `help` and `alpha`."""


def below(parent: Command, word: str) -> Command | None:
    """Return the command that a word means directly below another one; aliases count."""
    if not parent.words:
        head = next((head for head in HEADS.values() if word and word in {head.word, head.alias}), None)
        return _rows(head)[0] if head else None
    return next((row for row in _directly_below(parent) if word == row.words[-1] or word in row.aliases), None)


def children(parent: Command, *, hidden: bool = False) -> tuple[Command, ...]:
    """Return the commands directly below one, in the table's order; of the program itself only what help needs: path and summary."""
    if not parent.words:
        return tuple(Command(head.word, head.summary, hidden=head.hidden) for head in HEADS.values() if hidden or not head.hidden)
    return tuple(row for row in _directly_below(parent) if hidden or not row.hidden)


def command(*words: str) -> Command:
    """Return the command with a path; aliases count. Raises KeyError if there is none."""
    found = ROOT
    for word in words:
        row = below(found, word)
        if row is None:
            raise KeyError(" ".join(words))
        found = row
    return found


def every() -> tuple[Command, ...]:
    """Return all rows, the program itself first. Imports every row module."""
    return (ROOT, *(row for head in HEADS.values() for row in _rows(head)))


def _directly_below(parent: Command) -> list[Command]:
    depth = len(parent.words)
    return [row for row in _rows(HEADS[parent.words[0]]) if len(row.words) == depth + 1 and row.words[:depth] == parent.words]


def _rows(head: Head) -> tuple[Command, ...]:
    """Return the rows under a first word, its own first."""
    import importlib

    rows: tuple[Command, ...] = importlib.import_module(f"kubewright.cli.{head.rows}").ROWS if head.rows else OWN_ROWS
    return tuple(row for row in rows if row.words[0] == head.word)
