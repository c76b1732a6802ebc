"""Help texts, generated from the command table, and the `help` command."""

from __future__ import annotations

import sys
import textwrap

from kubewright.cli.parsing import parser
from kubewright.cli.parsing.parser import HELP, as_called
from kubewright.cli.rows.commands import GLOBAL_FLAGS, ROOT, TABLE, Table
from kubewright.cli.rows.model import BOOL, Command, Flag

WIDTH = 100


def render(command: Command, *, program: str, table: Table = TABLE) -> str:
    """Return the help text of a command."""
    parts = [textwrap.fill(as_called(command.description) or f"{command.summary}.", WIDTH)]
    parts += ["Usage:\n" + "".join(f"  {line}\n" for line in usage(command, program=program, table=table)).rstrip()]
    below = table.children(command)
    if below:
        parts.append("Commands:\n" + _columns([(row.words[-1], row.summary) for row in below]))
    parts += _phases(command, table)
    if command.argument and command.argument.shown:
        parts.append("Arguments:\n" + _columns([(command.argument.shown, command.argument.summary)]))
    flags = [_flag_row(flag) for flag in command.flags_as(program) if not flag.hidden]
    if flags:
        parts.append("Flags:\n" + _columns(flags))
    parts.append("Global flags:\n" + _columns([_flag_row(flag) for flag in (*GLOBAL_FLAGS, HELP)]))
    if command.examples:
        parts.append("Examples:\n" + "\n".join(f"  {_example(line, program)}" for line in command.examples))
    if below:
        parts.append(f'Use "{" ".join((program, *command.words))} [command] --help" for more about a command.')
    return "\n\n".join(parts) + "\n"


def usage(command: Command, *, program: str, table: Table = TABLE) -> list[str]:
    """Return the usage lines of a command, as in cobra, without a leading word."""
    called = " ".join((program, *command.words))
    lines = []
    if not command.shows_help:
        shown = command.argument.shown if command.argument else ""
        lines.append(" ".join(filter(None, (called, shown, "[flags]" if command.flags_in_usage else ""))))
    if table.children(command):
        lines.append(f"{called} [command]")
    return lines or [called]


def _phases(command: Command, table: Table) -> list[str]:
    """Return the tree of phases of a workflow, as in kubeadm's help: children indented and prefixed with `/`, no `all`."""
    top = next((row for row in table.children(command) if row.words[-1] == "phase"), None)
    if top is None:
        return []
    rows = []
    for phase in table.children(top):
        rows.append((phase.words[-1], phase.summary))
        rows += [(f"  /{row.words[-1]}", row.summary) for row in table.children(phase) if row.words[-1] != "all"]
    return [f"Phases, in the order in which {command.words[-1]} runs them:\n{_columns(rows)}"]


def _example(line: str, program: str) -> str:
    return as_called(line) if "kubewright" in line else f"{program} {line}"


def _flag_row(flag: Flag) -> tuple[str, str]:
    left = f"-{flag.short}, --{flag.name}" if flag.short else f"    --{flag.name}"
    if flag.kind != BOOL:
        left += f" {flag.metavar}"
    default = f" (default {flag.default_text})" if flag.default_text else ""
    return left, flag.summary + default


def _columns(rows: list[tuple[str, str]]) -> str:
    width = min(38, max(len(left) for left, _ in rows)) + 2
    lines = []
    for left, right in rows:
        filled = textwrap.wrap(right, WIDTH - width - 2) or [""]
        fits = len(left) <= width - 2
        if not fits:
            lines.append(f"  {left}")
        lines.append(f"  {left if fits else '':<{width}}{filled[0]}")
        lines.extend(" " * (width + 2) + line for line in filled[1:])
    return "\n".join(lines)


def explain(parsed: parser.Parsed) -> int:
    """Print the help of the command that the words name; words after it are ignored.

    An unknown first word is reported on stderr, with the available commands, and is not a failure, as in kubeadm v1.36.
    """
    words = parsed.strings("command")
    found = parser.find(words, table=parsed.table)
    program = parser.program_name()
    if not found.command.words and found.left:
        shown = " ".join(f"`{word}`" for word in words)
        sys.stderr.write(f"Unknown help topic [{shown}]\n{render(ROOT, program=program, table=parsed.table)}")
        return 0
    sys.stdout.write(render(found.command, program=program, table=parsed.table))
    return 0
