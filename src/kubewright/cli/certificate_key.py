"""The `certs certificate-key` command, alone in its file so that it loads nothing."""

from __future__ import annotations

import sys

from kubewright.base.entropy import token_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kubewright.cli.parser import Parsed

KEY_SIZE = 32
"""Bytes of an AES-256 key, as `pki.sealing` takes them."""


def certificate_key(parsed: Parsed) -> int:
    """Print a random key for sealing uploaded certificates, 64 hexadecimal digits."""
    form, key = parsed.text("output"), token_bytes(KEY_SIZE).hex()
    if form == "text":
        sys.stdout.write(f"{key}\n")
    else:
        from kubewright.cli.output import write_result

        write_result({"certificateKey": key}, form=form)
    return 0
