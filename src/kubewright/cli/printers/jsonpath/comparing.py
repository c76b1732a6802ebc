"""Comparisons in filters: only values of one kind can be compared, and whole numbers are another kind than floats."""

from __future__ import annotations

from typing import Any

from kubewright.cli.printers.problem import Problem


def holds(left: object, operator: str, right: object) -> bool:
    """Tell whether a comparison holds. Raises Problem for values that cannot be compared, and for an unknown operator."""
    if operator not in {"==", "!=", "<", "<=", ">", ">="}:
        raise Problem(f"unrecognized filter operator {operator}")
    if _kind(left) != _kind(right):
        raise Problem("incompatible types for comparison")
    if operator not in {"==", "!="} and isinstance(left, bool):
        raise Problem("invalid type for comparison")
    return _compared(left, operator, right)


def _compared(left: Any, operator: str, right: Any) -> bool:
    if isinstance(left, str):
        left, right = left.encode(errors="surrogatepass"), right.encode(errors="surrogatepass")
    answers = {"==": left == right, "!=": left != right, "<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}
    return bool(answers[operator])


def _kind(value: object) -> str:
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind.__name__
    raise Problem("invalid type for comparison")
