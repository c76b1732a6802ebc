"""The order in which goyaml v2 writes keys (its `sorter.go`): letters after everything else, runs of digits by their number."""

from __future__ import annotations

import functools
from collections.abc import Iterable

_WRAP = 1 << 63


def sorted_keys(keys: Iterable[str]) -> list[str]:
    """Return keys in the order of the output.

    goyaml's comparison has cycles where digits and letters mix (`2` < `10` < `1a` < `2`), and its result depends on chance there; ours does not.
    """
    found = sorted(keys)
    if all(key.isalpha() and key.isascii() for key in found):
        return found
    return sorted(found, key=functools.cmp_to_key(_compare))


def _compare(left: str, right: str) -> int:
    at = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), None)
    if at is None:
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


def _follows_number(key: str, at: int) -> bool:
    """Tell whether the digits just before a place hold one that is not zero."""
    while at > 0 and key[at - 1].isdecimal():
        at -= 1
        if key[at] != "0":
            return True
    return False


def _run(key: str, at: int, start: int) -> tuple[int, int]:
    """Return the number that begins at a place, and where it ends. The number wraps round as an int64 does."""
    number = start
    while at < len(key) and key[at].isdecimal():
        number = (number * 10 + ord(key[at]) - ord("0") + _WRAP) % (2 * _WRAP) - _WRAP
        at += 1
    return number, at
