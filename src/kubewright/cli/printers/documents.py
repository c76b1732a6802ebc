"""Objects as whole documents, as kubectl prints them.

JSON as in Go's `encoding/json`; KYAML, the part of YAML that looks like JSON with bare keys and trailing commas, as in
sigs.k8s.io/yaml/kyaml.
"""

from __future__ import annotations

import json
import math
import re
from typing import Final

from kubewright.base.yaml import scalars
from kubewright.cli.printers.go_values import Problem

_UNSAFE: Final = re.compile("[<>&\u2028\u2029\x7f]|\\\\[bf]")
_REPLACED: Final = {"\\b": "\\b", "\\f": "\\f", "\x7f": "\x7f"}


def json_text(value: object, *, indent: int | None = None, sort_keys: bool = False) -> str:
    """Encode a value as JSON. `sort_keys` is for maps in Go; structs keep the order of their fields."""
    separators = (",", ": ") if indent else (",", ":")
    try:
        text = json.dumps(_numbers(value), indent=indent, separators=separators, sort_keys=sort_keys, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise Problem("json: unsupported value") from error
    return _UNSAFE.sub(lambda found: _REPLACED.get(found[0]) or f"\\u{ord(found[0]):04x}", text)


def _numbers(value: object) -> object:
    """Convert whole floats below 1e21 to integers: Go writes them without a point."""
    if isinstance(value, float) and math.isfinite(value) and value == int(value) and abs(value) < 1e21:
        return int(value)
    if isinstance(value, dict):
        return {str(key): _numbers(part) for key, part in value.items()}
    return [_numbers(part) for part in value] if isinstance(value, list | tuple) else value


_BARE: Final = re.compile(r"[\w](?:[\w./-]*\w)?")
_BOOLEANS: Final = frozenset({"1", "t", "T", "0", "f", "F"})
_ESCAPES: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\v": "\\v",
    "\0": "\\0",
    "\x1b": "\\e",
    "\x85": "\\N",
    "\xa0": "\\_",
    "\u2028": "\\L",
    "\u2029": "\\P",
    '"': '\\"',
    "\\": "\\\\",
}


def kyaml_text(value: object) -> str:
    """Return one document, preceded by its `---` line."""
    return f"---\n{_node(value, 0)}\n"


def _node(value: object, indent: int) -> str:
    if isinstance(value, dict):
        return _mapping(value, indent)
    if isinstance(value, list | tuple):
        return _sequence(value, indent)
    return _text(value, indent + 1) if isinstance(value, str) else json_text(value)


def _mapping(value: dict[str, object], indent: int) -> str:
    if not value:
        return "{}"
    inner = "  " * (indent + 1)
    lines = "".join(f"{inner}{_key(str(key))}: {_node(part, indent + 1)},\n" for key, part in value.items())
    return f"{{\n{lines}{'  ' * indent}}}"


def _sequence(value: list[object] | tuple[object, ...], indent: int) -> str:
    """Encode a list: brackets of lists and objects are on the same line, everything else has its own line."""
    if not value:
        return "[]"
    if all(isinstance(part, dict | list | tuple) for part in value):
        return f"[{', '.join(_node(part, indent) for part in value)}]"
    outer = "  " * indent
    return "[\n" + "".join(f"{outer}  {_node(part, indent + 1)},\n" for part in value) + f"{outer}]"


def _key(name: str) -> str:
    bare = _BARE.fullmatch(name) and name not in _BOOLEANS and isinstance(scalars.plain(name), str)
    return name if bare else '"' + "".join(_escaped(char, tab="\\t") for char in name) + '"'


def _text(value: str, indent: int) -> str:
    """Encode a text in quotes; one of several lines is folded, so that each has its own line."""
    if "\n" not in value:
        return '"' + "".join(_escaped(char) for char in value) + '"'
    outer = "  " * indent
    *lines, last = value.split("\n")
    shown = [_line(line, outer) + "\\n\\\n" for line in lines] + ([_line(last, outer) + "\\\n"] if last else [])
    return '"\\\n' + "".join(shown) + outer + '"'


def _line(line: str, outer: str) -> str:
    """Encode one line of a folded text. A leading space is escaped: YAML drops those before a line otherwise."""
    lead = "\\" if line[:1].isspace() else " "
    return outer + lead + "".join(_escaped(char) for char in line)


def _escaped(char: str, *, tab: str = "\t") -> str:
    if char == "\t":
        return tab
    short = _ESCAPES.get(char)
    if short or char.isprintable():
        return short or char
    code = ord(char)
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{0xFFFD if 0xD800 <= code <= 0xDFFF else code:04x}" if code < 0x10000 else f"\\U{code:08x}"
