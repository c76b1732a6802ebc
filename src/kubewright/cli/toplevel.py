"""The first words of the command line, in the order in which help shows them, and the modules that hold their rows.

`--help` needs no more than this; a row module is imported when its command is called or looked at.
"""

from __future__ import annotations

from kubewright.cli.model import BOOL, KUBEADM, LEVEL, MODULES, Command, Flag

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
    """A first word: what it is about, and the module of `kubewright.cli` that holds its rows."""

    def __init__(self, word: str, summary: str, rows: str, *, alias: str = "", hidden: bool = False) -> None:
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
    Head("certs", "Look after certificates", "certs_rows", alias="certificates"),
    Head("config", "Print, check and migrate configuration files", "config_commands"),
    Head("kubeconfig", "Make kubeconfig files", "kubeconfig_rows"),
    Head("token", "Work with bootstrap tokens", "token_rows"),
    Head("version", "Print the version", "small_rows"),
    Head("completion", "Print the completion script of a shell", "small_rows"),
    Head("help", "Explain a command", "small_rows"),
    Head("alpha", "Experimental commands; there are none now", "small_rows", hidden=True),
)
HEADS = {head.word: head for head in _HEADS}


def summary(word: str) -> str:
    """Return what a first word is about."""
    return HEADS[word].summary
