"""The `token` commands."""

from __future__ import annotations

import sys

from kubewright.base.entropy import token_bytes
from kubewright.cli.parser import Parsed
from kubewright.tokens.characters import draw_token


def generate(parsed: Parsed) -> int:
    """Print a random bootstrap token; needs no cluster."""
    form, token = parsed.text("output"), ".".join(draw_token(token_bytes))
    if form == "text":
        sys.stdout.write(f"{token}\n")
    else:
        from kubewright.cli.output import OUTPUT_VERSION, write_result

        write_result({"kind": "BootstrapToken", "apiVersion": OUTPUT_VERSION, "token": token}, form=form)
    return 0
