"""Patch bodies as pure functions: JSON patches, merge patches, and the part of strategic merge that Nodes need.

Nodes: kubelet v1.36, kubelet_node_status.go. Keys of maps are sorted, as Go writes them.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubewright.kube.core import Object

Patch = dict[str, Any]
MergeKeys = Mapping[str, str]
"""Dotted path of a list -> the field that identifies its elements. All other lists are replaced as a whole."""


class PatchError(ValueError):
    """Explains why a patch cannot be applied."""


NODE_LISTS: Final[MergeKeys] = {"status.conditions": "type", "status.addresses": "type"}
"""The lists of a Node with `patchStrategy: merge` (k8s.io/api/core/v1 types.go); taints and images are atomic."""


def apply_merge(obj: object, patch: object) -> Any:
    """Apply a JSON merge patch (RFC 7386, section 2)."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(obj) if isinstance(obj, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_merge(result.get(key), value)
    return result


def apply_json(obj: Mapping[str, Any], patch: Any) -> Any:
    """Apply a JSON patch (RFC 6902) as Kubernetes does. Raises PatchError if it is not a JSON patch or does not apply.

    Unlike the RFC (evanphx/json-patch v4): `replace` creates a missing key of a map, an index below 0 counts from the
    end of a list, and a missing key of a map tests as null.
    """
    import jsonpatch
    import jsonpointer  # comes with jsonpatch

    if not isinstance(patch, list):
        raise PatchError("a JSON patch is a list of operations")
    try:
        for operation in patch:
            meant: Any = _go_operation(obj, dict(operation))
            if meant is not None:
                obj = jsonpatch.JsonPatch([meant]).apply(obj)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, ValueError, KeyError, AttributeError) as error:
        raise PatchError(str(error)) from error
    return obj


