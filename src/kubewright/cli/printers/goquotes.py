"""Go's quoted texts, read: `strconv.Unquote` for double quotes, and client-go's same rules for single ones."""

from __future__ import annotations

import re
from typing import Final

from kubewright.cli.printers.problem import Problem

_SIMPLE: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})|(.))|\\", re.DOTALL)


def unquote(text: str) -> str:
    """Return what a quoted text means. Raises Problem."""
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
