"""The order in which goyaml v2 writes keys (its `sorter.go`): letters after everything else, runs of digits by their number."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from kubewright.base.patterns import Pattern

_WRAP = 1 << 63
_WRAPPED = 64
"""So many decimal digits count: 10**64 is a multiple of 2**64."""
_DIGITS = Pattern(r"\d*")


def sorted_keys(keys: Iterable[str]) -> list[str]:
    """Return keys in the order of the output.

    goyaml's comparison has cycles where digits and letters mix (`2` < `10` < `1a` < `2`), and its result depends on chance there; ours does not.
    """
    found = sorted(keys)
    if all(key.isalpha() and key.isascii() for key in found):
        return found
    return sorted(found, key=functools.cmp_to_key(_compare))


def _compare(left: str, right: str) -> int:
    at = _parting(left, right)
    if at == min(len(left), len(right)):
        return len(left) - len(right)
    a, b = left[at], right[at]
    if a.isalpha() and b.isalpha():
        return ord(a) - ord(b)
    if a.isalpha() or b.isalpha():
        return -1 if b.isalpha() else 1
    start = 1 if "0" in {a, b} and _follows_number(left, at) else 0
    for x, y in zip(_run(left, at, start), _run(right, at, start), strict=True):
        if x != y:
            return x - y
    return ord(a) - ord(b)


def _parting(left: str, right: str) -> int:
    """Return where two texts begin to differ: long ones are compared in halves, not letter by letter."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _follows_number(key: str, at: int) -> bool:
    """Tell whether the digits just before a place hold one that is not zero."""
    found = _DIGITS.match(key[:at][::-1])
    return found is not None and found[0].strip("0") != ""


def _run(key: str, at: int, start: int) -> tuple[int, int]:
    """Return the number that begins at a place, and where it ends. The number wraps round as an int64 does."""
    found = _DIGITS.match(key, at)
    digits = found[0] if found else ""
    number = start * 10 ** len(digits) if len(digits) < _WRAPPED else 0  # beyond that a power of ten is one of 2**64 too
    for place, digit in enumerate(reversed(digits[-_WRAPPED:])):
        number += (ord(digit) - ord("0")) * 10**place
    return (number + _WRAP) % (2 * _WRAP) - _WRAP, at + len(digits)
