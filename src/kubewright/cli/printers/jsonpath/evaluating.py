"""Evaluates a JSONPath template for an object.

Follows client-go, with its quirks; maps are traversed by their sorted keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubewright.cli.printers import documents, go_values
from kubewright.cli.printers.go_values import Byte, MissingKey, Problem
from kubewright.cli.printers.jsonpath.parsing import Expression, Field, Filter, Literal, Node, Recursive, Slice, Text, Union, Wildcard, Word


def holds(left: object, operator: str, right: object) -> bool:
    """Return whether a comparison holds.

    Raises Problem for values that cannot be compared, and for an unknown operator.
    """
    if operator not in {"==", "!=", "<", "<=", ">", ">="}:
        raise Problem(f"unrecognized filter operator {operator}")
    if _kind(left) != _kind(right):
        raise Problem("incompatible types for comparison")
    if operator not in {"==", "!="} and isinstance(left, bool):
        raise Problem("invalid type for comparison")
    return _compared(left, operator, right)


def _compared(left: Any, operator: str, right: Any) -> bool:
    if isinstance(left, str):
        left, right = left.encode(errors="surrogatepass"), right.encode(errors="surrogatepass")
    answers = {"==": left == right, "!=": left != right, "<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}
    return bool(answers[operator])


def _kind(value: object) -> str:
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind.__name__
    raise Problem("invalid type for comparison")


_DEEPEST = 50


def render(template: Sequence[Node], value: object, *, allow_missing: bool = True, as_json: bool = False) -> str:
    """Return the output of the template. Numbers of the object are floats, as in Go's JSON. Raises Problem."""
    groups = _Walk(template, allow_missing=allow_missing).results(as_floats(value), 0)
    if as_json:
        return "".join(documents.json_text(group, indent=4, sort_keys=True) + "\n" for group in groups)
    return "".join(" ".join(_printed(result) for result in group) for group in groups)


def as_floats(value: object) -> object:
    """Return a value with floats instead of integers, as Go's JSON decodes into `interface{}`."""
    if isinstance(value, dict):
        return {key: as_floats(part) for key, part in value.items()}
    if isinstance(value, list):
        return [as_floats(part) for part in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _printed(value: object) -> str:
    if isinstance(value, dict | list):
        return documents.json_text(value, sort_keys=True)
    return "null" if value is None else go_values.text(value)


class _Walk:
    """One run over a template. `_opened` and `_closed` signal to the loop that it has met `range` or `end`."""

    def __init__(self, template: Sequence[Node], *, allow_missing: bool) -> None:
        self._template = template
        self._allow_missing = allow_missing
        self._opened = self._closed = self._inside = 0
        self._last_end = -1

    def results(self, value: object, begin: int) -> list[list[object]]:
        """Return a group of results for each node from `begin` on, up to the end of the range that contains `begin`."""
        if self._inside > _DEEPEST:
            raise Problem("ranges are nested too deeply")
        groups: list[list[object]] = []
        index = begin
        while index < len(self._template):
            found = self._step([value], self._template[index])
            if self._closed and self._closed <= self._inside:
                self._closed -= 1
                self._last_end = index
                break
            if self._opened:
                groups += self._range(found, index + 1)
                index = max(index, self._last_end)
            else:
                groups.append(found)
            index += 1
        return groups

    def _range(self, found: Sequence[object], begin: int) -> list[list[object]]:
        """Repeat the following nodes for each value. Without values they are traversed once, to find the end."""
        self._opened -= 1
        self._inside += 1
        if found:
            groups = [group for value in found for group in self.results(value, begin)]
        else:
            self.results(None, begin)
            groups = []
        self._inside -= 1
        return groups

    def _step(self, values: list[object], node: Node) -> list[object]:
        match node:
            case Text(value=text):
                return [text]
            case Literal(value=literal):
                return [literal for _ in values]
            case Field(name=name):
                return self._field(values, name)
            case Wildcard():
                return [child for value in values for child in _children(value)]
            case Recursive():
                return [one for value in values for one in _with_descendants(value)]
            case Slice():
                return _sliced(values, node)
            case Union(parts=parts):
                return [result for part in parts for result in self._step(values, part)]
            case Filter():
                return [one for value in values for one in self._filtered(value, node)]
            case Word(name=word):
                return self._word(values, word)
            case Expression(steps=steps):
                for step in steps:
                    values = self._step(values, step)
        return values

    def _word(self, values: list[object], word: str) -> list[object]:
        if word == "range":
            self._opened += 1
            return values
        if word != "end":
            raise Problem(f"unrecognized identifier {word}")
        if not self._inside:
            raise Problem("not in range, nothing to end")
        self._closed += 1
        return []

    def _field(self, values: list[object], name: str) -> list[object]:
        found = [value[name] for value in values if isinstance(value, dict) and name in value]
        if values and not found and not self._allow_missing:
            raise MissingKey(f"{name} is not found")
        return found

    def _filtered(self, value: object, node: Filter) -> list[object]:
        if not isinstance(value, list):
            raise Problem(f"{go_values.text(value)} is not array or slice and cannot be filtered")
        return [element for element in value if self._passes(element, node)]

    def _exists(self, element: object, expression: Expression) -> bool:
        """Return whether an expression finds something.

        Failures count as found, except for a missing key, as in client-go.
        """
        try:
            return bool(self._step([element], expression))
        except MissingKey:
            return False
        except Problem:
            return True

    def _passes(self, element: object, node: Filter) -> bool:
        if node.operator == "exists":
            return self._exists(element, node.left)
        lefts = self._step([element], node.left)
        if not lefts:
            return False
        rights = self._step([element], node.right) if len(lefts) == 1 else []
        if len(lefts) > 1 or len(rights) > 1:
            raise Problem("can only compare one element at a time")
        return bool(rights) and holds(lefts[0], node.operator, rights[0])


def _children(value: object) -> list[object]:
    if isinstance(value, dict):
        return [value[key] for key in sorted(value)]
    if isinstance(value, str):
        return [Byte(byte) for byte in value.encode(errors="surrogatepass")]
    return value if isinstance(value, list) else []


def _with_descendants(value: object) -> list[object]:
    children = _children(value)
    return [value, *(one for child in children for one in _with_descendants(child))] if children else []


def _sliced(values: Sequence[object], node: Slice) -> list[object]:
    """Return elements of each list.

    Negative numbers become indexes of the first list, and stay so for the others, as in client-go.
    """
    found: list[object] = []
    begin, end = node.begin or 0, node.end
    for value in values:
        if value is None:
            continue
        if not isinstance(value, list):
            raise Problem(f"{go_values.type_name(value)} is not array or slice")
        length = len(value)
        begin += length if begin < 0 else 0
        if node.end is None:
            end = length
        assert end is not None
        if end < 0 or (end == 0 and node.single):
            end += length
        if begin == end:
            return found
        _require_within(begin, end, length)
        found += value[begin : end : _step_of(node)]
    return found


def _require_within(begin: int, end: int, length: int) -> None:
    if not 0 <= begin < length:
        raise Problem(f"array index out of bounds: index {begin}, length {length}")
    if not 0 <= end <= length:
        raise Problem(f"array index out of bounds: index {end - 1}, length {length}")
    if begin > end:
        raise Problem(f"starting index {begin} is greater than ending index {end}")


def _step_of(node: Slice) -> int:
    if node.step is None:
        return 1
    if node.step <= 0:
        raise Problem("step must be > 0")
    return node.step
