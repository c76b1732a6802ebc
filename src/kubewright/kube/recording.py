"""A cluster that remembers what would be written to it, for plans and dry runs. Writes nothing anywhere.

Reads return earlier writes first, then objects of a real cluster if there is one, then stand-ins that the caller
declares, as in kubeadm's dry run (v1.36: cmd/kubeadm/app/util/apiclient/dryrun.go). A dry run reports each call in
kubeadm's words.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kubewright.base.errors import AlreadyExists, Conflict, Invalid, NotFound
from kubewright.base.events import Line, Reporter
from kubewright.base.records import dataclass
from kubewright.http.messages import Request, Response
from kubewright.kube import core, objects, resources
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import Call, Object, PatchType
from kubewright.kube.patches import NODE_LISTS, PatchError, apply_json, apply_merge, apply_strategic
from kubewright.kube.resources import Resource

Key = tuple[str, str, str | None, str]
"""Group, plural, namespace, name."""

READS: Final = frozenset({"get", "list"})

TOPIC: Final = "dryrun"
_WITH_OBJECT: Final = frozenset({"create", "update", "patch"})


@dataclass(frozen=True)
class RecordedCall:
    """One call that was made, and the object as it would be stored, or as it was found."""

    call: Call
    result: Object | None = None

    @property
    def verb(self) -> str:
        """The verb of the call."""
        return self.call.verb


class RecordingKube(KubeAPI):
    """A cluster in memory, on top of another one if there is one. Thread-safe. `actions` contains every call in order."""

    def __init__(self, base: KubeAPI | None = None, *, stand_ins: Iterable[Mapping[str, Any]] = ()) -> None:
        self._base = base
        self._stand_ins = {_key_of(resources.of(obj), obj): dict(obj) for obj in stand_ins}
        self._written: dict[Key, Object | None] = {}
        self._version = 0
        self._lock = threading.RLock()
        self.actions: builtins.list[RecordedCall] = []
        self._verbs: Mapping[str, Callable[[Call], Object]] = {
            "get": self._get,
            "list": self._list,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
        }

    @property
    def writes(self) -> builtins.list[RecordedCall]:
        """The calls that would change something, in order."""
        return [action for action in self.actions if action.verb not in READS]

    def send(self, call: Call, /) -> Object:
        """Answer a call. For written objects and stand-ins, lists support selectors by `metadata.name` and by equal labels."""
        with self._lock:
            return self._verbs[call.verb](call)

    def exchange(self, request: Request, /) -> Response:
        """Pass reads on to the real cluster; without one, and for all other requests, the answer is an empty 200."""
        if self._base is not None and request.method == "GET":
            return self._base.exchange(request)
        return Response(status=200, headers={}, body=b"ok")

    def _get(self, call: Call) -> Object:
        found = self._find(call)
        self.actions.append(RecordedCall(call, found))
        if found is None:
            raise _missing(call)
        return found

    def _list(self, call: Call) -> Object:
        self.actions.append(RecordedCall(call))
        selectors = {"label_selector": call.query.get("labelSelector", ""), "field_selector": call.query.get("fieldSelector", "")}
        real = self._base.list(call.resource, call.namespace, **selectors) if self._base is not None else []
        found = {_key_of(call.resource, obj): obj for obj in real}
        ours: dict[Key, Object | None] = {**{key: obj for key, obj in self._stand_ins.items() if key not in found}, **self._written}
        for key, obj in ours.items():
            found.pop(key, None)
            if obj is not None and _selected(key, obj, call):
                found[key] = obj
        kind, version = f"{call.resource.kind}List", call.resource.api_version
        return {"kind": kind, "apiVersion": version, "metadata": {}, "items": builtins.list(found.values())}

    def _create(self, call: Call) -> Object:
        if not call.subresource and call.name and self._find(call) is not None:
            raise AlreadyExists(f"the plan already has {call.about}", code=409, reason="AlreadyExists")
        return self._store(call, call.body)

    def _update(self, call: Call) -> Object:
        found = self._find(call)
        if found is None:
            raise _missing(call)
        version = core.metadata(call.body).get("resourceVersion")
        if version and version != core.metadata(found).get("resourceVersion"):
            raise Conflict(f"{call.about} was changed in the plan since it was read", code=409, reason="Conflict")
        return self._store(call, call.body)

    def _patch(self, call: Call) -> Object:
        found = self._find(call)
        if found is None and call.patch_type != "apply":
            raise _missing(call)
        return self._store(call, _patched(found or {}, call.body, call.patch_type))

    def _delete(self, call: Call) -> Object:
        found = self._find(call)
        if found is None:
            raise _missing(call)
        wanted = (call.body or {}).get("preconditions") or {}
        if any(core.metadata(found).get(name, value) != value for name, value in wanted.items()):
            raise Conflict(f"{call.about} was changed in the plan since it was read", code=409, reason="Conflict")
        self._written[_key(call.resource, call.name, call.namespace)] = None
        self.actions.append(RecordedCall(call))
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _find(self, call: Call) -> Object | None:
        key = _key(call.resource, call.name, call.namespace)
        if key in self._written:
            return self._written[key]
        if self._base is not None:
            try:
                return self._base.get(call.resource, call.name, call.namespace)
            except NotFound:
                pass
        return self._stand_ins.get(key)

    def _store(self, call: Call, obj: Mapping[str, Any]) -> Object:
        self._version += 1
        result = {**obj, "metadata": {**core.metadata(obj), "resourceVersion": f"plan-{self._version}"}}
        name, namespace = core.identity_of(obj)
        if name and (not call.subresource or call.subresource == "status"):
            self._written[_key(call.resource, name, namespace)] = result
        self.actions.append(RecordedCall(call, dict(obj)))
        return result


def _patched(found: Object, body: object, type: PatchType) -> Object:
    if type == "json":
        try:
            return dict(apply_json(found, body))
        except PatchError as error:
            raise Invalid(f"the patch does not fit {core.about_object(found)}", code=422, reason="Invalid", detail=str(error)) from error
    merged = apply_strategic(found, body, lists=NODE_LISTS) if type == "strategic" else apply_merge(found, body)
    return dict(merged)


def _selected(key: Key, obj: Object, call: Call) -> bool:
    if key[:2] != (call.resource.group, call.resource.plural) or (call.namespace is not None and key[2] != call.namespace):
        return False
    metadata = core.metadata(obj)
    wanted = dict(part.partition("=")[::2] for part in call.query.get("labelSelector", "").split(",") if part)
    named = dict(part.partition("=")[::2] for part in call.query.get("fieldSelector", "").split(",") if part)
    return wanted.items() <= (metadata.get("labels") or {}).items() and named.get("metadata.name", key[3]) == key[3]


def _key(resource: Resource, name: str, namespace: str | None) -> Key:
    return resource.group, resource.plural, namespace if resource.namespaced else None, name


def _key_of(resource: Resource, obj: Mapping[str, Any]) -> Key:
    name, namespace = core.identity_of(obj)
    return _key(resource, name, namespace)


def _missing(call: Call) -> NotFound:
    about = core.about(call.resource, call.name, call.namespace)
    return NotFound(f"{about} is neither in the cluster nor in the plan", code=404, reason="NotFound")


class DryRunKube(RecordingKube):
    """A recording cluster that reports each call that would change something. Reads go to the real cluster, or to memory if there is none."""

    def __init__(self, base: KubeAPI | None = None, *, reporter: Reporter, stand_ins: Iterable[Mapping[str, Any]] = ()) -> None:
        super().__init__(base, stand_ins=stand_ins)
        self._reporter = reporter

    def send(self, call: Call, /) -> Object:
        with self._lock:  # so that the last action is the one of this call
            answer = super().send(call)
            if call.verb not in READS:
                for text in dry_run_lines(self.actions[-1]):
                    self._reporter.emit(Line(topic=TOPIC, text=text))
        return answer


def dry_run_lines(action: RecordedCall) -> list[str]:
    """Describe one call in kubeadm's words. The name is added if the object does not have it; unlike in kubeadm, Secrets are masked."""
    call = action.call
    row = call.resource
    said = [f'Would perform action {call.verb.upper()} on resource "{row.plural}" in API group "{row.group or "core"}/{row.version}"']
    if call.name and call.verb != "create":
        said.append(f'Resource name "{call.name}", namespace "{call.namespace or ""}"')
    if call.verb in _WITH_OBJECT and action.result is not None:
        said.append(f"Attached object:\n{objects.masked_yaml(action.result)}")
    return said
