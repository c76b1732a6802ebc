"""Secrets that do not stand on the command line, where every user of the machine can read them (`ps`, /proc)."""

from __future__ import annotations

import sys
from pathlib import Path

from kubewright.base.errors import UsageError
from kubewright.base.secrecy import remember_token

STANDARD_INPUT = "-"
_LIMIT = 1 << 16


def read_file(path: str) -> str:
    """Return the first line of a file, or the next one of standard input for `-`. Raises UsageError where it cannot be read or is empty."""
    try:
        text = sys.stdin.readline(_LIMIT) if path == STANDARD_INPUT else _content(path)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{_name(path)} cannot be read", detail=getattr(error, "strerror", "") or "not text", remedy="check it") from error
    first = text.strip().partition("\n")[0].strip()
    if not first:
        raise UsageError(f"{_name(path)} is empty", remedy="it must hold the secret on one line")
    return remember_token(first)


def secret(text: str) -> str:
    """Return a secret given as it is, as `-` for standard input, or as the path of a file: tokens and keys have no `/`. Raises UsageError."""
    return read_file(text) if text == STANDARD_INPUT or "/" in text else remember_token(text)


def _content(path: str) -> str:
    with Path(path).open(encoding="utf-8") as stream:
        return stream.read(_LIMIT)


def _name(path: str) -> str:
    return "standard input" if path == STANDARD_INPUT else path
