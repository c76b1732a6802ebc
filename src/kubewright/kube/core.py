"""The Kubernetes API without I/O: calls as values, and their encoding. Answers are read by `answers`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal
from urllib.parse import quote, urlencode

import msgspec

from kubewright.base.errors import Flooded, UsageError
from kubewright.base.masking import remember_token
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass, field
from kubewright.http.failures import NoAnswer, Reason
from kubewright.http.messages import Headers, Request
from kubewright.kube import resources
from kubewright.kube.credentials import Access, BearerToken
from kubewright.kube.resources import Resource

Object = dict[str, Any]
"""An API object as a plain JSON map."""

PatchType = Literal["strategic", "merge", "json", "apply"]
Propagation = Literal["", "Orphan", "Background", "Foreground"]
PAGE: Final = 500
"""Objects per page of a list, as in kubectl."""
MOST_PAGES: Final = 10_000
"""Pages of one list. A server that always announces another page would otherwise be read forever."""
_SMALLER: Final = 4
"""A page that was too large is requested again with this fraction of the objects."""
FROM_CACHE: Final = "0"
"""The resource version of a list that the server may answer from its cache."""
FIELD_MANAGER: Final = "kubeadm"
JSON: Final = "application/json"

_PATCHES: Final[dict[PatchType, str]] = {
    "strategic": "application/strategic-merge-patch+json",
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",  # JSON is YAML
}

_METHODS: Final[Mapping[str, str]] = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
}
_OF_COLLECTIONS: Final = frozenset({"list", "watch"})
_WITH_OBJECT: Final = frozenset({"create", "update"})

_encoder: Final = msgspec.json.Encoder()


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call to the API, as a value: the seam sends it, and wrappers of the seam inspect it.

    `verb` is RBAC's (`get`, `list`, `watch`, `create`, `update`, `patch`, `delete`). `body` is plain JSON: an object,
    a patch, or the options of a deletion. `query` contains selectors and the like; the sender adds the field manager.
    """

    verb: str
    resource: Resource
    name: str = ""
    namespace: str | None = None
    subresource: str = ""
    body: Any = None
    patch_type: PatchType = "strategic"
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def about(self) -> str:
        """The object's name in messages: `configmap kube-system/kubeadm-config`."""
        return about_object(self.body) if self.verb in _WITH_OBJECT else about(self.resource, self.name, self.namespace)

    @property
    def doing(self) -> str:
        """The verb in messages."""
        return "read" if self.verb == "get" else self.verb


def request(call: Call, field_manager: str) -> Request:
    """Encode a call. Raises UsageError for names that would change the structure of the path."""
    method = _METHODS[call.verb]
    collection = call.verb in _OF_COLLECTIONS or (call.verb == "create" and not call.subresource)
    target = call.resource.path("" if collection else call.name, namespace=call.namespace, subresource=call.subresource)
    if call.body is None:
        return Request(method, target + _query(**call.query))
    query = {} if call.verb == "delete" else _given(fieldManager=field_manager)
    kind = _PATCHES[call.patch_type] if call.verb == "patch" else JSON
    return Request(method, target + _query(**query, **call.query), headers={"content-type": kind}, body=encode(call.body))


def encode(value: object) -> bytes:
    """Write compact JSON."""
    return _encoder.encode(value)


def about(resource: Resource, name: str = "", namespace: str | None = None) -> str:
    """Name an object, or a collection, in messages."""
    if not name:
        return f"{resource.plural} in {namespace}" if namespace and resource.namespaced else resource.plural
    return f"{resource.singular} {namespace}/{name}" if namespace and resource.namespaced else f"{resource.singular} {name}"


def about_object(obj: Mapping[str, Any]) -> str:
    """Name an object by its own fields."""
    name, namespace = identity_of(obj)
    kind = str(obj.get("kind", "object")).lower()
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name or metadata(obj).get('generateName', '')}"


