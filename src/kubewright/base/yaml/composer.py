"""Builds values from parser events, without recursion.

It implements Go's meaning of scalars, merge keys, aliases with a limit, duplicate keys, and the places of values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

import yaml

from kubewright.base.encoding import decode_base64
from kubewright.base.errors import DocumentError
from kubewright.base.yaml import scalars
from kubewright.base.yaml.documents import MAX_BYTES, MAX_DEPTH, place, said

_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = "<<"
_MAX_DUPLICATES: Final = 100
_MAX_SHOWN: Final = 253  # characters of a duplicate key in messages
# goyaml v2, decode.go: up to 400,000 decoded nodes, 99 % may come from aliases; from 4,000,000 on, 10 %; in between
# the limit decreases linearly.
_ALIAS_LOW: Final = 400_000
_ALIAS_HIGH: Final = 4_000_000
_MAX_NODES: Final = 250_000  # our limit: keeps the worst text of the permitted size below two seconds and 200 MiB


class _Frame:
    """A collection that is being read. `key` is the key whose value comes next; `size` and `length` are as in `_Node`."""

    __slots__ = ("anchor", "at", "key", "key_at", "length", "merging", "places", "size", "value")

    def __init__(self, value: Any, places: Any, at: int, anchor: str | None) -> None:
        self.value = value
        self.places = places
        self.at = at
        self.anchor = anchor
        self.size = 1
        self.length = 0
        self.key: str | None = None
        self.key_at = 0
        self.merging = False


class _Node:
    """A value that was read. `size` is its number of nodes and `length` the total length of its texts, with aliases expanded."""

    __slots__ = ("at", "is_alias", "length", "size", "value")

    def __init__(self, value: Any, at: int, size: int = 1, length: int = 0, *, is_alias: bool = False) -> None:
        self.value = value
        self.at = at
        self.size = size
        self.length = length
        self.is_alias = is_alias


class Composer:
    """Builds the value of one document. Use it once.

    `is_json`: numbers with a fraction or an exponent stay floats, even if they are whole. On the way from YAML to
    JSON they become integers.
    """

    def __init__(self, *, first_line: int, source: str, is_json: bool = False) -> None:
        self._offset = first_line
        self._source = source
        self._is_json = is_json
        self._stack: list[_Frame] = []
        self._anchors: dict[str, _Node | None] = {}
        self._decoded = 0
        self._from_aliases = 0
        self._repeated = 0
        self._root: object = None
        self.at: int | None = None
        self.duplicates: list[str] = []
        self.places: dict[int, dict[str, int] | list[int]] = {}

    def compose(self, events: Iterable[yaml.Event]) -> object:
        """Return the value. Raises DocumentError for what goyaml refuses, and any error of the parser."""
        for event in events:
            mark = event.start_mark
            at = place(mark.line + self._offset, mark.column + 1) if mark else place(self._offset, 1)
            if isinstance(event, yaml.ScalarEvent):
                self._scalar(event, at)
            elif isinstance(event, yaml.MappingStartEvent):
                self._begin(_Frame({}, {}, at, event.anchor))
            elif isinstance(event, yaml.SequenceStartEvent):
                self._begin(_Frame([], [], at, event.anchor))
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event.anchor, at)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._end()
        return self._root

    def _fail(self, at: int, problem: str) -> DocumentError:
        return DocumentError(f"{self._source or 'the document'} cannot be read as YAML", detail=f"{said(at)}: {problem}")

    def _wants_key(self) -> bool:
        return bool(self._stack) and self._stack[-1].key is None and isinstance(self._stack[-1].value, dict)

    def _scalar(self, event: yaml.ScalarEvent, at: int) -> None:
        plain = event.implicit[0]
        if event.value == _MERGE and (plain or event.tag == _TAG + "merge") and self._wants_key():
            self._stack[-1].key, self._stack[-1].merging = _MERGE, True
            return
        try:
            value = _value(event.value, event.tag, plain=plain)
            if isinstance(value, float) and not self._is_json:
                value = scalars.json_number(value)
        except ValueError as error:
            raise self._fail(at, str(error)) from None
        self._count(at, 1)
        self._take(_Node(value, at, 1, len(event.value)), event.anchor)

    def _begin(self, frame: _Frame) -> None:
        if self._wants_key():
            raise self._fail(frame.at, "a key is a map or a list")
        if len(self._stack) >= MAX_DEPTH:
            raise self._fail(frame.at, f"it is nested more than {MAX_DEPTH} levels deep")
        self._count(frame.at, 1)
        if frame.anchor is not None:
            self._anchors[frame.anchor] = None
        self._stack.append(frame)

    def _end(self) -> None:
        frame = self._stack.pop()
        self.places[id(frame.value)] = frame.places
        self._take(_Node(frame.value, frame.at, frame.size, frame.length), frame.anchor)

    def _alias(self, anchor: str | None, at: int) -> None:
        node = self._anchors.get(anchor or "")
        if node is None:
            raise self._fail(at, f'anchor "{anchor}" contains itself' if anchor in self._anchors else f'anchor "{anchor}" is unknown')
        self._from_aliases += node.size
        self._repeated += node.length
        if self._repeated > MAX_BYTES:
            raise self._fail(at, "it repeats too much by aliases")
        self._count(at, node.size + 1)
        self._take(_Node(node.value, at, node.size + 1, node.length, is_alias=True), None)

    def _count(self, at: int, nodes: int) -> None:
        self._decoded += nodes
        if self._from_aliases > 100 and self._decoded > 1000 and self._from_aliases / self._decoded > _allowed(self._decoded):
            raise self._fail(at, "it repeats too much by aliases")
        if self._decoded > _MAX_NODES:
            raise self._fail(at, f"it has more than {_MAX_NODES} values")

    def _path(self) -> str:
        """Return the path of the collection that is being read."""
        path = ""
        for frame in self._stack[:-1]:
            path = f"{path}[{len(frame.value)}]" if isinstance(frame.value, list) else _join(path, frame.key or "")
        return path

    def _take(self, node: _Node, anchor: str | None) -> None:
        """Insert a finished node where it belongs."""
        if anchor is not None:
            self._anchors[anchor] = node
        if not self._stack:
            self._root, self.at = node.value, node.at
            return
        frame = self._stack[-1]
        frame.size += node.size
        frame.length += node.length
        if isinstance(frame.value, list):
            frame.value.append(node.value)
            frame.places.append(node.at)
        elif frame.key is None:
            frame.key, frame.key_at = self._key(node), node.at
        elif frame.merging:
            self._merge(frame, node)
            frame.key, frame.merging = None, False
        else:
            self._put(frame, frame.key, node.value, frame.key_at)
            frame.key = None

    def _put(self, frame: _Frame, key: str, value: Any, at: int) -> None:
        if key in frame.value and len(self.duplicates) < _MAX_DUPLICATES:
            self.duplicates.append(_join(self._path(), key[:_MAX_SHOWN]))
        frame.value[key] = value
        frame.places[key] = at

    def _merge(self, frame: _Frame, node: _Node) -> None:
        """Merge in place: earlier keys are overwritten, later ones win; in a list the first map wins (goyaml v2, decode.go)."""
        maps = reversed(node.value) if isinstance(node.value, list) and not node.is_alias else [node.value]
        for one in maps:
            if not isinstance(one, dict):
                raise self._fail(node.at, "a merge needs a map or a list of maps")
            for key, part in one.items():
                self._put(frame, key, part, node.at)

    def _key(self, node: _Node) -> str:
        """Turn a key into a string as sigs.k8s.io/yaml does on its way to JSON."""
        if isinstance(node.value, str):
            return node.value
        if isinstance(node.value, bool):
            return "true" if node.value else "false"
        if isinstance(node.value, (int, float)):
            return scalars.number_text(node.value)
        raise self._fail(node.at, "a key is neither text, number nor boolean")


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _allowed(decoded: int) -> float:
    return min(0.99, max(0.10, 0.99 - 0.89 * (decoded - _ALIAS_LOW) / (_ALIAS_HIGH - _ALIAS_LOW)))


# The types that a plain scalar with an explicit tag may have; `!!str` accepts anything, and scalars with other tags
# are text.
_FITS: Final[dict[str, tuple[type, ...]]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "null": (type(None),),
    "timestamp": (scalars.Timestamp,),
}


def _value(text: str, tag: str | None, *, plain: bool) -> object:
    """Return the value of a scalar. Raises ValueError if it does not match its explicit tag, or if JSON cannot represent it."""
    name = tag.removeprefix(_TAG) if tag else ""
    if tag is None:
        return _jsonable(scalars.plain(text)) if plain else text
    if name == "binary":
        return _binary(text)
    if name == tag or name not in _FITS:
        return text
    value = scalars.plain(text)
    if not isinstance(value, _FITS[name]) or (isinstance(value, bool) and name != "bool"):
        raise ValueError(f"a value does not fit its tag !!{name}")
    return _jsonable(value)


def _binary(text: str) -> str:
    try:
        return decode_base64(text).decode(errors="replace")
    except ValueError:
        raise ValueError("a !!binary value is not base64") from None


def _jsonable(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is not finite")
    return str(value) if isinstance(value, scalars.Timestamp) else value
