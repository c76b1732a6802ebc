"""A cluster that remembers what would be written to it, for plans and dry runs. Writes nothing anywhere.

Reads see earlier writes first, then a real cluster where there is one, then stand-ins that the caller declares. kubeadm's dry run works the
same way and prints every request (kubeadm.md 2.5); `Action.lines` has its words.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubewright.base.errors import AlreadyExists, Conflict, Invalid, NotFound
from kubewright.base.records import dataclass
from kubewright.http.messages import Headers, Response
from kubewright.kube import comparing, core, resources
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import Object, PatchType, Propagation
from kubewright.kube.patches import NODE_LISTS, PatchError, apply_json, apply_merge, apply_strategic
from kubewright.kube.resources import Resource

Key = tuple[str, str, str | None, str]
"""Group, plural, namespace, name."""

READS: Final = frozenset({"get", "list"})


@dataclass(frozen=True, kw_only=True)
class Action:
    """One request that was made. `body` is what was sent (a patch as it is), `result` the object as it would be stored."""

    verb: str
    resource: Resource
    name: str = ""
    namespace: str | None = None
    body: object = None
    result: Object | None = None
    subresource: str = ""

    def lines(self) -> list[str]:
        """Say it in kubeadm's words; secrets are masked, which kubeadm does not do."""
        row = self.resource
        said = [
            f'[dryrun] Would perform action {self.verb.upper()} on resource "{row.plural}" in API group "{row.group or "core"}/{row.version}"'
        ]
        if self.name:
            said.append(f'[dryrun] Resource name "{self.name}", namespace "{self.namespace or ""}"')
        if self.verb in {"create", "update"} and self.result is not None:
            said += ["[dryrun] Attached object:", *(f"\t{line}" for line in comparing.masked_yaml(self.result).splitlines())]
        return said


