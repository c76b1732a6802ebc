"""The parts of a JSONPath template."""

from __future__ import annotations

from typing import TypeAlias

from kubewright.base.records import dataclass


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
    """A bare word; only `range` and `end` mean something."""

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
    """The elements of a list for which a comparison holds; the operator `exists` has no right side."""

    left: Expression
    operator: str
    right: Expression


@dataclass(frozen=True)
class Expression:
    """One pair of braces: steps that follow each other."""

    steps: tuple[Node, ...]


Node: TypeAlias = Text | Field | Word | Literal | Slice | Wildcard | Recursive | Union | Filter | Expression