def json_diff(before: Any, after: Any, *, path: str = "") -> list[Patch]:
    """Return the JSON patch (RFC 6902) that turns one value into another.

    A test precedes each removal and replacement, so that the patch does not apply to a value that has something else
    at that place.
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return [operation for key in sorted({*before, *after}) for operation in _key_diff(before, after, key, path)]
    if isinstance(before, list) and isinstance(after, list):
        return _places_diff(before, after, path)
    return [] if before == after else [_test(path, before), {"op": "replace", "path": path, "value": after}]


def _key_diff(before: Mapping[str, Any], after: Mapping[str, Any], key: str, path: str) -> list[Patch]:
    here = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
    if key not in after:
        return [_test(here, before[key]), {"op": "remove", "path": here}]
    return json_diff(before[key], after[key], path=here) if key in before else [{"op": "add", "path": here, "value": after[key]}]


def _places_diff(before: list[Any], after: list[Any], path: str) -> list[Patch]:
    """Return the operations on a list, the last element first, so that the indices of earlier elements do not change."""
    found: list[Patch] = []
    old, new = ([json.dumps(one, sort_keys=True) for one in side] for side in (before, after))
    for kind, begin, end, start, stop in reversed(difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()):
        common = min(end - begin, stop - start) if kind == "replace" else 0
        place = "-" if end == len(before) else str(end)
        added = after[start + common : stop] if kind in {"insert", "replace"} else []
        found += [{"op": "add", "path": f"{path}/{place}", "value": one} for one in (added if place == "-" else reversed(added))]
        if kind in {"delete", "replace"}:
            for index in reversed(range(begin + common, end)):
                found += [_test(f"{path}/{index}", before[index]), {"op": "remove", "path": f"{path}/{index}"}]
        for index in range(common):
            found += json_diff(before[begin + index], after[start + index], path=f"{path}/{begin + index}")
    return found


def _test(path: str, value: Any) -> Patch:
    return {"op": "test", "path": path, "value": value}


def _go_operation(obj: Any, operation: Patch) -> Patch | None:
    """Translate an operation from Go's meaning to the RFC's; None for a test that passes in Go."""
    grows = operation["op"] in {"add", "copy", "move"}
    path, place, key = _walk(obj, operation["path"], grows=grows)
    operation["path"] = path
    if "from" in operation:
        operation["from"] = _walk(obj, operation["from"], grows=False)[0]
    if isinstance(place, Mapping) and key not in place:
        if operation["op"] == "replace":
            operation["op"] = "add"
        elif operation["op"] == "test" and operation.get("value") is None:
            return None
    return operation


def _walk(obj: Any, path: str, *, grows: bool) -> tuple[str, Any, str]:
    """Return the pointer without negative indices, and the container and key at its end; the container is None if nothing is there."""
    parts = path.split("/")
    here, place, key = obj, None, ""
    for at, part in enumerate(parts[1:], 1):
        place, key = here, part.replace("~1", "/").replace("~0", "~")
        if isinstance(here, list) and key[:1] == "-" and key[1:].isdigit():
            key = parts[at] = str(len(here) + int(key) + (grows and at == len(parts) - 1))
        here = _child(here, key)
    return "/".join(parts), place, key


def _child(place: Any, key: str) -> Any:
    if isinstance(place, Mapping):
        return place.get(key)
    return place[int(key)] if isinstance(place, list) and key.isdigit() and int(key) < len(place) else None


def node_status_patch(original: Mapping[str, Any], new: Mapping[str, Any]) -> Patch:
    """Return the body of a Node's status patch: metadata and status only, never spec; empty if nothing differs.

    The API merges addresses by type, and would lose one of two with the same type. So the whole list is sent, marked
    as a replacement.
    """
    body = strategic_diff(_without_spec(original), _without_spec(new), lists={"status.conditions": "type"})
    before, after = _addresses(original), _addresses(new)
    if before and before != after:
        body["status"]["addresses"] = [*after, {"$patch": "replace"}]
    return body


def strategic_diff(original: Mapping[str, Any], modified: Mapping[str, Any], *, lists: MergeKeys, path: str = "") -> Patch:
    """Return the two-way strategic merge patch between two objects; empty if nothing differs.

    A removed key is null. An element of a merged list contains its key and the differences; a removed element is
    marked as deleted.
    """
    body: Patch = {}
    for key in sorted({*original, *modified}):
        here = f"{path}.{key}" if path else key
        before, after = original.get(key), modified.get(key)
        if before == after:
            continue
        if after is None:
            body[key] = None
        elif isinstance(before, Mapping) and isinstance(after, Mapping):
            inner = strategic_diff(before, after, lists=lists, path=here)
            if inner:  # a merged list in another order is no difference
                body[key] = inner
        elif here in lists and isinstance(before, list) and isinstance(after, list):
            changes = _list_diff(before, after, key=lists[here])
            if changes:
                body[key] = changes
        else:
            body[key] = after
    return body


def _list_diff(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], *, key: str) -> list[Patch]:
    known = {element[key]: element for element in before}
    changes = []
    for element in after:
        found = known.pop(element[key], None)
        if found is None:
            changes.append(dict(sorted(element.items())))
        elif found != element:
            changes.append(dict(sorted({**strategic_diff(found, element, lists={}), key: element[key]}.items())))
    return changes + [{"$patch": "delete", key: gone} for gone in known]


def apply_strategic(obj: object, patch: object, *, lists: MergeKeys, path: str = "") -> Any:
    """Apply a strategic merge patch: merge maps, remove what is null, merge lists in `lists` by their key, replace other lists.

    The directives `$patch: delete` and `$patch: replace` are supported; `$setElementOrder` is ignored.
    """
    if isinstance(patch, list):
        return _apply_list(obj, patch, lists=lists, path=path) if path in lists else [_plain(element) for element in patch]
    if not isinstance(patch, Mapping):
        return patch
    result = dict(obj) if isinstance(obj, Mapping) and patch.get("$patch") != "replace" else {}
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_strategic(result.get(key), value, lists=lists, path=f"{path}.{key}" if path else key)
    return result


def _apply_list(obj: object, patch: list[Any], *, lists: MergeKeys, path: str) -> list[Any]:
    key = lists[path]
    elements = [element for element in patch if element.get("$patch") != "replace"]
    if len(elements) != len(patch):
        return elements
    result = {element[key]: element for element in obj} if isinstance(obj, list) else {}
    for element in elements:
        if element.get("$patch") == "delete":
            result.pop(element[key], None)
        else:
            result[element[key]] = apply_strategic(result.get(element[key]), element, lists=lists, path=f"{path}[]")
    return list(result.values())


def _plain(value: object) -> object:
    return {key: _plain(inner) for key, inner in value.items() if inner is not None} if isinstance(value, Mapping) else value


def _without_spec(obj: Mapping[str, Any]) -> Object:
    return {name: value for name, value in obj.items() if name != "spec"}


def _addresses(obj: Mapping[str, Any]) -> list[Patch]:
    return list((obj.get("status") or {}).get("addresses") or [])
