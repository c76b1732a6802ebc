"""One document that was read: its value, and where in the text each part of it stands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

MAX_BYTES: Final = 3 * 1024 * 1024
"""Size limit of a text. It is what an API server takes in a request; kubeadm itself has none."""

MAX_DEPTH: Final = 200
"""Limit of nesting. goyaml's is 10,000; no document that Kubernetes understands comes near ours, and Python's stack holds it."""

Lines = Mapping[int, Mapping[str, int] | Sequence[int]]

_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")


@dataclass(frozen=True, kw_only=True)
class Document:
    """One YAML document.

    `value` is made of dict (string keys, in the order of the text), list, str, int, float, bool and None. Parts that an alias repeats are the
    same object: treat the value as read-only. It is None for a document without content, which kubeadm refuses (an empty file has no documents).
    `source` is the name that was given to the reader; `line` is where the document starts, from 1.
    `duplicates` are the paths of keys given more than once, at most a hundred, in order; the last one counted.
    """

    value: object
    source: str = ""
    line: int = 1
    duplicates: tuple[str, ...] = ()
    lines: Lines = field(default_factory=dict, repr=False, compare=False)
    """Line numbers of the entries of each dict and list, by its `id`."""

    def line_of(self, path: str) -> int | None:
        """Return the line of a field such as `etcd.local.extraArgs[2].name`, or of the deepest part of the path that is there."""
        found: int | None = self.line
        here = self.value
        for step in _STEP.finditer(path):
            entry = _entry(here, step)
            if entry is None:
                break
            known = self.lines.get(id(here))
            here, line = entry[1], _line(known, entry[0])
            found = line or found
        return found

    def where(self, path: str = "") -> str:
        """Say where a field stands, for a message: `kubeadm.yaml:12`, or `line 12` for a text without a name."""
        line = self.line_of(path)
        return f"{self.source}:{line}" if self.source else f"line {line}"


def _entry(value: object, step: re.Match[str]) -> tuple[str | int, object] | None:
    name = step[1] if step[1] is not None else step[2]
    if isinstance(value, dict) and name in value:
        return name, value[name]
    if isinstance(value, list) and name.isascii() and name.isdigit() and int(name) < len(value):
        return int(name), value[int(name)]
    return None


def _line(known: Mapping[str, int] | Sequence[int] | None, key: str | int) -> int | None:
    if isinstance(known, Mapping):
        return known.get(str(key))
    return known[key] if known is not None and isinstance(key, int) and key < len(known) else None
