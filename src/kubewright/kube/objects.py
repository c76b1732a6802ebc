"""Objects as desired state, including the labels, annotations and taints of Nodes: read, compare, act, report one Change.

The server adds defaults, drops empty fields, and sets some fields itself; none of these counts as a difference.
kubeadm creates an object, and replaces it if the answer is "already exists" (v1.36: apiclient/idempotency.go). This
module reads the existing object first and changes it by a PUT of the raw map that it has read. Unknown fields are
therefore never lost, and a concurrent change is noticed.
"""

from __future__ import annotations

import base64
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kubewright.base import yaml
from kubewright.base.change import Action, Change, Lifetime, unified_diff
from kubewright.base.errors import AlreadyExists, Conflict, NotFound
from kubewright.base.masking import MASK, mask
from kubewright.base.records import dataclass, field
from kubewright.kube import core, resources
from kubewright.kube.api import AsyncKubeAPI, KubeAPI, ObjectT, Verbs
from kubewright.kube.core import Object
from kubewright.kube.patches import NODE_LISTS, strategic_diff
from kubewright.kube.resources import Resource

_SERVERS_OWN: Final = frozenset({"managedFields", "uid", "resourceVersion", "creationTimestamp", "generation", "selfLink"})
"""Metadata fields that the server writes."""
_DATA: Final = ("data", "binaryData", "stringData")
_METADATA_MAPS: Final = ("labels", "annotations")
_CHANGED: Final = f"{MASK} (changed)"

_ATTEMPTS: Final = 4
"""How often an object that others keep changing is read."""


def contains(found: object, desired: object) -> bool:
    """Whether `found` has everything desired. Maps may have more keys; lists must match element by element; empty and absent are equal."""
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
    """Return a desired object as the server would store it: without status and the server's fields, and with `stringData` as `data`."""
    result = {key: value for key, value in body.items() if key not in {"status", "stringData"}}
    result["metadata"] = {key: value for key, value in (body.get("metadata") or {}).items() if key not in _SERVERS_OWN}
    texts = body.get("stringData") or {}
    if texts:
        result["data"] = {**(body.get("data") or {}), **{key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}}
    return result


def replaced(found: Mapping[str, Any], desired: Mapping[str, Any]) -> Object:
    """Return the object to PUT: the raw map that was found, updated with the fields of the desired one.

    Labels, annotations and fields that are not desired stay; a desired field replaces the found one as a whole.
    (kubeadm replaces the entire object, and so loses what others have added.) The resourceVersion stays, so that a
    change in between is a Conflict.
    """
    metadata = {**(found.get("metadata") or {})}
    for key, value in desired["metadata"].items():
        metadata[key] = {**(metadata.get(key) or {}), **value} if key in _METADATA_MAPS and isinstance(value, Mapping) else value
    return {**found, **desired, "metadata": metadata}


def difference(found: Mapping[str, Any] | None, desired: Mapping[str, Any], *, name: str) -> str:
    """Return the diff between two objects as YAML, without the server's fields and with secrets masked; None stands for no object."""
    before = _shown(found) if found is not None else {}
    after = _shown(desired if found is None else _overlaid(found, desired))
    if str(desired.get("kind")) == "Secret":
        texts = [yaml.dump(value) if value else "" for value in (_masked(before, {}), _masked(after, before))]
    else:
        texts = [mask(yaml.dump(value)) if value else "" for value in (before, after)]
    return unified_diff(texts[0], texts[1], name=name)


def masked_yaml(obj: Mapping[str, Any]) -> str:
    """Return an object as YAML with secrets masked."""
    return mask(yaml.dump(dict(obj)))  # recognizes Secrets


def _shown(obj: Mapping[str, Any]) -> Object:
    return normal(obj)


def _overlaid(found: Mapping[str, Any], desired: Mapping[str, Any]) -> Object:
    """Lay the desired object over the found one, so that the server's defaults do not show up as differences; data is replaced as a whole."""
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
    """Hide a Secret's values and mark those that differ from before, which `mask` alone would not show."""
    known = before.get("data") or {}

    def hidden(key: str, value: object) -> str:
        return MASK if not before or known.get(key) == value else _CHANGED

    shown = {key: value for key, value in obj.items() if key not in _DATA}
    shown |= {field: {key: hidden(key, value) for key, value in obj[field].items()} for field in _DATA if obj.get(field)}
    notes = core.metadata(obj).get("annotations") or {}
    if notes:  # kubectl's annotation contains the whole object
        shown["metadata"] = {**shown["metadata"], "annotations": {key: mask(str(value)) for key, value in notes.items()}}
    return shown


class Write(enum.Enum):
    """How an existing object may be changed."""

    REPLACE = "replace"
    """Set the desired fields; keep all others."""
    CREATE_ONLY = "create only"
    """Leave the object as it is."""
    MUTATE_DATA_KEYS = "mutate data keys"
    """Set the named keys of `data`; everything else stays (kubeadm-config)."""


