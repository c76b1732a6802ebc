"""One document that was read: its value, and the place of each part in the text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from kubewright.base.patterns import Pattern
from kubewright.base.records import dataclass, field

MAX_BYTES: Final = 3 * 1024 * 1024
"""Size limit of a text: the limit that an API server has for requests. kubeadm has none."""

MAX_DEPTH: Final = 200
"""Nesting limit. goyaml's is 10,000; no Kubernetes document comes near ours, and Python's stack is sufficient for it."""

Places = Mapping[int, Mapping[str, int] | Sequence[int]]

_COLUMN_BITS: Final = 22
_COLUMNS: Final = 1 << _COLUMN_BITS  # no line is longer than MAX_BYTES
_STEP: Final = Pattern(r"\.?([^.\[\]]+)|\[([^\]]*)\]")


@dataclass(frozen=True, kw_only=True)
class Document:
    """One YAML document.

    `value` consists of dict (string keys, in the order of the text), list, str, int, float, bool and None. Parts that
    an alias repeats are the same object: treat the value as read-only. It is None for a document without content,
    which kubeadm refuses (an empty file has no documents). `source` is the name that was given to the reader; `line`
    is the first line of the document, from 1. `duplicates` are the paths of keys that occur more than once, at most a
    hundred, in order; the last occurrence counts.
    """

    value: object
    source: str = ""
    line: int = 1
    duplicates: tuple[str, ...] = ()
    places: Places = field(default_factory=dict, repr=False, compare=False)
    """The places of the entries of each dict and list, by its `id`; see `place`."""

    def position_of(self, path: str) -> tuple[int, int]:
        """Return line and column, from 1, of a field's name or of a list's element; the column is 0 for the document itself.

        A path is, for example, `etcd.local.extraArgs[2].name`. If it does not exist, the position is that of the deepest
        part that does.
        """
        found: int | None = None
        here = self.value
        for step in _STEP.finditer(path):
            entry = _entry(here, step)
            if entry is None:
                break
            known = self.places.get(id(here))
            here, at = entry[1], _place(known, entry[0])
            found = at or found
        return (self.line, 0) if found is None else _line_and_column(found)

    def at(self, path: str) -> object:
        """Return the value of a field; None if the path does not exist."""
        here: object = self.value
        for step in _STEP.finditer(path):
            entry = _entry(here, step)
            if entry is None:
                return None
            here = entry[1]
        return here

    def where(self, path: str = "") -> str:
        """Describe the place of a field in a message: `kubeadm.yaml:12:3`, or `line 12, column 3` for a text without a name."""
        line, column = self.position_of(path)
        if not self.source:
            return f"line {line}, column {column}" if column else f"line {line}"
        return f"{self.source}:{line}:{column}" if column else f"{self.source}:{line}"


def place(line: int, column: int) -> int:
    """Encode a line and a column, both from 1, as one number: every value has a place, and a tuple would be three times as large."""
    return line << _COLUMN_BITS | min(column, _COLUMNS - 1)


def line_of(at: int) -> int:
    """Return the line of a place."""
    return at >> _COLUMN_BITS


def said(at: int) -> str:
    """Describe a place in words."""
    line, column = _line_and_column(at)
    return f"line {line}, column {column}"


def _line_and_column(at: int) -> tuple[int, int]:
    return line_of(at), at & _COLUMNS - 1


def _entry(value: object, step: re.Match[str]) -> tuple[str | int, object] | None:
    name = step[1] if step[1] is not None else step[2]
    if isinstance(value, dict) and name in value:
        return name, value[name]
    if isinstance(value, list) and name.isascii() and name.isdigit() and int(name) < len(value):
        return int(name), value[int(name)]
    return None


def _place(known: Mapping[str, int] | Sequence[int] | None, key: str | int) -> int | None:
    if isinstance(known, Mapping):
        return known.get(str(key))
    return known[key] if known is not None and isinstance(key, int) and key < len(known) else None
