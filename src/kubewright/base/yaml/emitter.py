"""Writes documents as goyaml v2 does. Keys are ordered as in its `sorter.go`: letters after everything else, numbers by value."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubewright.base.errors import DocumentError
from kubewright.base.patterns import Pattern
from kubewright.base.yaml import scalars, styles
from kubewright.base.yaml.documents import MAX_DEPTH
from kubewright.base.yaml.styles import Style

_WRAP = 1 << 63
_WRAPPED = 64
"""How many decimal digits of a number count: 10**64 is a multiple of 2**64."""
_DIGITS = Pattern(r"\d*")

_STEP: Final = 2
_LINE_ENDS: Final = ("\n", "\u2028", "\u2029")
_UNWRITABLE: Final = Pattern("[\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
"""Halves of surrogate pairs, and what goyaml refuses to read: sigs.k8s.io/yaml reads JSON again in order to write it as YAML."""


def sorted_keys(keys: Iterable[str]) -> list[str]:
    """Return the keys in the order of the output.

    goyaml's comparison has cycles where digits and letters are mixed (`2` < `10` < `1a` < `2`), so its order of such
    keys is random; ours is deterministic.
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
    """Return the index at which two texts begin to differ. Compares halves, which is faster than single letters in long texts."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _follows_number(key: str, at: int) -> bool:
    """Return whether the digits just before an index include one that is not zero."""
    found = _DIGITS.match(key[:at][::-1])
    return found is not None and found[0].strip("0") != ""


def _run(key: str, at: int, start: int) -> tuple[int, int]:
    """Return the number that begins at an index, and the index after it. The number wraps around like an int64."""
    found = _DIGITS.match(key, at)
    digits = found[0] if found else ""
    number = start * 10 ** len(digits) if len(digits) < _WRAPPED else 0  # a larger power of ten is a multiple of 2**64 too
    for place, digit in enumerate(reversed(digits[-_WRAPPED:])):
        number += (ord(digit) - ord("0")) * 10**place
    return (number + _WRAP) % (2 * _WRAP) - _WRAP, at + len(digits)


def writable(text: str) -> str:
    r"""Return a text that `dump` accepts: a character that no parser accepts becomes `\u009b`."""
    return _UNWRITABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def dump(value: object) -> str:
    """Write one document; see `kubewright.base.yaml.dump`, its public form."""
    writer = _Writer()
    writer.node(value, indent=0, fresh=True, depth=0)
    return writer.finish()


def dump_all(values: Iterable[object]) -> str:
    """Write several documents with `---` between them."""
    return "---\n".join(dump(value) for value in values)


class _Writer:
    """The text so far and the current column. A node is written at the cursor; `fresh` says that the cursor is at the node's own indentation."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._column = 0

    def finish(self) -> str:
        if self._column:
            self._parts.append("\n")
        return "".join(self._parts)

    def _put(self, text: str) -> None:
        self._parts.append(text)
        last = max(map(text.rfind, _LINE_ENDS))
        self._column = self._column + len(text) if last < 0 else len(text) - last - 1

    def _word(self, text: str) -> None:
        """Append text without a line break."""
        self._parts.append(text)
        self._column += len(text)

    def _line(self, indent: int) -> None:
        """Start a new line with this indentation."""
        self._parts.append("\n" + " " * indent if self._column else " " * indent)
        self._column = indent

    def node(self, value: object, *, indent: int, fresh: bool, depth: int) -> None:
        """Write a value. A collection that is not `fresh` begins on a new line."""
        if depth > MAX_DEPTH:
            raise DocumentError("a value cannot be written as YAML", detail=f"it is nested more than {MAX_DEPTH} levels deep")
        blank = "" if self._column == 0 or fresh else " "
        if isinstance(value, Mapping) and value:
            self._mapping(value, indent=indent, fresh=fresh, depth=depth)
        elif isinstance(value, (list, tuple)) and value:
            self._sequence(value, indent=indent, fresh=fresh, depth=depth)
        elif isinstance(value, (Mapping, list, tuple)):
            self._put(blank + ("{}" if isinstance(value, Mapping) else "[]"))
        else:
            self._word(blank)
            self._scalar(value, indent=max(indent, _STEP))

    def _mapping(self, value: Mapping[Any, object], *, indent: int, fresh: bool, depth: int) -> None:
        for key in sorted_keys(value):
            if not fresh:
                self._line(indent)
            fresh = False
            if styles.is_simple_key(key):
                self._string(key, styles.choose(key, key=True), indent=indent, folding=False)
                self._word(":")
                inner = indent if isinstance(value[key], (list, tuple)) else indent + _STEP
                self.node(value[key], indent=inner, fresh=False, depth=depth + 1)
            else:
                self._word("? ")
                self._scalar(key, indent=indent + _STEP)
                self._line(indent)
                self._word(": ")
                self.node(value[key], indent=indent + _STEP, fresh=True, depth=depth + 1)

    def _sequence(self, value: Iterable[object], *, indent: int, fresh: bool, depth: int) -> None:
        for item in value:
            if not fresh:
                self._line(indent)
            fresh = False
            self._word("- ")
            self.node(item, indent=indent + _STEP, fresh=True, depth=depth + 1)

    def _scalar(self, value: object, *, indent: int) -> None:
        if isinstance(value, str):
            self._string(value, styles.choose(value), indent=indent, folding=True)
        elif value is None:
            self._put("null")
        elif isinstance(value, bool):
            self._put("true" if value else "false")
        elif type(value) in {int, float}:
            self._put(scalars.number_text(value))  # type: ignore[arg-type]
        else:
            raise TypeError(f"a {type(value).__name__} cannot be written as YAML")

    def _string(self, text: str, style: Style, *, indent: int, folding: bool) -> None:
        if style is Style.PLAIN and text.isascii() and " " not in text:
            self._word(text)
            return
        wrong = _UNWRITABLE.search(text)
        if wrong is not None:
            raise DocumentError("a value cannot be written as YAML", detail=_unwritable(wrong[0]), remedy="leave it out")
        if style is Style.LITERAL:
            for part in styles.literal(text, indent=indent):
                self._put(part)
            return
        out = styles.Folder(column=self._column, indent=indent, folding=folding)
        {Style.PLAIN: styles.plain, Style.SINGLE: styles.single, Style.DOUBLE: styles.double}[style](text, out)
        self._put(out.text)


def _unwritable(char: str) -> str:
    if "\ud800" <= char <= "\udfff":
        return "a text in it holds half a surrogate pair"
    return f"a text in it holds the control character U+{ord(char):04X}, which no YAML parser of Kubernetes takes"
