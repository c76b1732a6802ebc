"""The parts of a Go template."""

from __future__ import annotations

from typing import TypeAlias

from kubewright.base.records import dataclass


@dataclass(frozen=True)
class Dot:
    """The current value."""


@dataclass(frozen=True)
class Nil:
    """The word nil."""


@dataclass(frozen=True)
class Constant:
    """A number, text or boolean."""

    value: object


@dataclass(frozen=True)
class Name:
    """The name of a function."""

    name: str


@dataclass(frozen=True)
class Field:
    """Fields of the current value, one after the other."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Variable:
    """A variable and fields of it. The name includes its `$`."""

    name: str
    fields: tuple[str, ...]


@dataclass(frozen=True)
class Chain:
    """Fields of an expression in parentheses."""

    term: Term
    fields: tuple[str, ...]


@dataclass(frozen=True)
class Command:
    """A term, or a function and its arguments."""

    arguments: tuple[Term, ...]


@dataclass(frozen=True)
class Pipeline:
    """Commands, each of which gets the result of the previous one as its last argument.

    `names` are set to the result.
    """

    commands: tuple[Command, ...]
    names: tuple[str, ...] = ()
    assigns: bool = False


Term: TypeAlias = Dot | Nil | Constant | Name | Field | Variable | Chain | Pipeline


@dataclass(frozen=True)
class Text:
    """Text outside actions."""

    value: str


@dataclass(frozen=True)
class Action:
    """A pipeline whose result is printed, unless it sets variables."""

    pipeline: Pipeline


@dataclass(frozen=True)
class Branch:
    """`if`, `with` or `range`."""

    word: str
    pipeline: Pipeline
    body: Body
    otherwise: Body | None


@dataclass(frozen=True)
class Call:
    """Runs another template."""

    name: str
    pipeline: Pipeline | None


@dataclass(frozen=True)
class Jump:
    """`break` or `continue`."""

    word: str


Node: TypeAlias = Text | Action | Branch | Call | Jump
Body: TypeAlias = tuple[Node, ...]
