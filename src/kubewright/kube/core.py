"""The Kubernetes API without I/O: calls as values. Both clients send what is built here and read answers with `answers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal
from urllib.parse import quote, urlencode

import msgspec

from kubewright.base.errors import UsageError
from kubewright.base.records import dataclass, field
from kubewright.http.messages import Headers
from kubewright.kube import resources
from kubewright.kube.credentials import Access, BearerToken
from kubewright.kube.resources import Resource

Object = dict[str, Any]
"""An API object as the plain JSON map that it is."""

PatchType = Literal["strategic", "merge", "json", "apply"]
Propagation = Literal["", "Orphan", "Background", "Foreground"]
PAGE: Final = 500
"""Objects per page of a list, as kubectl asks for."""
FIELD_MANAGER: Final = "kubeadm"
JSON: Final = "application/json"

_PATCHES: Final[dict[PatchType, str]] = {
    "strategic": "application/strategic-merge-patch+json",
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",  # JSON is YAML
}

_encoder: Final = msgspec.json.Encoder()


@dataclass(frozen=True, kw_only=True)
class Writing:
    """How a client writes: who is named as field manager, and whether the server only pretends."""

    field_manager: str = FIELD_MANAGER
    dry_run: bool = False

    def parameters(self) -> dict[str, str]:
        shown = {"fieldManager": self.field_manager} if self.field_manager else {}
        return {**shown, "dryRun": "All"} if self.dry_run else shown


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request to the API. `about` names the object for messages: `configmap kube-system/kubeadm-config`."""

    method: str
    target: str
    about: str
    verb: str
    headers: Headers = field(default_factory=dict)
    body: bytes | None = None


def encode(value: object) -> bytes:
    """Write compact JSON."""
    return _encoder.encode(value)


def about(resource: Resource, name: str = "", namespace: str | None = None) -> str:
    """Name an object, or a collection, for messages."""
    if not name:
        return f"{resource.plural} in {namespace}" if namespace and resource.namespaced else resource.plural
    return f"{resource.singular} {namespace}/{name}" if namespace and resource.namespaced else f"{resource.singular} {name}"


def about_object(obj: Mapping[str, Any]) -> str:
    """Name an object by its own fields."""
    name, namespace = identity_of(obj)
    kind = str(obj.get("kind", "object")).lower()
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name or metadata(obj).get('generateName', '')}"


