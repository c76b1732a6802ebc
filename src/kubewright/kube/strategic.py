"""Strategic merge patches with every directive, for types whose fields are known (apimachinery: pkg/util/strategicpatch).

`patches.apply_strategic` is the small version for Nodes; this one is for objects that users patch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from kubewright.apis import workloads
from kubewright.base.messages import quoted
from kubewright.kube.patches import PatchError

Map = dict[str, Any]

OPEN: Final = ""
"""The type of objects in which all lists are replaced, such as KubeletConfiguration."""

_DIRECTIVE: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_DELETE: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"


def merge(original: Mapping[str, Any], patch: Mapping[str, Any], *, type: str) -> Map:
    """Apply a patch to an object of a type of `apis.workloads`, or of `OPEN`. Neither argument is changed.

    Raises PatchError with the reason if the patch cannot be applied.
    """
    return _merge(dict(original), dict(patch), type)


def _merge(original: Map, patch: Map, type: str) -> Map:
    if _DIRECTIVE in patch:
        return _directed(patch)
    _retain(original, patch)
    orders = {name.removeprefix(_ORDER): patch.pop(name) for name in list(patch) if name.startswith(_ORDER)}
    for name, value in patch.items():
        if name.startswith(_DELETE):
            _delete_scalars(original, name.removeprefix(_DELETE), value)
        elif value is None:
            original.pop(name, None)
        else:
            _put(original, name, _combined(original.get(name), value, name, type, orders.get(name)))
    for name, order in orders.items():
        if name not in patch and isinstance(original.get(name), list):
            original[name] = _ordered([], original[name], order, original[name], _key_of(type, name))
    return original


def _directed(patch: Map) -> Map:
    match patch[_DIRECTIVE]:
        case "replace":
            return {name: value for name, value in patch.items() if name != _DIRECTIVE}
        case "delete":
            return {}
    raise PatchError(f"{_DIRECTIVE} must be replace or delete, not {quoted(patch[_DIRECTIVE])}")


_GONE: Final = object()
"""Stands for a value that a directive removes."""


def _put(original: Map, name: str, value: Any) -> None:
    if value is _GONE:
        original.pop(name, None)
    else:
        original[name] = value


def _combined(found: Any, value: Any, name: str, type: str, order: object) -> Any:
    """Return the new value of a field that the patch contains. Scalars, and values of another type, are replaced."""
    if isinstance(found, Mapping) and isinstance(value, Mapping):
        return _merge(dict(found), dict(value), _inner(type, name))
    if not (isinstance(found, list) and isinstance(value, list)):
        return _stripped(value)
    key = _key_of(type, name)
    if key is None:
        return value
    if key == "":
        return _ordered(value, _united(found, value), order or value, found, "")
    return _merge_list(found, value, key, _inner(type, name), order)


def _inner(type: str, name: str) -> str:
    """Return the type of a field's parts. Raises PatchError for a field that the type does not have, as kubeadm does."""
    if type == OPEN or not workloads.is_struct(type):
        return OPEN
    members = workloads.members(type.removeprefix("?"))
    if name not in members:
        raise PatchError(f"{type.removeprefix('?')} has no field {quoted(name)}")
    inner = members[name].type.removeprefix("?").removeprefix("[]").removeprefix("?")
    return inner if workloads.is_struct(inner) else OPEN


def _key_of(type: str, name: str) -> str | None:
    if type == OPEN:
        return None
    _inner(type, name)
    return workloads.members(type.removeprefix("?"))[name].merge_key


def _merge_list(found: list[Any], patch: list[Any], key: str, type: str, order: object) -> list[Any]:
    """Merge elements by their key. The patch's elements keep its order; the others keep their place relative to elements that both have."""
    _require_maps((*found, *patch), key)
    kept, replaced = list(found), False
    for element in patch:
        match element.get(_DIRECTIVE):
            case "delete":
                kept = [one for one in kept if one.get(key) != element[key]]
            case "replace":
                replaced = True
            case None:
                pass
            case other:
                raise PatchError(f"{_DIRECTIVE} of a list element must be replace or delete, not {quoted(other)}")
    plain = [element for element in patch if _DIRECTIVE not in element]
    if replaced:
        return plain
    merged = list(kept)
    for element in plain:
        index = next((at for at, one in enumerate(merged) if one.get(key) == element[key]), None)
        if index is None:
            merged.append(_plain(element))
        else:
            merged[index] = _merge(dict(merged[index]), dict(element), type)
    return _ordered(plain, merged, order or plain, kept, key)


def _require_maps(elements: Iterable[Any], key: str) -> None:
    for element in elements:
        if not isinstance(element, Mapping):
            raise PatchError(f"an element of a list that is merged by {quoted(key)} is not a map")
        if key not in element and element.get(_DIRECTIVE) != "replace":
            raise PatchError(f"an element has no {quoted(key)}, by which the list is merged")


def _ordered(patch: Sequence[Any], merged: list[Any], order: object, found: list[Any], key: str | None) -> list[Any]:
    """Order a merged list: named elements as the patch orders them, the others in between as they were; new elements come as early as possible."""
    if not isinstance(order, list):
        raise PatchError(f"{_ORDER} needs a list")
    name = _identity(key or "")
    wanted, before = [name(one) for one in order], [name(one) for one in found]
    if any(name(one) not in wanted for one in patch):
        raise PatchError(f"the list of {_ORDER} does not name everything that the patch has")

    def came_before(one: Any, other: Any) -> bool:
        both_known = name(one) in before and name(other) in before
        return both_known and before.index(name(one)) < before.index(name(other))

    named = sorted((one for one in merged if name(one) in wanted), key=lambda one: wanted.index(name(one)))
    others = [one for one in merged if name(one) not in wanted]
    result = []
    while named and others:
        result.append(others.pop(0) if came_before(others[0], named[0]) else named.pop(0))
    return [*result, *named, *others]


def _identity(key: str) -> Callable[[Any], Any]:
    return lambda element: element.get(key) if key and isinstance(element, Mapping) else element


def _united(found: list[Any], value: list[Any]) -> list[Any]:
    both = [*found, *value]
    return [one for at, one in enumerate(both) if one not in both[:at]]


def _delete_scalars(original: Map, name: str, gone: object) -> None:
    if not isinstance(gone, list):
        raise PatchError(f"{_DELETE}{name} needs a list")
    if isinstance(original.get(name), list):
        original[name] = [element for element in original[name] if element not in gone]


def _retain(original: Map, patch: Map) -> None:
    if _RETAIN not in patch:
        return
    kept = patch.pop(_RETAIN)
    if not isinstance(kept, list):
        raise PatchError(f"{_RETAIN} needs a list")
    given = [name for name, value in patch.items() if value is not None and not name.startswith((_DELETE, _ORDER))]
    if any(name not in kept for name in given):
        raise PatchError(f"{_RETAIN} does not name all other fields of the patch")
    for name in [name for name in original if name not in kept]:
        del original[name]


def _stripped(value: Any) -> Any:
    """Return a value that is taken unchanged, except that nulls and directives in it are dropped; a map that is a directive disappears."""
    return _GONE if isinstance(value, Mapping) and _DIRECTIVE in value else _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [part for element in value if (part := _stripped(element)) is not _GONE]
    if not isinstance(value, Mapping):
        return value
    parts = {name: _stripped(part) for name, part in value.items() if part is not None}
    return {name: part for name, part in parts.items() if part is not _GONE}
