"""Constants of a template: numbers, characters and texts as Go reads them."""

from __future__ import annotations

import math
import re
from typing import Final

from kubewright.cli.printers import goquotes
from kubewright.cli.printers.gotypes import Int
from kubewright.cli.printers.problem import Problem

_OCTAL: Final = re.compile(r"[+-]?0[0-7_]+")
_INT64: Final = 1 << 63


def number(text: str) -> object:
    """Return an Int, or a float where there is a point or an exponent. Raises Problem."""
    digits = text.replace("_", "")
    try:
        if _OCTAL.fullmatch(digits):
            return _checked(int(digits, 8))
        if re.fullmatch(r"[+-]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+|[0-9]+)", digits):
            return _checked(int(digits, 0))
        return _finite(float.fromhex(digits) if "x" in digits.lower() else float(digits))
    except (ValueError, OverflowError) as error:
        raise Problem(f'bad number syntax: "{text}"') from error


def _checked(value: int) -> Int:
    if not -_INT64 <= value < _INT64:
        raise OverflowError
    return Int(value)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise OverflowError
    return value


def character(text: str) -> Int:
    """Return the code of a character in single quotes. Raises Problem."""
    inside = goquotes.unquote(text)
    if len(inside) != 1:
        raise Problem(f"malformed character constant: {text}")
    return Int(ord(inside))


def string(text: str) -> str:
    """Return what a text in double quotes or backquotes means. Raises Problem."""
    return text[1:-1].replace("\r", "") if text.startswith("`") else goquotes.unquote(text)


def parse(kind: str, text: str) -> object:
    """Return the value of a token of kind number, character, string, raw or bool. Raises Problem."""
    if kind == "bool":
        return text == "true"
    return {"number": number, "character": character, "string": string, "raw": string}[kind](text)
