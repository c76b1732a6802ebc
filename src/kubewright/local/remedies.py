"""What to do about a process that died, from its last words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

REMEDIES: Final = (
    ("no space left on device", "free some space (`df -h` and `df -i` show it)"),
    ("the disk is full", "free some space (`df -h` and `df -i` show it)"),
    ("address already in use", "end what holds the port (`ss -ltnp` names it)"),
    ("cannot run as a process", "correct extraVolumes of the configuration"),
    ("permission denied", "see the owner and the mode of the file that it names"),
)
"""A text in the last words, in small letters, and the remedy; the first row that fits."""


def of(words: Iterable[str], default: str) -> str:
    """Return the remedy that fits some last words."""
    said = "\n".join(words).lower()
    return next((remedy for text, remedy in REMEDIES if text in said), default)
