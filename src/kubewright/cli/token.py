"""The `token` commands."""

from __future__ import annotations

import sys

from kubewright.base.entropy import token_bytes
from kubewright.cli.parser import Parsed
from kubewright.tokens.characters import draw_token


def generate(_: Parsed) -> int:
    """Print a random bootstrap token; needs no cluster."""
    sys.stdout.write(".".join(draw_token(token_bytes)) + "\n")
    return 0