def metadata(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object's metadata, empty where it has none."""
    found = obj.get("metadata")
    return found if isinstance(found, Mapping) else {}


def identity_of(obj: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return an object's name, '' if the server makes it, and its namespace."""
    about_it = metadata(obj)
    return str(about_it.get("name") or ""), about_it.get("namespace") or None


def headers_for(access: Access) -> dict[str, str | tuple[str, ...]]:
    """Return the headers that every request of an access carries."""
    headers: dict[str, str | tuple[str, ...]] = {"accept": JSON}
    if isinstance(access.identity, BearerToken):
        headers["authorization"] = f"Bearer {access.identity.token}"
    acting = access.impersonation
    if acting is not None:
        headers["impersonate-user"] = acting.user
        headers["impersonate-group"] = acting.groups
        headers["impersonate-uid"] = (acting.uid,) if acting.uid else ()
        headers |= {f"impersonate-extra-{quote(key, safe='')}": values for key, values in acting.extra.items()}
    return headers


def get(resource: Resource, name: str, namespace: str | None = None, *, subresource: str = "") -> Call:
    """Read one object."""
    return Call(
        method="GET",
        target=_named(resource, name, namespace, subresource),
        about=about(resource, name, namespace),
        verb="read",
    )


def list_page(
    resource: Resource,
    namespace: str | None = None,
    *,
    label_selector: str = "",
    field_selector: str = "",
    resource_version: str = "",
    limit: int = PAGE,
    token: str = "",
) -> Call:
    """Read one page of a collection. `token` is the continue token of the page before."""
    query = _query(
        labelSelector=label_selector,
        fieldSelector=field_selector,
        resourceVersion="" if token else resource_version,
        limit=str(limit) if limit else "",
        **{"continue": token},
    )
    return Call(method="GET", target=resource.path(namespace=namespace) + query, about=about(resource, "", namespace), verb="list")


def watch(
    resource: Resource,
    namespace: str | None = None,
    *,
    label_selector: str = "",
    field_selector: str = "",
    resource_version: str = "",
    seconds: int = 0,
) -> Call:
    """Watch a collection from a resource version on; the server ends it after so many seconds (0: as it likes)."""
    query = _query(
        watch="true",
        allowWatchBookmarks="true",
        labelSelector=label_selector,
        fieldSelector=field_selector,
        resourceVersion=resource_version,
        timeoutSeconds=str(seconds) if seconds else "",
    )
    return Call(method="GET", target=resource.path(namespace=namespace) + query, about=about(resource, "", namespace), verb="watch")


def create(obj: Mapping[str, Any], writing: Writing, *, resource: Resource | None = None, subresource: str = "") -> Call:
    """Create an object; its namespace is in its metadata. With a subresource (`eviction`, `token`) the object's name is in the path."""
    row = resource or resources.of(obj)
    name, namespace = identity_of(obj)
    _require_namespace(row, namespace, name)
    path = row.path(name if subresource else "", namespace=namespace, subresource=subresource)
    return _write("POST", path + _query(**writing.parameters()), obj, about=about_object(obj), verb="create")


def update(obj: Mapping[str, Any], writing: Writing, *, resource: Resource | None = None, subresource: str = "") -> Call:
    """Replace an object."""
    row = resource or resources.of(obj)
    name, namespace = identity_of(obj)
    path = _named(row, name, namespace, subresource)
    return _write("PUT", path + _query(**writing.parameters()), obj, about=about_object(obj), verb="update")


def patch(
    resource: Resource,
    name: str,
    body: object,
    namespace: str | None = None,
    *,
    type: PatchType,
    writing: Writing,
    subresource: str = "",
    force: bool = False,
) -> Call:
    """Change part of an object. `force` takes over fields of other managers (apply only)."""
    query = _query(**writing.parameters(), force="true" if force and type == "apply" else "")
    path = _named(resource, name, namespace, subresource)
    return _write("PATCH", path + query, body, about=about(resource, name, namespace), verb="patch", content_type=_PATCHES[type])


def delete(
    resource: Resource,
    name: str,
    namespace: str | None = None,
    *,
    writing: Writing,
    propagation: Propagation = "",
    grace_seconds: int | None = None,
    uid: str = "",
    resource_version: str = "",
) -> Call:
    """Delete an object, where `uid` or `resource_version` is given only if it still has that one."""
    options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if propagation:
        options["propagationPolicy"] = propagation
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    conditions = {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
    if conditions:
        options["preconditions"] = conditions
    if writing.dry_run:
        options["dryRun"] = ["All"]
    return _write("DELETE", _named(resource, name, namespace, ""), options, about=about(resource, name, namespace), verb="delete")


def raw(method: str, path: str, *, body: bytes | None = None, headers: Headers | None = None) -> Call:
    """Any request; `path` is absolute and encoded, with its query: `/readyz?verbose`."""
    if not path.startswith("/"):
        raise UsageError(f"{path!r} is not an absolute path", remedy="write it like /readyz")
    return Call(method=method, target=path, about=path.partition("?")[0], verb=method, headers=headers or {}, body=body)


def _write(method: str, target: str, body: object, *, about: str, verb: str, content_type: str = JSON) -> Call:
    return Call(method=method, target=target, about=about, verb=verb, headers={"content-type": content_type}, body=encode(body))


def _named(resource: Resource, name: str, namespace: str | None, subresource: str) -> str:
    if not name:
        raise UsageError(f"a {resource.singular} without a name cannot be addressed", remedy="set metadata.name")
    _require_namespace(resource, namespace, name)
    return resource.path(name, namespace=namespace, subresource=subresource)


def _require_namespace(resource: Resource, namespace: str | None, name: str) -> None:
    if resource.namespaced and not namespace:
        raise UsageError(f"{resource.singular} {name} needs a namespace", remedy="set metadata.namespace")


def _query(**parameters: str) -> str:
    given = {key: value for key, value in parameters.items() if value}
    return f"?{urlencode(given)}" if given else ""
