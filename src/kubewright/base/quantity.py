"""Resource quantities (`100m`, `16Mi`, `1k`) with Kubernetes' exact arithmetic and canonical text (apimachinery, `api/resource`)."""

from __future__ import annotations

import enum
import functools
import re
from typing import Final

from kubewright.base.messages import quoted
from kubewright.base.patterns import Pattern
from kubewright.base.records import dataclass

_NANO: Final = 1_000_000_000
_MOST_BINARY: Final = (2**63 - 1) * _NANO
"""Amounts with binary suffixes are limited to the largest 64-bit number, those with decimal suffixes are not, as upstream."""
_GRAMMAR: Final = Pattern(
    r"(?P<sign>[-+]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:(?P<binary>[KMGTPE]i)|(?P<decimal>[numkMGTPE])|[eE](?P<exponent>[-+]?[0-9]{1,3}))?"
)
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


class Form(enum.Enum):
    """Which suffixes the text has."""

    BINARY = "Ki, Mi, Gi, ..."
    DECIMAL = "m, k, M, G, ..."
    EXPONENT = "e3, e6, ..."


@functools.total_ordering
@dataclass(frozen=True, eq=False)
class Quantity:
    """An exact amount in billionths. Two quantities are equal if their amounts are; the form affects only the text."""

    nanos: int
    form: Form = Form.DECIMAL

    @classmethod
    def parse(cls, text: str) -> Quantity:
        """Parse the text. Raises ValueError for texts that are not quantities.

        Digits beyond a billionth are rounded away from zero, and binary amounts beyond 64 bits are capped.
        """
        found = _GRAMMAR.fullmatch(text)
        if found is None or not (found["whole"] or found["part"]):
            raise ValueError(f"{quoted(text)} is not a quantity like 100m, 2, 1k or 16Mi")
        part = found["part"] or ""
        digits = int(found["whole"] + part) * _NANO
        form, numerator, denominator = _scale(found)
        size = -(-digits * numerator // (denominator * 10 ** len(part)))
        if form is Form.BINARY:
            size = min(size, _MOST_BINARY)
        return cls(-size if found["sign"] == "-" else size, form)

    @classmethod
    def of_bytes(cls, count: int) -> Quantity:
        """Make a quantity of bytes, written with binary suffixes."""
        return cls(count * _NANO, Form.BINARY)

    @classmethod
    def of_millis(cls, count: int) -> Quantity:
        """Make a quantity of thousandths, written with decimal suffixes: 4000 is `4`, 250 is `250m`."""
        return cls(count * (_NANO // 1000))

    @classmethod
    def of(cls, count: int) -> Quantity:
        """Make a quantity of whole units, written with decimal suffixes: 110 is `110`, 1000 is `1k`."""
        return cls(count * _NANO)

    @property
    def value(self) -> int:
        """The amount in whole units, rounded up."""
        return -(-self.nanos // _NANO)

    @property
    def millis(self) -> int:
        """The amount in thousandths, rounded up."""
        return -(-self.nanos // (_NANO // 1000))

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos + other.nanos, self.form)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.nanos - other.nanos, self.form)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nanos == other.nanos

    def __lt__(self, other: Quantity) -> bool:
        return self.nanos < other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __bool__(self) -> bool:
        """A quantity is true unless it is zero."""
        return self.nanos != 0

    def __str__(self) -> str:
        if self.form is Form.BINARY and abs(self.nanos) >= 1024 * _NANO:
            return _binary(self.nanos)
        return _decimal(self.nanos, exponents=self.form is Form.EXPONENT)


def _scale(found: re.Match[str]) -> tuple[Form, int, int]:
    """Return the form, and the factor of the suffix as a fraction."""
    if found["binary"]:
        return Form.BINARY, 1 << _BINARY[found["binary"]], 1
    form = Form.EXPONENT if found["exponent"] else Form.DECIMAL
    power = int(found["exponent"]) if found["exponent"] else _DECIMAL[found["decimal"] or ""]
    return form, 10 ** max(power, 0), 10 ** max(-power, 0)


def _binary(nanos: int) -> str:
    """Write the amount with the largest binary suffix that divides it; a fraction is rounded away from zero."""
    sign, rest = ("-", -nanos) if nanos < 0 else ("", nanos)
    whole = -(-rest // _NANO)
    suffix = next((name for name, shift in reversed(_BINARY.items()) if whole % (1 << shift) == 0), "")
    return f"{sign}{whole >> _BINARY.get(suffix, 0)}{suffix}"


def _decimal(nanos: int, *, exponents: bool) -> str:
    """Write the amount with the largest power of a thousand that divides it."""
    if nanos == 0:
        return "0"
    suffix, power = next((name, power) for name, power in reversed(_DECIMAL.items()) if nanos % 10 ** (power + 9) == 0)
    if exponents:
        suffix = f"e{power}" if power else ""
    return f"{nanos // 10 ** (power + 9)}{suffix}"
