"""Randomness as a seam: keys, tokens, serial numbers and jitter all come from an injected `Random`."""

from __future__ import annotations

import os
import random
from typing import Protocol


class Random(Protocol):
    """A source of random values."""

    def token_bytes(self, count: int, /) -> bytes:
        """Return `count` bytes that are suitable for secrets."""

    def uniform(self) -> float:
        """Return a number in [0, 1). For jitter only."""


class SystemRandom:
    """The operating system's generator for secrets, and a fast one for jitter."""

    def token_bytes(self, count: int, /) -> bytes:
        return os.urandom(count)

    def uniform(self) -> float:
        return random.random()


class SeededRandom:
    """Repeatable values for tests. Never use it for anything that must be secret."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def token_bytes(self, count: int, /) -> bytes:
        return self._random.randbytes(count)

    def uniform(self) -> float:
        return self._random.random()
