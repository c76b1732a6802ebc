"""The `completion` command: scripts made from the command table, by shtab for bash and zsh, by ourselves for fish."""

from __future__ import annotations

import sys

from kubewright.base.errors import UsageError
from kubewright.cli.parser import Parsed, program_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from kubewright.cli.model import Command, Flag

SHELLS = ("bash", "zsh", "fish")


def completion(parsed: Parsed) -> int:
    """Print the completion script of a shell."""
    given = parsed.strings("shell")
    remedy = f"choose one of {', '.join(SHELLS)}"
    if not given:
        raise UsageError("shell not specified", remedy=remedy)
    if len(given) > 1:
        raise UsageError("too many arguments. expected only the shell type", remedy=remedy)
    if given[0] not in SHELLS:
        raise UsageError(f'unsupported shell type "{given[0]}", the supported shell types are [{" ".join(SHELLS)}]', remedy=remedy)
    sys.stdout.write(script(given[0], program=program_name()))
    return 0


def script(shell: str, *, program: str) -> str:
    """Return the script that completes the program's commands and flags."""
    from kubewright.cli import commands

    if shell == "fish":
        from kubewright.cli import fish

        return fish.script(commands.every(), program=program)
    import shtab

    found: str = shtab.complete(_tree(commands.ROOT, program), shell=shell)
    return found


def _tree(command: Command, program: str) -> argparse.ArgumentParser:
    """Build the whole parser for shtab: our own parser needs no more than one row of the table."""
    import argparse

    parser = argparse.ArgumentParser(prog=program, description=command.summary)
    _fill(parser, command, program)
    return parser


def _fill(parser: argparse.ArgumentParser, command: Command, program: str) -> None:
    from kubewright.cli import commands

    for flag in (*commands.GLOBAL_FLAGS, *command.flags_as(program)):
        if not flag.hidden:
            _add(parser, flag)
    below = commands.children(command)
    if below:
        group = parser.add_subparsers()
        for child in below:
            row = commands.below(command, child.words[-1]) or child
            _fill(group.add_parser(row.words[-1], help=row.summary), row, program)


def _add(parser: argparse.ArgumentParser, flag: Flag) -> None:
    names = [f"-{flag.short}", f"--{flag.name}"] if flag.short else [f"--{flag.name}"]
    if flag.kind == "bool":
        parser.add_argument(*names, dest=flag.dest, action="store_true", help=flag.summary)
    else:
        parser.add_argument(*names, dest=flag.dest, choices=flag.choices or None, help=flag.summary)
