"""The `completion` command: shtab makes the script from the command table."""

from __future__ import annotations

import argparse
import sys

from kubewright.base.errors import UsageError
from kubewright.cli import commands
from kubewright.cli.model import Command, Flag
from kubewright.cli.parser import Parsed, program_name

SHELLS = ("bash", "zsh")


def completion(parsed: Parsed) -> int:
    """Print the completion script of a shell."""
    import shtab

    shell = parsed.text("shell")
    if shell not in SHELLS:
        raise UsageError(f'unsupported shell type "{shell}"', remedy=f"choose one of {', '.join(SHELLS)}")
    sys.stdout.write(shtab.complete(_tree(commands.BY_WORDS[()], program_name()), shell=shell))
    return 0


def _tree(command: Command, program: str) -> argparse.ArgumentParser:
    """Build the whole parser: only completion needs more than one leaf of it."""
    parser = argparse.ArgumentParser(prog=program, description=command.summary)
    _fill(parser, command)
    return parser


def _fill(parser: argparse.ArgumentParser, command: Command) -> None:
    for flag in (*commands.GLOBAL_FLAGS, *command.flags):
        _add(parser, flag)
    for argument in command.arguments:
        parser.add_argument(argument.name, nargs="*" if argument.many else "?", help=argument.summary)
    below = commands.children(command)
    if below:
        group = parser.add_subparsers()
        for row in below:
            _fill(group.add_parser(row.words[-1], help=row.summary), row)


def _add(parser: argparse.ArgumentParser, flag: Flag) -> None:
    names = [f"-{flag.short}"] if flag.short else []
    if flag.short != flag.name:
        names.append(f"--{flag.name}")
    if flag.kind == "bool":
        parser.add_argument(*names, dest=flag.dest, action="store_true", help=flag.summary)
    else:
        parser.add_argument(*names, dest=flag.dest, choices=flag.choices or None, help=flag.summary)
