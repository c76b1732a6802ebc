"""Randomness as a seam: keys, tokens, serial numbers and jitter all draw from an injected `Random`.

Light: `kubewright token generate` loads neither `secrets` nor `typing` for it.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object


def token_bytes(count: int) -> bytes:
    """Return so many bytes fit for secrets (getrandom(2)), for commands that have no seams."""
    return os.urandom(count)


class Random(Protocol):
    """Where random values come from."""

    def token_bytes(self, count: int, /) -> bytes:
        """Return so many bytes fit for secrets."""

    def uniform(self) -> float:
        """Return a number in [0, 1), for jitter only."""


class SystemRandom:
    """The operating system's generator for secrets, a fast one for jitter."""

    def token_bytes(self, count: int, /) -> bytes:
        return token_bytes(count)

    def uniform(self) -> float:
        import random  # needed for jitter only

        return random.random()


class SeededRandom:
    """Repeatable values for tests. Never use it for anything that protects something."""

    def __init__(self, seed: int = 0) -> None:
        import random

        self._random = random.Random(seed)

    def token_bytes(self, count: int, /) -> bytes:
        return self._random.randbytes(count)

    def uniform(self) -> float:
        return self._random.random()
