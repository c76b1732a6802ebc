"""Help texts, made from the command table."""

from __future__ import annotations

import textwrap

from kubewright.cli import commands
from kubewright.cli.model import BOOL, Command, Flag

WIDTH = 100


def render(command: Command, *, program: str) -> str:
    """Return the help text of a command."""
    parts = [_paragraph(command.description or f"{command.summary}."), "Usage:\n  " + usage(command, program=program)]
    below = commands.children(command)
    if below:
        parts.append("Commands:\n" + _columns([(row.words[-1], row.summary) for row in below]))
    if command.arguments:
        parts.append("Arguments:\n" + _columns([(a.name, a.summary) for a in command.arguments]))
    flags = [_flag_row(flag) for flag in command.flags if not flag.hidden]
    if flags:
        parts.append("Flags:\n" + _columns(flags))
    parts.append("Global flags:\n" + _columns([_flag_row(flag) for flag in commands.GLOBAL_FLAGS] + [("-h, --help", "show this help")]))
    if command.examples:
        parts.append("Examples:\n" + "\n".join(f"  {_example(line, program)}" for line in command.examples))
    if below:
        parts.append(f'Use "{" ".join((program, *command.words))} COMMAND --help" for more about a command.')
    return "\n\n".join(parts) + "\n"


def usage(command: Command, *, program: str) -> str:
    """Return the usage line of a command, without a leading word."""
    words = [program, *command.words]
    if commands.children(command):
        words.append("COMMAND" if not command.handler else "[COMMAND]")
    for argument in command.arguments:
        name = argument.name.upper() + ("..." if argument.many else "")
        words.append(f"[{name}]" if argument.optional else name)
    if command.flags:
        words.append("[flags]")
    return " ".join(words)


def _example(line: str, program: str) -> str:
    return line if program in line else f"{program} {line}"


def _paragraph(text: str) -> str:
    return textwrap.fill(text, WIDTH)


def _flag_row(flag: Flag) -> tuple[str, str]:
    left = f"-{flag.short}, --{flag.name}" if flag.short and flag.short != flag.name else f"    --{flag.name}"
    if flag.short == flag.name:
        left = f"-{flag.short}"
    if flag.kind != BOOL:
        left += f" {flag.metavar}"
    default = "" if flag.default in (None, "", False, ()) else f" (default {flag.default})"
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
