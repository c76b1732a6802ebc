"""Comparing what is desired with what is there, by meaning: the server adds defaults, drops what is empty, and keeps its own fields."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from kubewright.base import yaml
from kubewright.base.change import unified_diff
from kubewright.base.masking import MASK, mask
from kubewright.kube import core
from kubewright.kube.core import Object

_SERVERS_OWN: Final = frozenset({"managedFields", "uid", "resourceVersion", "creationTimestamp", "generation", "selfLink"})
"""Fields of metadata that the server writes."""
_DATA: Final = ("data", "binaryData", "stringData")
_METADATA_MAPS: Final = ("labels", "annotations")
_CHANGED: Final = f"{MASK} (changed)"


def contains(found: object, desired: object) -> bool:
    """Whether everything desired is in what was found. Maps may hold more; lists must match element by element; empty and absent are one."""
    if isinstance(desired, Mapping) and isinstance(found, Mapping):
        return all(contains(found.get(key), value) for key, value in desired.items())
    if isinstance(desired, list) and isinstance(found, list):
        return len(desired) == len(found) and all(map(contains, found, desired))
    if _empty(desired) and _empty(found):
        return True
    return type(desired) is type(found) and desired == found


def _empty(value: object) -> bool:
    """Whether Go's omitempty leaves the value out."""
    return value is None or value is False or value in ("", 0) or (isinstance(value, (Mapping, list)) and not value)


def normal(body: Mapping[str, Any]) -> Object:
    """Return a desired object as the server would store it: without status and server's fields, `stringData` as `data`."""
    result = {key: value for key, value in body.items() if key not in {"status", "stringData"}}
    result["metadata"] = {key: value for key, value in (body.get("metadata") or {}).items() if key not in _SERVERS_OWN}
    texts = body.get("stringData") or {}
    if texts:
        result["data"] = {**(body.get("data") or {}), **{key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}}
    return result


def replaced(found: Mapping[str, Any], desired: Mapping[str, Any]) -> Object:
    """Return the object to PUT: the raw map that was found, with each field of the desired one in its place.

    Labels, annotations and fields that nobody asked for stay; what is desired replaces what was there as a whole (kubeadm replaces the
    entire object, and loses what others added). The resourceVersion stays: a change in between is a Conflict.
    """
    metadata = {**(found.get("metadata") or {})}
    for key, value in desired["metadata"].items():
        metadata[key] = {**(metadata.get(key) or {}), **value} if key in _METADATA_MAPS and isinstance(value, Mapping) else value
    return {**found, **desired, "metadata": metadata}


def difference(found: Mapping[str, Any] | None, desired: Mapping[str, Any], *, name: str) -> str:
    """Return the diff between two objects as YAML, without what the server adds, secrets masked; None stands for no object."""
    before = _shown(found) if found is not None else {}
    after = _shown(desired if found is None else _overlaid(found, desired))
    if str(desired.get("kind")) == "Secret":
        texts = [yaml.dump(value) if value else "" for value in (_masked(before, {}), _masked(after, before))]
    else:
        texts = [mask(yaml.dump(value)) if value else "" for value in (before, after)]
    return unified_diff(texts[0], texts[1], name=name)


def masked_yaml(obj: Mapping[str, Any]) -> str:
    """Return an object as YAML without what is secret."""
    return mask(yaml.dump(dict(obj)))  # knows what a Secret is


def _shown(obj: Mapping[str, Any]) -> Object:
    return normal(obj)


def _overlaid(found: Mapping[str, Any], desired: Mapping[str, Any]) -> Object:
    """Lay the desired object over the found one, so that the server's defaults do not show up as differences; data counts as a whole."""
    result = _overlay(found, normal(desired))
    return {**result, **{key: desired[key] for key in _DATA if key in desired}} if isinstance(result, dict) else dict(desired)


def _overlay(found: object, desired: object) -> Any:
    if contains(found, desired):
        return found
    if isinstance(found, Mapping) and isinstance(desired, Mapping):
        changed = {key: value for key, value in desired.items() if not contains(found.get(key), value)}
        return {**found, **{key: _overlay(found.get(key), value) for key, value in changed.items()}}
    if isinstance(found, list) and isinstance(desired, list) and len(found) == len(desired):
        return list(map(_overlay, found, desired))
    return desired


def _masked(obj: Object, before: Object) -> Object:
    """Hide a Secret's values; one that differs from before says so, which `mask` could not leave readable."""
    known = before.get("data") or {}

    def hidden(key: str, value: object) -> str:
        return MASK if not before or known.get(key) == value else _CHANGED

    shown = {key: value for key, value in obj.items() if key not in _DATA}
    shown |= {field: {key: hidden(key, value) for key, value in obj[field].items()} for field in _DATA if obj.get(field)}
    notes = core.metadata(obj).get("annotations") or {}
    if notes:  # one of kubectl's holds the whole object
        shown["metadata"] = {**shown["metadata"], "annotations": {key: mask(str(value)) for key, value in notes.items()}}
    return shown
