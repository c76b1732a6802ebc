"""The `help` command."""

from __future__ import annotations

import sys

from kubewright.cli import commands, helptext, parser


def explain(parsed: parser.Parsed) -> int:
    """Print the help of the command that the words name; words behind it are ignored.

    An unknown first word is told on stderr, with the commands that there are, and is no failure: kubeadm has it so (spec/kubeadm.md 15.2).
    """
    words = parsed.strings("command")
    found = parser.find(words)
    program = parser.program_name()
    if not found.command.words and found.left:
        shown = " ".join(f"`{word}`" for word in words)
        sys.stderr.write(f"Unknown help topic [{shown}]\n{helptext.render(commands.ROOT, program=program)}")
        return 0
    sys.stdout.write(helptext.render(found.command, program=program))
    return 0
