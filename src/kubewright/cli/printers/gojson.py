"""JSON as Go's `encoding/json` writes it: `<`, `>`, `&` and two line separators escaped, other text as it is, four blanks where indented."""

from __future__ import annotations

import json
import math
import re
from typing import Final

_UNSAFE: Final = re.compile("[<>&\u2028\u2029\x7f]|\\\\[bf]")
_REPLACED: Final = {"\\b": "\\b", "\\f": "\\f", "\x7f": "\x7f"}


def dump(value: object, *, indent: int | None = None, sort_keys: bool = False) -> str:
    """Write a value as JSON. `sort_keys` is for what is a map in Go; structures keep the order of their fields."""
    separators = (",", ": ") if indent else (",", ":")
    try:
        text = json.dumps(_numbers(value), indent=indent, separators=separators, sort_keys=sort_keys, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        from kubewright.cli.printers.problem import Problem

        raise Problem("json: unsupported value") from error
    return _UNSAFE.sub(lambda found: _REPLACED.get(found[0]) or f"\\u{ord(found[0]):04x}", text)


def _numbers(value: object) -> object:
    """Make whole floats below 1e21 integers: Go writes them without a point."""
    if isinstance(value, float) and math.isfinite(value) and value == int(value) and abs(value) < 1e21:
        return int(value)
    if isinstance(value, dict):
        return {str(key): _numbers(part) for key, part in value.items()}
    return [_numbers(part) for part in value] if isinstance(value, list | tuple) else value
