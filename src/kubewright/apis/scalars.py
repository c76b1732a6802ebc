"""Decoding and encoding of the scalar types of Go's API structs in JSON (encoding/json, metav1.Duration, metav1.Time, Quantity).

In YAML, whole floats are integers: `6443.0` is converted to `6443` before Go's JSON decoder sees it. In JSON they are
not.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from kubewright.apis.findings import HIDDEN, Place
from kubewright.base.durations import Duration
from kubewright.base.patterns import Pattern
from kubewright.base.quantity import Quantity

_RFC3339: Final = Pattern(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,]\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_TOKEN: Final = Pattern(r"[a-z0-9]{6}\.[a-z0-9]{16}", re.ASCII)
_EXACT: Final = 10**21
"""From this number on, Go writes floats with an exponent, which its integer decoder refuses."""


class Kind:
    """A type. `zero` is Go's zero value, which null and a missing field mean; `empty` is what `omitempty` omits."""

    expected: ClassVar[str] = ""
    holds_others: ClassVar[bool] = False
    """A list or map: a value of another type in its place may be a secret that it should contain."""
    is_struct: ClassVar[bool] = False
    """A Go struct: it always exists, and `omitempty` never omits it."""

    def decode(self, value: Any, at: Place) -> Any:
        """Decode a JSON value; an invalid one is recorded and replaced by the zero value."""
        return self.zero() if value is None else self.read(value, at)

    def read(self, value: Any, at: Place) -> Any:
        """Decode a JSON value that is not null."""
        at.wrong_type(self.expected, value, hide=self.holds_others)
        return self.zero()

    def encode(self, value: Any) -> Any:
        """Encode a value as JSON."""
        return value

    def zero(self) -> Any:
        """Return the value of a field that is not given."""
        return None

    def unset(self, value: Any) -> bool:
        """Return whether a value is indistinguishable from one that was not given."""
        return not self.is_struct and bool(value == self.zero())

    def empty(self, value: Any) -> bool:
        """Return whether `omitempty` omits the value."""
        return self.unset(value)


class Text(Kind):
    """A string. A secret one never appears in an error; `default` replaces the empty string."""

    expected = "a string"

    def __init__(self, *, secret: bool = False, default: str = "") -> None:
        self._secret = secret
        self._default = default

    def read(self, value: Any, at: Place) -> str:
        if isinstance(value, str):
            return value or self._default
        at.wrong_type(self.expected, value, hide=self._secret)
        return self._default

    def zero(self) -> str:
        return self._default

    def unset(self, value: Any) -> bool:
        return not value


class Flag(Kind):
    """A boolean."""

    expected = "a boolean"

    def read(self, value: Any, at: Place) -> Any:
        return value if isinstance(value, bool) else super().read(value, at)

    def zero(self) -> bool:
        return False


class Integer(Kind):
    """An integer with this number of bits."""

    expected = "an integer"

    def __init__(self, bits: int, *, signed: bool = True) -> None:
        self._range = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)

    def read(self, value: Any, at: Place) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            at.wrong_type(self.expected, value)
            return 0
        if not self._range[0] <= value <= self._range[1]:
            at.invalid(f"must be between {self._range[0]} and {self._range[1]}", value)
            return 0
        return value

    def zero(self) -> int:
        return 0


class Float(Kind):
    """A floating point number of 32 or 64 bits; whole values are written without a fraction, as Go does."""

    expected = "a number"

    def __init__(self, bits: int) -> None:
        self._bits = bits

    def read(self, value: Any, at: Place) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value):
            at.wrong_type(self.expected, value)
            return 0
        number = float(value)
        if self._bits == 32 and abs(number) > 3.4028235677973366e38:
            at.invalid("does not fit 32 bits", value)
            return 0
        return _shortest32(number) if self._bits == 32 else number

    def encode(self, value: Any) -> int | float:
        return int(value) if value == int(value) and abs(value) < _EXACT else float(value)

    def zero(self) -> float:
        return 0