class RecordingKube:
    """Implements `api.KubeAPI` on memory. Thread-safe. `actions` holds every request in order, `writes` those that change something."""

    def __init__(self, base: KubeAPI | None = None, *, stand_ins: Iterable[Mapping[str, Any]] = ()) -> None:
        self._base = base
        self._stand_ins = {_key_of(resources.of(obj), obj): dict(obj) for obj in stand_ins}
        self._written: dict[Key, Object | None] = {}
        self._version = 0
        self._lock = threading.RLock()
        self.actions: builtins.list[Action] = []

    @property
    def writes(self) -> builtins.list[Action]:
        """The requests that would change something, in order."""
        return [action for action in self.actions if action.verb not in READS]

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        with self._lock:
            found = self._find(resource, name, namespace)
            self.actions.append(Action(verb="get", resource=resource, name=name, namespace=namespace, result=found))
        if found is None:
            raise _missing(resource, name, namespace)
        return found

    def list(
        self, resource: Resource, namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> builtins.list[Object]:
        """List as the base does; of what was written and of stand-ins, selectors by `metadata.name` and equal labels are understood."""
        with self._lock:
            self.actions.append(Action(verb="list", resource=resource, namespace=namespace))
            selectors = {"label_selector": label_selector, "field_selector": field_selector}
            real = self._base.list(resource, namespace, **selectors) if self._base is not None else []
            found = {_key_of(resource, obj): obj for obj in real}
            ours: dict[Key, Object | None] = {**{key: obj for key, obj in self._stand_ins.items() if key not in found}, **self._written}
            for key, obj in ours.items():
                found.pop(key, None)
                if obj is not None and _selected(key, obj, resource, namespace, label_selector, field_selector):
                    found[key] = obj
            return builtins.list(found.values())

    def create(self, obj: Mapping[str, Any], *, resource: Resource | None = None, subresource: str = "") -> Object:
        row = resource or resources.of(obj)
        name, namespace = core.identity_of(obj)
        with self._lock:
            if not subresource and name and self._find(row, name, namespace) is not None:
                raise AlreadyExists(f"the plan already has {core.about_object(obj)}", code=409, reason="AlreadyExists")
            return self._store("create", row, obj, body=obj, subresource=subresource)

    def update(self, obj: Mapping[str, Any], *, resource: Resource | None = None, subresource: str = "") -> Object:
        row = resource or resources.of(obj)
        name, namespace = core.identity_of(obj)
        with self._lock:
            found = self._find(row, name, namespace)
            if found is None:
                raise _missing(row, name, namespace)
            version = core.metadata(obj).get("resourceVersion")
            if version and version != core.metadata(found).get("resourceVersion"):
                raise Conflict(f"{core.about_object(obj)} changed in the plan since it was read", code=409, reason="Conflict")
            return self._store("update", row, obj, body=obj, subresource=subresource)

    def patch(
        self,
        resource: Resource,
        name: str,
        body: object,
        namespace: str | None = None,
        *,
        type: PatchType = "strategic",
        subresource: str = "",
        force: bool = False,
    ) -> Object:
        with self._lock:
            found = self._find(resource, name, namespace)
            if found is None and type != "apply":
                raise _missing(resource, name, namespace)
            changed = _patched(found or {}, body, type)
            return self._store("patch", resource, changed, body=body, subresource=subresource)

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        propagation: Propagation = "",
        grace_seconds: int | None = None,
        uid: str = "",
        resource_version: str = "",
    ) -> Object:
        with self._lock:
            if self._find(resource, name, namespace) is None:
                raise _missing(resource, name, namespace)
            self._written[_key(resource, name, namespace)] = None
            self.actions.append(Action(verb="delete", resource=resource, name=name, namespace=namespace))
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def raw(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Headers | None = None,
        timeout: float | None = None,
    ) -> Response:
        """Pass reads on to the real cluster; without one, and for everything else, the answer is an empty 200."""
        if self._base is not None and method == "GET":
            return self._base.raw(method, path, headers=headers, timeout=timeout)
        return Response(status=200, headers={}, body=b"ok")

    def close(self) -> None:
        """Do nothing: the real cluster's client belongs to whoever made it."""

    def _find(self, resource: Resource, name: str, namespace: str | None) -> Object | None:
        key = _key(resource, name, namespace)
        if key in self._written:
            return self._written[key]
        if self._base is not None:
            try:
                return self._base.get(resource, name, namespace)
            except NotFound:
                pass
        return self._stand_ins.get(key)

    def _store(self, verb: str, row: Resource, obj: Mapping[str, Any], *, body: object, subresource: str) -> Object:
        self._version += 1
        result = {**obj, "metadata": {**core.metadata(obj), "resourceVersion": f"plan-{self._version}"}}
        name, namespace = core.identity_of(obj)
        if name and (not subresource or subresource == "status"):
            self._written[_key_of(row, obj)] = result
        self.actions.append(
            Action(verb=verb, resource=row, name=name, namespace=namespace, body=body, result=dict(obj), subresource=subresource)
        )
        return result


def _patched(found: Object, body: object, type: PatchType) -> Object:
    if type == "json":
        try:
            return dict(apply_json(found, body))
        except PatchError as error:
            raise Invalid(f"the patch does not fit {core.about_object(found)}", code=422, reason="Invalid", detail=str(error)) from error
    merged = apply_strategic(found, body, lists=NODE_LISTS) if type == "strategic" else apply_merge(found, body)
    return dict(merged)


def _selected(key: Key, obj: Object, resource: Resource, namespace: str | None, labels: str, fields: str) -> bool:
    if key[:2] != (resource.group, resource.plural) or (namespace is not None and key[2] != namespace):
        return False
    metadata = core.metadata(obj)
    wanted = dict(part.partition("=")[::2] for part in labels.split(",") if part)
    named = dict(part.partition("=")[::2] for part in fields.split(",") if part)
    return wanted.items() <= (metadata.get("labels") or {}).items() and named.get("metadata.name", key[3]) == key[3]


def _key(resource: Resource, name: str, namespace: str | None) -> Key:
    return resource.group, resource.plural, namespace if resource.namespaced else None, name


def _key_of(resource: Resource, obj: Mapping[str, Any]) -> Key:
    name, namespace = core.identity_of(obj)
    return _key(resource, name, namespace)


def _missing(resource: Resource, name: str, namespace: str | None) -> NotFound:
    return NotFound(f"{core.about(resource, name, namespace)} is neither in the cluster nor in the plan", code=404, reason="NotFound")
