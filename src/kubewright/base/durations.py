"""Durations as Go writes them (`time.Duration`): `1h30m`, `4m0s`, `350ms`."""

from __future__ import annotations

import re
from typing import Final

from kubewright.base.messages import quoted
from kubewright.base.patterns import Pattern

SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE

_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
}
_LIMIT: Final = 1 << 63
_DIGITS: Final = 19
"""Enough digits for every 64-bit number; Go does not read more digits of a fraction either."""
_TERM: Final = Pattern(r"([0-9]*)(?:\.([0-9]*))?(ns|us|\u00b5s|\u03bcs|ms|s|m|h)", re.ASCII)


class Duration(int):
    """A length of time in whole nanoseconds. Its text has Go's form, which `Duration.parse` reads."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Duration:
        """Parse Go's form. Raises ValueError for everything that Go's `time.ParseDuration` refuses, including overflow of int64."""
        sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
        if rest == "0":
            return cls(0)
        total, position = 0, 0
        while position < len(rest):
            term = _TERM.match(rest, position)
            if term is None or not (term[1] or term[2]):
                raise ValueError(f"{quoted(text)} is not a duration; write it like 1h30m, 4m0s or 350ms")
            unit = _UNITS[term[3]]
            whole, part = term[1].lstrip("0"), (term[2] or "")[:_DIGITS]
            total += int(whole or "0") * unit if len(whole) <= _DIGITS else _LIMIT + 1
            if part:
                total += int(part) * unit // 10 ** len(part)
            position = term.end()
        if not rest or total > _LIMIT - (1 if sign > 0 else 0):
            raise ValueError(f"{quoted(text)} is not a duration that fits 64 bits of nanoseconds")
        return cls(sign * total)

    @classmethod
    def of_seconds(cls, seconds: float) -> Duration:
        """Make a duration of this many seconds."""
        return cls(round(seconds * SECOND))

    @property
    def seconds(self) -> float:
        """The length in seconds."""
        return self / SECOND

    def __str__(self) -> str:
        return _format(int(self))

    def __repr__(self) -> str:
        return f"Duration({str(self)!r})"


def _format(nanoseconds: int) -> str:
    """Format as Go's `Duration.String`: the largest unit first, no leading zero units, sub-second values in one unit."""
    if nanoseconds == 0:
        return "0s"
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if rest < SECOND:
        unit, size = next((u, s) for u, s in (("ms", 1_000_000), ("\u00b5s", 1_000), ("ns", 1)) if rest >= s)
        return f"{sign}{_decimal(rest, size)}{unit}"
    hours, rest = divmod(rest, HOUR)
    minutes, rest = divmod(rest, MINUTE)
    seconds = f"{_decimal(rest, SECOND)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else f"{sign}{seconds}"


def _decimal(value: int, size: int) -> str:
    whole, fraction = divmod(value, size)
    digits = str(fraction).rjust(len(str(size)) - 1, "0").rstrip("0") if fraction else ""
    return f"{whole}.{digits}" if digits else str(whole)


def format_seconds(seconds: float) -> str:
    """Format a time span for people: `0.35s`, `2.7s`, `4m0s`."""
    if seconds < 60:
        return f"{seconds:.2f}s" if seconds < 1 else f"{seconds:.1f}s"
    return _format(round(seconds) * SECOND)