@dataclass(frozen=True)
class DesiredObject:
    """A desired API object. `keys` are the data keys of MUTATE_DATA_KEYS, by default all of the body's."""

    body: Mapping[str, Any]
    write: Write = field(default=Write.REPLACE, kw_only=True)
    lifetime: Lifetime = field(default=Lifetime.DURABLE, kw_only=True)
    keys: tuple[str, ...] = field(default=(), kw_only=True)
    resource: Resource | None = field(default=None, kw_only=True)
    """The resource of a kind that the table does not contain."""

    @property
    def target(self) -> str:
        """The object's name in messages: `configmap kube-system/kubeadm-config`."""
        return core.about_object(self.body)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The required action, and the object to send."""

    change: Change
    body: core.Object


def decide(found: Mapping[str, Any] | None, desired: DesiredObject) -> Decision:
    """Compare the object that was found (None: it does not exist) with the desired one. Pure."""
    wanted = normal(desired.body)
    if found is None:
        return _decision(desired, Action.CREATE, wanted, diff=difference(None, wanted, name=desired.target))
    if desired.write is Write.CREATE_ONLY:
        return _decision(desired, Action.NONE, dict(found), reason="it is there and is left as it is")
    if desired.write is Write.MUTATE_DATA_KEYS:
        given = wanted.get("data") or {}
        part = {key: given[key] for key in desired.keys or tuple(given)}
        wanted = {**found, "data": {**(found.get("data") or {}), **part}, "metadata": {}}
    if contains(found, wanted):
        return _decision(desired, Action.NONE, dict(found))
    body = replaced(found, wanted)
    return _decision(desired, Action.UPDATE, body, diff=difference(found, body, name=desired.target))


def ensure_object(api: KubeAPI, desired: DesiredObject) -> Change:
    """Create or update an object as desired, and report what that took.

    If someone else creates, changes or deletes the object at the same moment, read it again, a few times; then raise
    the error.
    """
    row = desired.resource or resources.of(desired.body)
    return ensure_derived(api, row, *core.identity_of(desired.body), wanted=lambda _: desired)


def ensure_derived(
    api: KubeAPI, resource: Resource, name: str, namespace: str | None = None, *, wanted: Callable[[Object | None], DesiredObject]
) -> Change:
    """Update an object to what `wanted` computes from its current state, None if it does not exist.

    Handles concurrent changes as `ensure_object` does, and computes the object again after each.
    """

    def look() -> core.Object | None:
        try:
            return api.get(resource, name, namespace)
        except NotFound:
            return None

    return _settle(look, lambda found: decide(found, wanted(found)), lambda decision: _write(api, decision, resource))


async def ensure_object_async(api: AsyncKubeAPI, desired: DesiredObject) -> Change:
    """Create or update an object as desired, like `ensure_object`, but read it only once, for callers that try again themselves."""
    row = desired.resource or resources.of(desired.body)
    try:
        found = await api.get(row, *core.identity_of(desired.body))
    except NotFound:
        found = None
    decision = decide(found, desired)
    if decision.change:
        await _write(api, decision, row)
    return decision.change


def remove_object(api: KubeAPI, resource: Resource, name: str, namespace: str | None = None, *, uid: str = "") -> Change:
    """Delete an object, and report what that took: the one with this uid, or the current one. Raises Conflict if another one replaces it."""
    target = core.about(resource, name, namespace)
    try:
        uid = uid or str(core.metadata(api.get(resource, name, namespace)).get("uid") or "")
        api.delete(resource, name, namespace, uid=uid)
    except NotFound:
        return Change(target=target, action=Action.NONE)
    return Change(target=target, action=Action.DELETE)


def _settle(
    look: Callable[[], core.Object | None],
    choose: Callable[[core.Object | None], Decision],
    act: Callable[[Decision], object],
) -> Change:
    for attempt in range(_ATTEMPTS):
        decision = choose(look())
        if not decision.change:
            break
        try:
            act(decision)
            break
        except (AlreadyExists, Conflict, NotFound):
            if attempt == _ATTEMPTS - 1:
                raise
    return decision.change


def _write(api: Verbs[ObjectT, Any], decision: Decision, row: Resource) -> ObjectT:
    write = api.create if decision.change.action is Action.CREATE else api.update
    return write(decision.body, resource=row)


def _decision(desired: DesiredObject, action: Action, body: core.Object, *, diff: str = "", reason: str = "") -> Decision:
    change = Change(target=desired.target, action=action, diff=diff, reason=reason, lifetime=desired.lifetime)
    return Decision(change=change, body=body)


@dataclass(frozen=True, kw_only=True)
class NodeMarks:
    """The marks that a Node should have. Its existing taints come after these; a label or annotation of None is removed."""

    name: str
    labels: Mapping[str, str | None] = field(default_factory=dict)
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    taints: Sequence[Mapping[str, Any]] = ()


def marked(node: Mapping[str, Any], marks: NodeMarks) -> Object:
    """Return a Node with its marks. Pure; returns the same object if it has them already."""
    metadata, spec = dict(node.get("metadata") or {}), dict(node.get("spec") or {})
    for key, given in (("labels", marks.labels), ("annotations", marks.annotations)):
        merged = {**(metadata.get(key) or {}), **given}
        if given:
            metadata[key] = {name: value for name, value in merged.items() if value is not None}
    present = list(spec.get("taints") or [])
    if any(not _has(present, taint) for taint in marks.taints):
        spec["taints"] = [*marks.taints, *(taint for taint in present if not _has(marks.taints, taint))]
    return {**node, "metadata": metadata, "spec": spec}


def ensure_node_marks(api: KubeAPI, marks: NodeMarks) -> Change:
    """Patch a Node so that it has its marks, and report what that took. Raises NotFound if the Node has not registered yet."""
    found = api.get(resources.NODE, marks.name)
    wanted = marked(found, marks)
    body = strategic_diff(found, wanted, lists=NODE_LISTS)
    target = f"node {marks.name}"
    if not body:
        return Change(target=target, action=Action.NONE)
    api.patch(resources.NODE, marks.name, body, type="strategic")
    return Change(target=target, action=Action.UPDATE, diff=difference(found, wanted, name=target))


def _has(taints: Sequence[Mapping[str, Any]], taint: Mapping[str, Any]) -> bool:
    return any(contains(one, taint) and contains(taint, one) for one in taints)
