"""The meaning of plain scalars in goyaml v2, and writing values as plain scalars. Mirrors goyaml's `resolve.go`."""

from __future__ import annotations

import calendar
import math
from typing import Final

from kubewright.base.patterns import Pattern

_WORDS: Final[dict[str, object]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_NUMBER_START: Final = frozenset("+-.0123456789")
# Go's strconv.ParseInt with base 0; underscores are removed first, as in goyaml.
_INTEGER: Final = Pattern(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|([1-9][0-9]*|0))")
_SIGN_AFTER_PREFIX: Final = Pattern(r"0b([-+][01]+)")
_FLOAT: Final = Pattern(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_POINT_FLOAT: Final = Pattern(r"\.[0-9]+(?:_[0-9]+)*(?:[eE][-+]?[0-9]+(?:_[0-9]+)*)?")
_SEXAGESIMAL: Final = Pattern(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
_TIMESTAMP: Final = Pattern(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:(?P<sep>[Tt]| +)([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:[.,][0-9]+)?(?P<zone>Z|[-+]([0-9]{2}):([0-9]{2}))?)?"
)
_MOST_DIGITS: Final = 20
"""A longer decimal number does not fit into 64 bits. Python is slow with thousands of digits, and refuses more than 4,300."""
_UINT64: Final = 1 << 64
_INT64: Final = 1 << 63


class Timestamp(str):
    """A plain scalar that looks like a date. It is read as a string, and must be quoted when it is written."""

    __slots__ = ()


def plain(text: str) -> object:
    """Return what an unquoted scalar means: None, bool, int, float, Timestamp or str."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_START:
        return text
    if text[0] == ".":
        return _finite(text) if _POINT_FLOAT.fullmatch(text) else text
    if _is_timestamp(text):
        return Timestamp(text)
    digits = text.replace("_", "")
    number = _integer(digits)
    if number is not None:
        return number
    return _finite(digits, otherwise=text) if _FLOAT.fullmatch(digits) else text


def reads_as_text(text: str) -> bool:
    """Return whether a string may be written unquoted: neither goyaml nor a YAML 1.1 parser would read it as another type."""
    return type(plain(text)) is str and _SEXAGESIMAL.fullmatch(text) is None


def _integer(digits: str) -> int | None:
    found = _INTEGER.fullmatch(digits)
    if found is None:
        odd = _SIGN_AFTER_PREFIX.fullmatch(digits)  # goyaml strips `0b` and lets Go read the rest, sign included
        return int(odd[1], 2) if odd and abs(int(odd[1], 2)) < _INT64 else None
    sign, *by_base = found.groups()
    if by_base[-1] is not None and len(by_base[-1]) > _MOST_DIGITS:
        return None
    value = next(int(part, base) for part, base in zip(by_base, (16, 2, 8, 10), strict=True) if part is not None)
    if sign == "-":
        return -value if value <= _INT64 else None
    limit = _INT64 if sign else _UINT64
    return value if value < limit else None


def _finite(digits: str, *, otherwise: str | None = None) -> object:
    value = float(digits)
    if math.isfinite(value):
        return value
    return digits if otherwise is None else otherwise


def _is_timestamp(text: str) -> bool:
    found = _TIMESTAMP.fullmatch(text) if len(text) >= 8 and text[4] == "-" else None
    if found is None:
        return False
    year, month, day = int(found[1]), int(found[2]), int(found[3])
    # Go's year 0 is a leap year; Python has no year 0
    if not 1 <= month <= 12 or not 1 <= day <= calendar.monthrange(year or 4, month)[1]:
        return False
    if found["sep"] is None:
        return True
    if int(found[5]) > 23 or int(found[6]) > 59 or int(found[7]) > 59:
        return False
    if found["sep"] in {"T", "t"}:
        return found["zone"] is not None and (found["zone"] == "Z" or (int(found[9]) <= 24 and int(found[10]) <= 60))
    return found["zone"] is None


def json_number(value: float) -> int | float:
    """Return a number as Go's JSON has it: a whole float below 1e21 becomes an integer."""
    if isinstance(value, int) and -_INT64 <= value < _UINT64:
        return value
    if value == int(value) and abs(value) < 1e21:
        from decimal import Decimal  # few documents contain such numbers

        return int(Decimal(repr(float(value))))
    return float(value)


def number_text(value: float) -> str:
    """Format a number as goyaml does after the conversion to JSON (Go's `%v` of int64, uint64 or float64)."""
    value = json_number(value)
    if isinstance(value, int) and -_INT64 <= value < _UINT64:
        return str(value)
    return go_float(float(value))


def go_float(value: float) -> str:
    """Format as Go's `strconv.FormatFloat(value, 'g', -1, 64)`: the shortest digits, an exponent below 1e-4 and from 1e6 on."""
    from decimal import Decimal

    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits))
    power = exponent + len(shown) - 1
    prefix = "-" if sign else ""
    if -4 <= power < 6:
        return format(Decimal(repr(value)).normalize(), "f")
    fraction = f".{shown[1:]}" if len(shown) > 1 else ""
    return f"{prefix}{shown[0]}{fraction}e{'-' if power < 0 else '+'}{abs(power):02d}"
