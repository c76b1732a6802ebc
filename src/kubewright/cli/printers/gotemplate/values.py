"""Truth and comparisons of Go's `text/template`."""

from __future__ import annotations

from typing import Any

from kubewright.cli.printers import gotypes
from kubewright.cli.printers.gotypes import MISSING
from kubewright.cli.printers.problem import Problem


def truth(value: object) -> bool:
    """Tell whether a value counts as true: not what is missing, nil, zero or empty."""
    return value is not MISSING and bool(value)


def equal(left: object, right: object) -> bool:
    """Compare for equality. Raises Problem for values of different kinds, for lists and for maps."""
    if _is_nil(left) or _is_nil(right):
        return _is_nil(left) and _is_nil(right)
    kinds = kind(left), kind(right)
    if kinds[0] != kinds[1]:
        raise _incompatible(left, right)
    if not kinds[0]:
        raise Problem(f"non-comparable type {gotypes.text(left)}: {gotypes.type_name(left)}")
    return left == right


def less(left: Any, right: Any) -> bool:
    """Tell whether one value comes before another. Raises Problem for what has no order, and for values of different kinds."""
    kinds = kind(left), kind(right)
    if not all(kinds) or (kinds[0] == kinds[1] == "bool"):
        raise Problem("invalid type for comparison")
    if kinds[0] != kinds[1]:
        raise _incompatible(left, right)
    if isinstance(left, str):
        return left.encode(errors="surrogatepass") < str(right).encode(errors="surrogatepass")
    return bool(left < right)


def _incompatible(left: object, right: object) -> Problem:
    return Problem(f"incompatible types for comparison: {gotypes.type_name(left)} and {gotypes.type_name(right)}")


def _is_nil(value: object) -> bool:
    return value is None or value is MISSING


def kind(value: object) -> str:
    """Return bool, int, float or string; empty for what cannot be compared."""
    names = ((bool, "bool"), (int, "int"), (float, "float"), (str, "string"))
    return next((name for type_, name in names if isinstance(value, type_)), "")
