"""The rows of version, completion, help and alpha. Imports nothing heavy."""

from __future__ import annotations

from kubewright.cli.model import ANY, KUBEADM, Argument, Command, Flag
from kubewright.cli.toplevel import summary

_FORMATS = ("", "short", "json", "yaml")

ROWS = (
    Command(
        "version",
        summary("version"),
        handler="kubewright.cli.version:version",
        flags=(Flag("output", "form of the result: short, json, yaml", default="", short="o", choices=_FORMATS, metavar="format"),),
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
        handler="kubewright.cli.helping:explain",
        argument=Argument("command", "words of the command; none: all commands", shown="[command]", most=ANY),
        exit_scheme=KUBEADM,
        examples=("help init phase certs",),
    ),
    Command("alpha", summary("alpha"), exit_scheme=KUBEADM, hidden=True, shows_help=True),
)
