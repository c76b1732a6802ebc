"""Random bytes from the operating system, alone in its file: `kubewright token generate` must not load `secrets` and `typing` for them."""

import os


def token_bytes(count: int) -> bytes:
    """Return so many bytes fit for secrets (getrandom(2))."""
    return os.urandom(count)
