"""The `token` commands."""

from __future__ import annotations

import sys

from kubewright.cli.parser import Parsed


def generate(parsed: Parsed) -> int:
    """Print a random bootstrap token; needs no cluster."""
    from kubewright.base.randomness import SystemRandom
    from kubewright.tokens import generate as generate_token

    sys.stdout.write(f"{generate_token(SystemRandom())}\n")
    return 0
