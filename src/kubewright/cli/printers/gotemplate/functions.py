"""Truth, comparisons and the functions of Go's `text/template`, and the two that kubectl's printers add: `exists` and `base64decode`."""

from __future__ import annotations

import base64
import html as python_html
import re
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, Final

from kubewright.cli.printers import go_values, gofmt
from kubewright.cli.printers.go_values import MISSING, Byte, Int, Problem


def truth(value: object) -> bool:
    """Return whether a value counts as true: not missing, nil, zero or empty."""
    return value is not MISSING and bool(value)


def equal(left: object, right: object) -> bool:
    """Compare for equality. Raises Problem for values of different kinds, for lists and for maps."""
    if _is_nil(left) or _is_nil(right):
        return _is_nil(left) and _is_nil(right)
    kinds = kind(left), kind(right)
    if kinds[0] != kinds[1]:
        raise _incompatible(left, right)
    if not kinds[0]:
        raise Problem(f"non-comparable type {go_values.text(left)}: {go_values.type_name(left)}")
    return left == right


def less(left: Any, right: Any) -> bool:
    """Return whether one value comes before another.

    Raises Problem for values without an order, and for values of different kinds.
    """
    kinds = kind(left), kind(right)
    if not all(kinds) or (kinds[0] == kinds[1] == "bool"):
        raise Problem("invalid type for comparison")
    if kinds[0] != kinds[1]:
        raise _incompatible(left, right)
    if isinstance(left, str):
        return left.encode(errors="surrogatepass") < str(right).encode(errors="surrogatepass")
    return bool(left < right)


def _incompatible(left: object, right: object) -> Problem:
    return Problem(f"incompatible types for comparison: {go_values.type_name(left)} and {go_values.type_name(right)}")


def _is_nil(value: object) -> bool:
    return value is None or value is MISSING


def kind(value: object) -> str:
    """Return bool, int, float or string; empty for values that cannot be compared."""
    names = ((bool, "bool"), (int, "int"), (float, "float"), (str, "string"))
    return next((name for type_, name in names if isinstance(value, type_)), "")


LAZY: Final = frozenset({"and", "or"})
"""Functions whose arguments are evaluated only as far as needed."""


def _length(item: object) -> Int:
    if item is MISSING or item is None:
        raise Problem("len of nil pointer")
    if isinstance(item, str):
        return Int(len(_bytes(item)))
    if isinstance(item, list | dict):
        return Int(len(item))
    raise Problem(f"len of type {go_values.type_name(item)}")


def _index(item: object, *indexes: object) -> object:
    if item is MISSING or item is None:
        raise Problem("index of untyped nil")
    for index in indexes:
        if item is None:
            raise Problem("index of nil pointer")
        item = _element(item, index)
    return item


def _element(item: object, index: object) -> object:
    if isinstance(item, dict):
        if not isinstance(index, str):
            raise Problem(f"value has type {go_values.type_name(index)}; should be string")
        return item.get(index)
    if isinstance(item, str):
        content = _bytes(item)
        return Byte(content[_position(index, len(content), inclusive=False)])
    if isinstance(item, list):
        return item[_position(index, len(item), inclusive=False)]
    raise Problem(f"can't index item of type {go_values.type_name(item)}")


def _position(index: object, length: int, *, inclusive: bool) -> int:
    if index is MISSING or index is None:
        raise Problem("cannot index slice/array with nil")
    if isinstance(index, bool) or not isinstance(index, int):
        raise Problem(f"cannot index slice/array with type {go_values.type_name(index)}")
    if not 0 <= index < length + inclusive:
        raise Problem(f"index out of range: {index}")
    return index


def _slice(item: object, *indexes: object) -> object:
    if item is MISSING or item is None:
        raise Problem("slice of untyped nil")
    if len(indexes) > 3:
        raise Problem(f"too many slice indexes: {len(indexes)}")
    if not isinstance(item, str | list):
        raise Problem(f"can't slice item of type {go_values.type_name(item)}")
    if isinstance(item, str) and len(indexes) == 3:
        raise Problem("cannot 3-index slice a string")
    whole: Any = _bytes(item) if isinstance(item, str) else item
    places = [_position(index, len(whole), inclusive=True) for index in indexes]
    begin, end, *limit = [*places, *(0, len(whole))[len(places) :]]
    for low, high in ((begin, end), *((end, top) for top in limit)):
        if low > high:
            raise Problem(f"invalid slice index: {low} > {high}")
    part = whole[begin:end]
    return part.decode(errors="replace") if isinstance(part, bytes) else part


