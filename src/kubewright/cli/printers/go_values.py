"""Plain values as in Go: the names of types, formatting by `fmt`, unquoting by `strconv`; and problems of templates.

Objects come from JSON, so a value is None, a bool, a str, a number, a list or a dict with text keys. `Int` is Go's
`int`, for literals and lengths; a plain `int` is the `int64` of decoded JSON. `MISSING` is Go's invalid value: the
result of a missing key.
"""

from __future__ import annotations

import math
import re
from typing import Final

from kubewright.base.yaml.scalars import go_float


class Problem(ValueError):
    """A template that cannot be parsed, or does not match the object.

    The text is Go's where scripts may depend on it.
    """


class MissingKey(Problem):
    """A field or key is missing, and missing ones are not allowed."""


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
    """Return the Go type of a value, as `%T` prints it."""
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
    """Format a value as Go's `%v`."""
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


_SIMPLE: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})|(.))|\\", re.DOTALL)


def unquote(text: str) -> str:
    """Return the value of a quoted text. Raises Problem."""
    if len(text) < 2 or text[0] != text[-1] or text[0] not in "\"'":
        raise Problem(f"unquote string {text} error invalid syntax")
    mark, inside = text[0], text[1:-1]
    if mark in _ESCAPE.sub("", inside):
        raise Problem(f"unquote string {text} error invalid syntax")
    try:
        return _ESCAPE.sub(lambda found: _meaning(found, mark), inside)
    except ValueError as error:
        raise Problem(f"unquote string {text} error invalid syntax") from error


def _meaning(found: re.Match[str], mark: str) -> str:
    """Return the character of an escape. Raises ValueError."""
    byte, short, long, octal, simple = found.groups()
    if simple is not None:
        if simple == mark:
            return simple
        if simple not in _SIMPLE:
            raise ValueError(simple)
        return _SIMPLE[simple]
    if not (byte or short or long or octal):
        raise ValueError(found[0])
    code = int(octal, 8) if octal else int(byte or short or long, 16)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF or (octal and code > 0xFF):
        raise ValueError(code)
    return chr(code)
