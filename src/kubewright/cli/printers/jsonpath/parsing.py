"""Parses a JSONPath template. Follows client-go's parser with its quirks: it accepts and refuses the same input."""

from __future__ import annotations

import math
import re
from typing import Final, TypeAlias

from kubewright.base.records import dataclass
from kubewright.cli.printers import go_values
from kubewright.cli.printers.go_values import Problem


@dataclass(frozen=True)
class Text:
    """Text outside braces, or quoted inside."""

    value: str


@dataclass(frozen=True)
class Field:
    """A field of an object."""

    name: str


@dataclass(frozen=True)
class Word:
    """A bare word; only `range` and `end` have a meaning."""

    name: str


@dataclass(frozen=True)
class Literal:
    """A number or a boolean."""

    value: bool | int | float


@dataclass(frozen=True)
class Slice:
    """Elements of a list. `single`: one index was written, and `end` is the index after it."""

    begin: int | None
    end: int | None
    step: int | None
    single: bool = False


@dataclass(frozen=True)
class Wildcard:
    """All children."""


@dataclass(frozen=True)
class Recursive:
    """The value and everything below it that has children."""


@dataclass(frozen=True)
class Union:
    """The results of several expressions, one after the other."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Filter:
    """The elements of a list for which a comparison is true; the operator `exists` has no right side."""

    left: Expression
    operator: str
    right: Expression


@dataclass(frozen=True)
class Expression:
    """One pair of braces: consecutive steps."""

    steps: tuple[Node, ...]


Node: TypeAlias = Text | Field | Word | Literal | Slice | Wildcard | Recursive | Union | Filter | Expression


_KEY: Final = re.compile(r"'([^']*)'")
_SLICE: Final = re.compile(r"(-?[0-9]*)(:-?[0-9]*)?(:-?[0-9]*)?")
_COMPARISON: Final = re.compile(r"([^!<>=]+)([!<>=]+)(.+)")
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,300}")  # Python refuses to parse numbers of thousands of digits
_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)")
_ENDS: Final = frozenset(" \t\r\n.,[]$@{}")
_DEEPEST: Final = 20
_INT64: Final = 1 << 63


def parse(text: str) -> tuple[Node, ...]:
    """Return texts and expressions in their order. Raises Problem."""
    return _template(text, depth=0)


def _template(text: str, *, depth: int) -> tuple[Node, ...]:
    if depth > _DEEPEST:
        raise Problem("filters are nested too deeply")
    found: list[Node] = []
    position = 0
    while position < len(text):
        begin = text.find("{", position)
        if begin != position:
            found.append(Text(text[position:begin] if begin >= 0 else text[position:]))
        if begin < 0:
            break
        reader = _Reader(text, begin + 1, depth)
        found.append(reader.expression())
        position = reader.position
    return tuple(found)


def _inner(text: str, *, depth: int) -> Expression:
    """Parse text as if it were in braces; only the first expression counts."""
    first = _template("{" + text + "}", depth=depth + 1)[0]
    assert isinstance(first, Expression)
    return first


class _Reader:
    """Parses one expression, after its opening brace."""

    def __init__(self, text: str, position: int, depth: int) -> None:
        self._text = text
        self.position = position
        self._depth = depth
        self._steps: list[Node] = []

    def expression(self) -> Expression:
        """Return the expression; `position` is then after its closing brace."""
        while not self._text.startswith("}", self.position):
            self._step()
        self.position += 1
        return Expression(tuple(self._steps))

    def _step(self) -> None:
        text, at = self._text, self.position
        char = text[at : at + 1]
        if text.startswith("[?(", at):
            self._filter()
        elif text.startswith("..", at):
            self._recursive()
        elif not char or char in "\r\n":
            raise Problem("unclosed action")
        elif char in " @$":
            self.position += 1
        elif char == "[":
            self._array()
        elif char in "\"'":
            self._quote(char)
        elif char == ".":
            self.position += 1
            self._field()
        elif char in "+-" or char.isdecimal():
            self._number()
        elif char == "_" or char.isalpha():
            self._word()
        else:
            shown = f" '{char}'" if char.isprintable() else ""
            raise Problem(f"unrecognized character in action: U+{ord(char):04X}{shown}")

    def _until_end(self) -> str:
        begin = self.position
        while self.position < len(self._text) and self._text[self.position] not in _ENDS:
            self.position += 1
        return self._text[begin : self.position]

    def _word(self) -> None:
        word = self._until_end()
        self._steps.append(Literal(word == "true") if word in {"true", "false"} else Word(word))

    def _recursive(self) -> None:
        if self._steps and isinstance(self._steps[-1], Recursive):
            raise Problem("invalid multiple recursive descent")
        self.position += 2
        self._steps.append(Recursive())
        char = self._text[self.position : self.position + 1]
        if char == "_" or char.isalpha() or char.isdecimal():
            self._field()

    def _field(self) -> None:
        begin = self.position
        while self.position < len(self._text):
            char = self._text[self.position]
            if char != "\\" and char in _ENDS:
                break
            self.position = min(self.position + (2 if char == "\\" else 1), len(self._text))
        name = self._text[begin : self.position]
        self._steps.append(Wildcard() if name == "*" else Field(name.replace("\\", "")))

    def _number(self) -> None:
        begin = self.position
        self.position += self._text[begin] in "+-"
        while self.position < len(self._text) and (self._text[self.position] == "." or self._text[self.position].isdecimal()):
            self.position += 1
        shown = self._text[begin : self.position]
        if _WHOLE.fullmatch(shown) and -_INT64 <= int(shown) < _INT64:
            self._steps.append(Literal(int(shown)))
        elif _FLOAT.fullmatch(shown) and math.isfinite(float(shown)):
            self._steps.append(Literal(float(shown)))
        else:
            raise Problem(f"cannot parse number {shown}")

    def _quote(self, mark: str) -> None:
        begin = self.position
        at = begin + 1
        while True:
            char = self._text[at : at + 1]
            if not char or char == "\n":
                raise Problem("unterminated quoted string")
            at += 1
            if char == mark and self._text[at - 2] != "\\":
                break
        self.position = at
        self._steps.append(Text(go_values.unquote(self._text[begin:at])))

    def _array(self) -> None:
        end = self._text.find("]", self.position)
        line = self._text.find("\n", self.position)
        if end < 0 or 0 <= line < end:
            raise Problem("unterminated array")
        inside = self._text[self.position + 1 : end]
        self.position = end + 1
        self._steps.extend(_array(":" if inside == "*" else inside, depth=self._depth))

    def _filter(self) -> None:
        begin = self.position + 3
        at = _filter_end(self._text, begin)
        if self._text[at : at + 1] != ")" or self._text[at + 1 : at + 2] != "]":
            raise Problem("unclosed array expect ]")
        inside = self._text[begin:at]
        self.position = at + 2
        found = _COMPARISON.fullmatch(inside)
        left, operator, right = found.groups() if found else (inside, "exists", "")
        self._steps.append(Filter(_inner(left, depth=self._depth), operator, _inner(right, depth=self._depth)))


def _filter_end(text: str, at: int) -> int:
    """Return the position of a filter's closing parenthesis. Only one pair of quotes is supported, as in client-go."""
    mark, closed = "", False
    while True:
        char = text[at : at + 1]
        if not char or char == "\n":
            raise Problem("unterminated filter")
        if char in "\"'":
            if not mark:
                mark = char
            elif char == mark and text[at - 1] != "\\":
                closed = True
        elif char == ")" and bool(mark) == closed:
            return at
        at += 1


def _array(inside: str, *, depth: int) -> tuple[Node, ...]:
    """Return the node for brackets: a union, a key, or indexes."""
    parts = inside.split(",")
    if len(parts) > 1:
        return (Union(tuple(_inner(f"[{part.strip(' ')}]", depth=depth) for part in parts)),)
    key = _KEY.fullmatch(inside)
    if key:
        return _inner(f".{key[1]}", depth=depth).steps
    found = _SLICE.fullmatch(inside)
    if not found:
        raise Problem(f"invalid array index {inside}")
    begin, end, step = (_index(group, first=place == 0) for place, group in enumerate(found.groups()))
    if found[2] is None:
        return (Slice(begin, (begin or 0) + 1, step, single=True),)
    return (Slice(begin, end, step),)


def _index(group: str | None, *, first: bool) -> int | None:
    """Parse one of the three numbers; None if it is omitted."""
    digits = group if first else (group or "")[1:]
    if not digits:
        return None
    if not _WHOLE.fullmatch(digits) or not -_INT64 <= int(digits) < _INT64:
        raise Problem(f"array index {digits} is not a number")
    return int(digits)
