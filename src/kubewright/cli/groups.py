"""Groups of commands that show their help and succeed when they are called alone, as kubeadm's `kubeconfig` does."""

from __future__ import annotations

import sys

from kubewright.cli import helptext, parser


def show(parsed: parser.Parsed) -> int:
    """Print the help of the command."""
    sys.stdout.write(helptext.render(parsed.command, program=parser.program_name()))
    return 0