def _equal(first: object, *others: object) -> bool:
    if not others:
        raise Problem("missing argument for comparison")
    return any(equal(first, other) for other in others)


def _not_equal(left: object, right: object) -> bool:
    return not equal(left, right)


def _at_most(left: object, right: object) -> bool:
    return less(left, right) or equal(left, right)


def _at_least(left: object, right: object) -> bool:
    return not less(left, right)


def _more(left: object, right: object) -> bool:
    return not _at_most(left, right)


def _not(value: object) -> bool:
    return not truth(value)


def _print(*arguments: object) -> str:
    return gofmt.sprint(arguments)


def _println(*arguments: object) -> str:
    return " ".join(gofmt.value_text(argument) for argument in arguments) + "\n"


def _printf(format: str, *arguments: object) -> str:
    if not isinstance(format, str):
        raise Problem(f"expected string; found {go_values.text(format)}")
    return gofmt.sprintf(format, arguments)


def _joined(arguments: tuple[object, ...]) -> str:
    return gofmt.sprint(["<no value>" if argument is None or argument is MISSING else argument for argument in arguments])


def _html(*arguments: object) -> str:
    return python_html.escape(_joined(arguments)).replace("&quot;", "&#34;").replace("&#x27;", "&#39;").replace("\0", "\ufffd")


def _urlquery(*arguments: object) -> str:
    return urllib.parse.quote_plus(_joined(arguments), errors="replace")


_JS: Final = {"\\": "\\\\", "'": "\\'", '"': '\\"', "<": "\\u003C", ">": "\\u003E", "&": "\\u0026", "=": "\\u003D"}


def _js(*arguments: object) -> str:
    return re.sub(r"[\\'\"<>&=\x00-\x1f]", lambda found: _JS.get(found[0]) or f"\\u{ord(found[0]):04X}", _joined(arguments))


def _call(*_: object) -> object:
    raise Problem("non-function: values of an object cannot be called")


def _exists(item: object, *indexes: object) -> bool:
    for index in indexes:
        try:
            item = _element(item, index)
        except Problem:
            return False
    return item is not None or not indexes  # without an index everything exists, even nil


def _base64decode(text: object) -> str:
    """Decode a text. Invalid UTF-8 becomes replacement characters; Go writes the bytes."""
    if not isinstance(text, str):
        raise Problem(f"wrong type for value; expected string; got {go_values.type_name(text)}")
    try:
        return base64.b64decode(text, validate=True).decode(errors="replace")
    except ValueError as error:
        raise Problem("base64 decode failed: illegal base64 data") from error


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


FUNCTIONS: Final[Mapping[str, Callable[..., object]]] = {
    "and": lambda *arguments: arguments[-1],
    "or": lambda *arguments: arguments[-1],
    "base64decode": _base64decode,
    "call": _call,
    "eq": _equal,
    "exists": _exists,
    "ge": _at_least,
    "gt": _more,
    "html": _html,
    "index": _index,
    "js": _js,
    "le": _at_most,
    "len": _length,
    "lt": less,
    "ne": _not_equal,
    "not": _not,
    "print": _print,
    "printf": _printf,
    "println": _println,
    "slice": _slice,
    "urlquery": _urlquery,
}
COUNTS: Final[Mapping[str, tuple[int, int | None]]] = {
    **dict.fromkeys(("ge", "gt", "le", "lt", "ne"), (2, 2)),
    **dict.fromkeys(("not", "len", "base64decode"), (1, 1)),
    **dict.fromkeys(("and", "or", "eq", "index", "slice", "printf", "exists", "call"), (1, None)),
    **dict.fromkeys(("print", "println", "html", "js", "urlquery"), (0, None)),
}
"""The minimum and maximum number of a function's arguments."""
