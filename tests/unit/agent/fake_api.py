"""A Kubernetes API in memory, for agents: stores objects, answers watches, merges status patches, and lets tests inject faults."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

from kubewright.base.errors import AlreadyExists, Conflict, Gone, KubewrightError, NotFound, ServerError
from kubewright.discovery.node_requests import BY_POLICY
from kubewright.http.failures import NoAnswer, Reason
from kubewright.http.messages import Request, Response
from kubewright.kube import core, resources
from kubewright.kube.answers import EventType, WatchEvent
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.credentials import Access, Identity
from kubewright.kube.resources import Resource

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
Key = tuple[str, str, str]
_MERGED_BY = {"conditions": "type", "addresses": "type", "podIPs": "ip", "hostIPs": "ip"}


@dataclass(frozen=True)
class Call:
    """One request to the API."""

    verb: str
    what: str
    """`nodes`, `nodes/status`, ..."""
    name: str
    body: Any = None
    identity: Any = None
    at: float = 0.0


@dataclass
class FakeAPI:
    """The stored objects, the requests, and the injected faults."""

    objects: dict[Key, dict[str, Any]] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    faults: list[Callable[[Call], KubewrightError | None]] = field(default_factory=list)
    reactors: list[Callable[[EventType, dict[str, Any]], None]] = field(default_factory=list)
    watchers: list[tuple[Resource, str, asyncio.Queue[WatchEvent | KubewrightError | None]]] = field(default_factory=list)
    version: int = 0
    approves: bool = True
    decides_by_policy: bool = False
    """Whether the requester has permission to have requests approved."""
    ahead: float = 0.0
    """Seconds by which its clock is ahead of the tests'."""

    def connect(self, access: Access) -> FakeClient:
        return FakeClient(self, access)

    def made(self, verb: str, what: str) -> list[Call]:
        return [call for call in self.calls if (call.verb, call.what) == (verb, what)]

    def fail(self, verb: str, what: str, *, times: int = 1_000_000, error: KubewrightError | None = None) -> None:
        """Let this many calls of a kind fail."""
        left = [times]

        def fault(call: Call) -> KubewrightError | None:
            if (call.verb, call.what) != (verb, what) or left[0] == 0:
                return None
            left[0] -= 1
            return error or ServerError("broken", code=500)

        self.faults.append(fault)

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> dict[str, Any]:
        key = (resource.plural, namespace or "", name)
        if key not in self.objects:
            raise NotFound(f"no {resource.plural} {name}", code=404)
        return copy.deepcopy(self.objects[key])

    def put(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Store an object as a controller or user would, and notify the watchers."""
        resource = resources.of(obj)
        new = copy.deepcopy(dict(obj))
        metadata = new["metadata"]
        if "generateName" in metadata and "name" not in metadata:
            metadata["name"] = f"{metadata['generateName']}{self.version:05d}"
        key = (resource.plural, metadata.get("namespace") or "", metadata["name"])
        event = EventType.MODIFIED if key in self.objects else EventType.ADDED
        self.version += 1
        metadata.setdefault("uid", f"uid-{self.version}")
        metadata["resourceVersion"] = str(self.version)
        self.objects[key] = new
        self._tell(resource, event, new)
        return copy.deepcopy(new)

    def remove(self, resource: Resource, name: str, namespace: str | None = None) -> None:
        gone = self.objects.pop((resource.plural, namespace or "", name))
        self.version += 1
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._tell(resource, EventType.DELETED, gone)

    def break_watches(self, error: KubewrightError | None = None) -> None:
        """End every watch: with an error, or as the server does when its time is over."""
        for _, _, queue in self.watchers:
            queue.put_nowait(error)

    def check(self, call: Call) -> None:
        self.calls.append(call)
        for fault in self.faults:
            if (error := fault(call)) is not None:
                raise error

    def _tell(self, resource: Resource, event: EventType, obj: dict[str, Any]) -> None:
        for watched, selector, queue in self.watchers:
            if watched == resource and matches(obj, selector):
                queue.put_nowait(WatchEvent(event, copy.deepcopy(obj)))
        for reactor in self.reactors:
            asyncio.get_running_loop().call_soon(reactor, event, copy.deepcopy(obj))


class FakeClient(AsyncKubeAPI):
    """A client whose identity can be replaced, like that of `kube.client`."""

    def __init__(self, api: FakeAPI, access: Access) -> None:
        self.api = api
        self.access = access
        self.closed = False
        self._queues: list[asyncio.Queue[WatchEvent | KubewrightError | None]] = []

    async def send(self, call: core.Call, /) -> dict[str, Any]:
        selector = call.query.get("fieldSelector", "")
        what = f"{call.resource.plural}/{call.subresource}" if call.subresource and call.verb == "patch" else call.resource.plural
        await self._enter(call.verb, what, selector if call.verb == "list" else call.name, _told(call))
        return {
            "get": self._get,
            "list": self._list,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
        }[call.verb](call)

    def _get(self, call: core.Call) -> dict[str, Any]:
        return self.api.get(call.resource, call.name, call.namespace)

    def _list(self, call: core.Call) -> dict[str, Any]:
        plural, selector = call.resource.plural, call.query.get("fieldSelector", "")
        found = [obj for (kind, _, _), obj in self.api.objects.items() if kind == plural and matches(obj, selector)]
        return {"items": copy.deepcopy(found), "metadata": {"resourceVersion": str(self.api.version)}}

    def _create(self, call: core.Call) -> dict[str, Any]:
        if call.resource.plural == "selfsubjectaccessreviews":
            by_policy = call.body["spec"]["resourceAttributes"].get("subresource") == BY_POLICY.subresource
            return {"status": {"allowed": self.api.decides_by_policy if by_policy else self.api.approves}}
        if (call.resource.plural, call.namespace or "", call.name) in self.api.objects:
            raise AlreadyExists(f"{call.about} is there", code=409)
        return self.api.put(call.body)

    def _update(self, call: core.Call) -> dict[str, Any]:
        stored = self._get(call)
        if call.body["metadata"].get("resourceVersion") not in {None, stored["metadata"]["resourceVersion"]}:
            raise Conflict("it changed", code=409)
        return self.api.put(call.body)

    def _patch(self, call: core.Call) -> dict[str, Any]:
        stored, body = self._get(call), call.body
        assert isinstance(body, dict)
        if body.get("metadata", {}).get("uid", stored["metadata"]["uid"]) != stored["metadata"]["uid"]:
            raise Conflict("another object of this name", code=409)
        new = merge(stored, body)
        let_go = stored["metadata"].get("finalizers") and not new["metadata"].get("finalizers")
        if let_go and "deletionTimestamp" in new["metadata"]:
            self.api.remove(call.resource, call.name, call.namespace)
            return new
        return stored if new == stored else self.api.put(new)

    def _delete(self, call: core.Call) -> dict[str, Any]:
        stored, wanted = self._get(call), call.body.get("preconditions", {})
        if any(stored["metadata"][name] != value for name, value in wanted.items()):
            raise Conflict("another object of this name, or another state of it", code=409)
        if stored["metadata"].get("finalizers"):
            if stored["metadata"].get("deletionGracePeriodSeconds") == 0:
                return stored
            stored["metadata"].update(deletionTimestamp="2026-01-02T03:04:05Z", deletionGracePeriodSeconds=0)
            return self.api.put(stored)
        self.api.remove(call.resource, call.name, call.namespace)
        return {"kind": "Status", "status": "Success"}

    async def stream(self, call: core.Call, /) -> AsyncGenerator[WatchEvent, None]:
        resource, field_selector = call.resource, call.query.get("fieldSelector", "")
        resource_version = call.query.get("resourceVersion", "")
        await self._enter("watch", resource.plural, field_selector)
        queue: asyncio.Queue[WatchEvent | KubewrightError | None] = asyncio.Queue()
        row = (resource, field_selector, queue)
        self.api.watchers.append(row)
        self._queues.append(queue)
        try:
            for obj in list(self.api.objects.values()):  # what happened since the version that the client knows
                newer = int(obj["metadata"]["resourceVersion"]) > int(resource_version or 0)
                if newer and resources.of(obj) == resource and matches(obj, field_selector):
                    yield WatchEvent(EventType.MODIFIED, copy.deepcopy(obj))
            while (event := await queue.get()) is not None:
                if isinstance(event, KubewrightError):
                    raise event
                yield event
        finally:
            self.api.watchers.remove(row)
            self._queues.remove(queue)

    async def exchange(self, request: Request, /) -> Any:
        await self._enter(request.method, request.target, "")
        date = START + timedelta(seconds=asyncio.get_running_loop().time() + self.api.ahead)
        return Response(status=200, headers={"date": format_datetime(date, usegmt=True)}, body=b"{}")

    async def set_identity(self, identity: Identity) -> None:
        self.access = self.access.as_identity(identity)
        self._cut()

    async def close(self) -> None:
        self.closed = True
        self._cut()

    def _cut(self) -> None:
        for queue in self._queues:
            queue.put_nowait(NoAnswer("cut", reason=Reason.CLOSED))

    async def _enter(self, verb: str, what: str, name: str, body: Any = None) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)
        self.api.check(Call(verb, what, name, copy.deepcopy(body), self.access.identity, loop.time()))


def _told(call: core.Call) -> Any:
    """The part of a call that tests check: its body, and the conditions of a deletion."""
    if call.verb != "delete":
        return call.body
    return {"grace": call.body.get("gracePeriodSeconds"), "uid": call.body.get("preconditions", {}).get("uid", "")}


def gone() -> Gone:
    return Gone("too old", code=410)


def matches(obj: Mapping[str, Any], selector: str) -> bool:
    path, _, wanted = selector.partition("=")
    found: Any = obj
    for part in path.split(".") if path else []:
        found = found.get(part, {})
    return not selector or found == wanted


def merge(base: Any, patch: Any, name: str = "") -> Any:
    """Apply a strategic merge patch, as far as agents use it."""
    if name in _MERGED_BY and isinstance(patch, list):
        return _merge_list(base or [], patch, _MERGED_BY[name])
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value, key)
    return result


def _merge_list(base: list[Any], patch: list[Any], key: str) -> list[Any]:
    if {"$patch": "replace"} in patch:
        return [row for row in patch if "$patch" not in row]
    rows = {row[key]: row for row in base}
    for row in patch:
        rows[row[key]] = merge(rows.get(row[key]), row)
    return list(rows.values())