class Span(Kind):
    """A metav1.Duration: a string such as `1h30m`.

    Null is an error unless the field is a pointer; omitempty never omits it.
    """

    expected = "a duration such as 4m0s"
    is_struct = True

    def decode(self, value: Any, at: Place) -> Any:
        return self.read(value, at)

    def read(self, value: Any, at: Place) -> Any:
        if not isinstance(value, str):
            return super().read(value, at)
        try:
            return Duration.parse(value)
        except ValueError as error:
            at.invalid(str(error), value)
            return self.zero()

    def encode(self, value: Any) -> str:
        return str(value)

    def zero(self) -> Duration:
        return Duration(0)


class LogSpan(Kind):
    """component-base's TimeOrMetaDuration: nanoseconds as a number, or a duration as a string.

    Encoded in the same form as it was given.
    """

    expected = "a duration such as 5s, or a number of nanoseconds"
    is_struct = True

    def read(self, value: Any, at: Place) -> Any:
        return SPAN.read(value, at) if isinstance(value, str) else INT64.read(value, at)

    def encode(self, value: Any) -> Any:
        return str(value) if isinstance(value, Duration) else value

    def zero(self) -> int:
        return 0


class Moment(Kind):
    """A metav1.Time: RFC 3339, kept as text in UTC with whole seconds."""

    expected = "a time such as 2030-01-01T00:00:00Z"

    def read(self, value: Any, at: Place) -> str:
        if not isinstance(value, str):
            at.wrong_type(self.expected, value)
            return ""
        moment = _moment(value)
        if moment is None:
            at.invalid(f"expected {self.expected}", value)
            return ""
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")  # %Y does not pad years below 1000

    def zero(self) -> str:
        return ""


class Token(Kind):
    """A bootstrap token, `id.secret`. An empty string is invalid; null is valid."""

    expected = "a bootstrap token"

    def read(self, value: Any, at: Place) -> str:
        if not isinstance(value, str):
            at.wrong_type(self.expected, value, hide=True)
            return ""
        if _TOKEN.fullmatch(value) is None:
            at.invalid("a bootstrap token has the form [a-z0-9]{6}.[a-z0-9]{16}", HIDDEN)
            return ""
        return value

    def zero(self) -> str:
        return ""


def is_token(text: str) -> bool:
    """Return whether a text has the form of a bootstrap token."""
    return _TOKEN.fullmatch(text) is not None


def _moment(text: str) -> datetime | None:
    found = _RFC3339.fullmatch(text)
    try:
        return datetime.fromisoformat(found[1] + found[2]).astimezone(UTC) if found else None
    except (ValueError, OverflowError):
        return None


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond any float
        return False


def _shortest32(value: float) -> float:
    """Return the number with the fewest digits that is the same 32-bit float."""
    single = struct.pack("<f", value)
    rounded: float = struct.unpack("<f", single)[0]
    candidates = (float(f"{rounded:.{digits}g}") for digits in range(1, 10))
    return next((short for short in candidates if _packs(short) == single), rounded)


def _packs(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return b""


TEXT: Final = Text()
SECRET: Final = Text(secret=True)
FLAG: Final = Flag()
INT32: Final = Integer(32)
INT64: Final = Integer(64)
UINT32: Final = Integer(32, signed=False)
FLOAT32: Final = Float(32)
FLOAT64: Final = Float(64)
SPAN: Final = Span()
LOG_SPAN: Final = LogSpan()
MOMENT: Final = Moment()
TOKEN: Final = Token()


class Amount(Kind):
    """A resource.Quantity, kept as text in its canonical form. omitempty never omits it, because it is a struct."""

    is_struct = True
    expected = 'a quantity such as "100m" or "2Gi"'

    def read(self, value: Any, at: Place) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            at.wrong_type(self.expected, value)
            return self.zero()
        try:
            return str(Quantity.parse(value if isinstance(value, str) else str(FLOAT64.encode(value))))
        except (ValueError, OverflowError):
            at.invalid(f"expected {self.expected}", value)
            return self.zero()

    def zero(self) -> str:
        return "0"


AMOUNT: Final = Amount()

SCALARS: Final[Mapping[str, Kind]] = {
    "text": TEXT,
    "flag": FLAG,
    "int32": INT32,
    "int64": INT64,
    "uint32": UINT32,
    "float32": FLOAT32,
    "float64": FLOAT64,
    "span": SPAN,
    "logspan": LOG_SPAN,
    "amount": AMOUNT,
    "moment": MOMENT,
}
"""The kinds by their names in tables of fields."""
