"""Go's view of plain values: the names of types, how values are written by `fmt`.

Objects come from JSON, so a value is None, a bool, a str, a number, a list or a dict with text keys. `Int` is Go's `int`, which literals and
lengths are; a plain `int` is the `int64` of decoded JSON. `MISSING` is Go's invalid value: what a missing key gives.
"""

from __future__ import annotations

import math
from typing import Final

from kubewright.base.yaml.scalars import go_float


class Int(int):
    """Go's `int`."""


class Byte(int):
    """Go's `uint8`: an element of a text."""


class Missing:
    """The type of MISSING."""

    def __repr__(self) -> str:
        return "<no value>"


MISSING: Final = Missing()


def type_name(value: object) -> str:
    """Return the Go type of a value, as `%T` writes it."""
    match value:
        case bool():
            return "bool"
        case Int():
            return "int"
        case Byte():
            return "uint8"
        case int():
            return "int64"
        case float():
            return "float64"
        case str():
            return "string"
        case list():
            return "[]interface {}"
        case dict():
            return "map[string]interface {}"
    return "<nil>"


def text(value: object) -> str:
    """Write a value as Go's `%v`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or value is MISSING:
        return "<nil>"
    if isinstance(value, float):
        return go_float(value) if math.isfinite(value) else _endless(value)
    if isinstance(value, list):
        return f"[{' '.join(text(item) for item in value)}]"
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{text(value[key])}' for key in sorted(value))}]"
    return str(value)


def _endless(value: float) -> str:
    return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