def metadata(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object's metadata, empty if it has none."""
    found = obj.get("metadata")
    return found if isinstance(found, Mapping) else {}


def annotation_of(obj: Mapping[str, Any], name: str) -> str:
    """Return an annotation of an object, '' if it has none of this name."""
    return str((metadata(obj).get("annotations") or {}).get(name) or "")


def footprint(obj: Mapping[str, Any]) -> int:
    """Estimate how many bytes an object takes in memory. Empty maps, for example, take far more than their text."""
    text = _encoder.encode(obj)
    return 2 * len(text) + 64 * (text.count(b",") + text.count(b"[")) + 184 * text.count(b"{")


def identity_of(obj: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return an object's name, '' if the server generates it, and its namespace."""
    about_it = metadata(obj)
    return str(about_it.get("name") or ""), about_it.get("namespace") or None


def headers_for(access: Access) -> dict[str, str | tuple[str, ...]]:
    """Return the headers of every request with this access."""
    headers: dict[str, str | tuple[str, ...]] = {"accept": JSON}
    if isinstance(access.identity, BearerToken):
        headers["authorization"] = f"Bearer {remember_token(access.identity.token)}"
    acting = access.impersonation
    if acting is not None:
        headers["impersonate-user"] = acting.user
        headers["impersonate-group"] = acting.groups
        headers["impersonate-uid"] = (acting.uid,) if acting.uid else ()
        headers |= {f"impersonate-extra-{quote(key, safe='')}": values for key, values in acting.extra.items()}
    return headers


def get(resource: Resource, name: str, namespace: str | None = None) -> Call:
    """Read one object."""
    return _named("get", resource, name, namespace)


def list_page(
    resource: Resource,
    namespace: str | None = None,
    *,
    label_selector: str = "",
    field_selector: str = "",
    resource_version: str = "",
    token: str = "",
    limit: int = PAGE,
) -> Call:
    """Read one page of a collection. `token` is the continue token of the previous page."""
    query = _given(
        labelSelector=label_selector,
        fieldSelector=field_selector,
        resourceVersion="" if token else resource_version,
        # From its cache the server returns all objects at once, whatever the limit is.
        limit=str(limit) if resource_version != FROM_CACHE else "",
        **{"continue": token},
    )
    return Call(verb="list", resource=resource, namespace=namespace, query=query)


class Listing:
    """A collection that is read page by page: send `call` and add the page, until it is complete.

    A page that is too large to be read is requested again with fewer objects: anybody with the right to create objects
    of a kind may create some of more than a megabyte.
    """

    def __init__(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        slim: Callable[[Object], Object] | None = None,
        most: int = 0,
    ) -> None:
        """Keep the arguments. `slim` reduces each object to what is kept; `most` limits the footprint of the result, 0 for no limit."""
        self._about = about(resource, "", namespace)
        self._slim = slim
        self._most = most
        self._taken = 0
        self._pages = 0
        self._page = functools.partial(list_page, resource, namespace, label_selector=label_selector, field_selector=field_selector)
        self._from = resource_version
        self._token = ""
        self._limit = PAGE
        self.complete = False
        self.items: list[Object] = []
        self.version = ""
        """The resource version to watch from."""

    @property
    def call(self) -> Call:
        """The call for the next page."""
        return self._page(resource_version=self._from, token=self._token, limit=self._limit)

    def add(self, page: Object) -> None:
        """Add the objects of a page. Raises NoAnswer for pages without end, Flooded for more than `most`."""
        items = page["items"] if self._slim is None else list(map(self._slim, page["items"]))
        if self._most:
            self._taken += sum(map(footprint, items))
            if self._taken > self._most:
                raise Flooded(f"the API server has more {self._about} than are kept in memory", detail=f"more than {self._most} bytes")
        self.items += items
        before, self._token = self._token, metadata(page).get("continue") or ""
        self._pages += 1
        if self._token and (self._token == before or self._pages >= MOST_PAGES):
            raise NoAnswer(f"no usable answer to list {self._about}", reason=Reason.MALFORMED, detail="pages without end")
        self.version = metadata(page).get("resourceVersion") or ""
        self.complete = not self._token

    def failed(self, error: NoAnswer) -> None:
        """Request fewer objects after a page that was too large. Raises the error if that is not the reason, or does not help."""
        if error.reason is not Reason.TOO_LARGE or self._limit == 1:
            raise error
        if self._from == FROM_CACHE:
            self._from = ""  # only such lists have pages
        else:
            self._limit = max(1, self._limit // _SMALLER)


def watch(
    resource: Resource,
    namespace: str | None = None,
    *,
    label_selector: str = "",
    field_selector: str = "",
    resource_version: str = "",
    seconds: int = 0,
) -> Call:
    """Watch a collection from a resource version on.

    The server ends the watch after `seconds` (0: after a time of its choice).
    """
    query = _given(
        watch="true",
        allowWatchBookmarks="true",
        labelSelector=label_selector,
        fieldSelector=field_selector,
        resourceVersion=resource_version,
        timeoutSeconds=str(seconds) if seconds else "",
    )
    return Call(verb="watch", resource=resource, namespace=namespace, query=query)


def create(obj: Mapping[str, Any], *, resource: Resource | None = None, subresource: str = "") -> Call:
    """Create an object; its namespace is in its metadata. Returns the object as stored. Raises AlreadyExists.

    With a subresource (`eviction`, `token`) the object's name is in the path.
    """
    row = resource or resources.of(obj)
    name, namespace = identity_of(obj)
    _require_namespace(row, namespace, name)
    return Call(verb="create", resource=row, name=name, namespace=namespace, subresource=subresource, body=obj)


def update(obj: Mapping[str, Any], *, resource: Resource | None = None, subresource: str = "") -> Call:
    """Replace an object. Returns the object as stored. Raises Conflict if its resourceVersion is not the current one."""
    return _named("update", resource or resources.of(obj), *identity_of(obj), subresource=subresource, body=obj)


def patch(
    resource: Resource,
    name: str,
    body: object,
    namespace: str | None = None,
    *,
    type: PatchType = "strategic",
    subresource: str = "",
    force: bool = False,
) -> Call:
    """Change part of an object. Returns the object as stored. `force` takes over fields of other managers (apply only)."""
    query = _given(force="true" if force and type == "apply" else "")
    return _named("patch", resource, name, namespace, subresource=subresource, body=body, patch_type=type, query=query)


def delete(
    resource: Resource,
    name: str,
    namespace: str | None = None,
    *,
    propagation: Propagation = "",
    grace_seconds: int | None = None,
    uid: str = "",
    resource_version: str = "",
) -> Call:
    """Delete an object; if `uid` or `resource_version` is given, only if the object still has it.

    The answer is a Status, or the object if finalizers keep it.
    """
    options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if propagation:
        options["propagationPolicy"] = propagation
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    conditions = _given(uid=uid, resourceVersion=resource_version)
    if conditions:
        options["preconditions"] = conditions
    return _named("delete", resource, name, namespace, body=options)


def raw(method: str, path: str, *, body: bytes | None = None, headers: Headers | None = None) -> Request:
    """Any request; `path` is absolute and encoded, including its query: `/readyz?verbose`."""
    if not path.startswith("/"):
        raise UsageError(f"{quoted(path)} is not an absolute path", remedy="write it like /readyz")
    return Request(method, path, headers=headers or {}, body=body)


def _named(
    verb: str,
    resource: Resource,
    name: str,
    namespace: str | None,
    *,
    subresource: str = "",
    body: object = None,
    patch_type: PatchType = "strategic",
    query: Mapping[str, str] | None = None,
) -> Call:
    """Address one object. Raises UsageError for names that cannot be in a path."""
    if not name:
        raise UsageError(f"a {resource.singular} without a name cannot be addressed", remedy="set metadata.name")
    _require_namespace(resource, namespace, name)
    resources.segment(name)
    if namespace:
        resources.segment(namespace)
    return Call(
        verb=verb,
        resource=resource,
        name=name,
        namespace=namespace,
        subresource=subresource,
        body=body,
        patch_type=patch_type,
        query=query or {},
    )


def _require_namespace(resource: Resource, namespace: str | None, name: str) -> None:
    if resource.namespaced and not namespace:
        raise UsageError(f"{resource.singular} {name} needs a namespace", remedy="set metadata.namespace")


def _given(**parameters: str) -> dict[str, str]:
    return {key: value for key, value in parameters.items() if value}


def _query(**parameters: str) -> str:
    return _encoded(tuple(parameters.items())) if parameters else ""


@functools.lru_cache(maxsize=64)
def _encoded(parameters: tuple[tuple[str, str], ...]) -> str:
    """Encode a query; cached, because daemons send the same few queries again and again."""
    return f"?{urlencode(parameters)}"
