"""Parts of JSON documents whose types nobody has checked: a value of another type counts as missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def mapping(value: object) -> Mapping[str, Any]:
    """Return a map; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> Sequence[Any]:
    """Return a list; an empty one for anything else."""
    return value if isinstance(value, list | tuple) else ()


def mappings(value: object) -> Sequence[Mapping[str, Any]]:
    """Return the maps in a list."""
    return [one for one in items(value) if isinstance(one, Mapping)]


def text(value: object) -> str:
    """Return a text; an empty one for anything else."""
    return value if isinstance(value, str) else ""


def texts(value: object) -> tuple[str, ...]:
    """Return the texts in a list."""
    return tuple(one for one in items(value) if isinstance(one, str))
