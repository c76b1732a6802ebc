"""A Kubernetes API in memory, for agents: stores objects, answers watches, merges status patches, and lets tests break it."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubewright.base.errors import AlreadyExists, Conflict, Gone, KubewrightError, NotFound, ServerError
from kubewright.http.failures import NoAnswer, Reason
from kubewright.kube import resources
from kubewright.kube.answers import EventType, WatchEvent
from kubewright.kube.credentials import Access, Identity
from kubewright.kube.resources import Resource

Key = tuple[str, str, str]
_MERGED_BY = {"conditions": "type", "addresses": "type", "podIPs": "ip", "hostIPs": "ip"}


@dataclass(frozen=True)
class Call:
    """One request that the API got."""

    verb: str
    what: str
    """`nodes`, `nodes/status`, ..."""
    name: str
    body: Any = None
    identity: Any = None
    at: float = 0.0


@dataclass
class FakeAPI:
    """The stored objects, what was asked, and what is broken."""

    objects: dict[Key, dict[str, Any]] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    faults: list[Callable[[Call], KubewrightError | None]] = field(default_factory=list)
    reactors: list[Callable[[EventType, dict[str, Any]], None]] = field(default_factory=list)
    watchers: list[tuple[Resource, str, asyncio.Queue[WatchEvent | KubewrightError | None]]] = field(default_factory=list)
    version: int = 0

    def connect(self, access: Access) -> FakeClient:
        return FakeClient(self, access)

    def made(self, verb: str, what: str) -> list[Call]:
        return [call for call in self.calls if (call.verb, call.what) == (verb, what)]

    def fail(self, verb: str, what: str, *, times: int = 1_000_000, error: KubewrightError | None = None) -> None:
        """Break so many calls of a kind."""
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
        """Store an object as a controller or user would, and tell the watchers."""
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


class FakeClient:
    """Implements `agent.identity.Client`."""

    def __init__(self, api: FakeAPI, access: Access) -> None:
        self.api = api
        self.access = access
        self.closed = False
        self._queues: list[asyncio.Queue[WatchEvent | KubewrightError | None]] = []

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> dict[str, Any]:
        await self._enter("get", resource.plural, name)
        return self.api.get(resource, name, namespace)

    async def list(
        self, resource: Resource, namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> list[dict[str, Any]]:
        return (await self.list_versioned(resource, namespace, field_selector=field_selector))[0]

    async def list_versioned(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
    ) -> tuple[list[dict[str, Any]], str]:
        await self._enter("list", resource.plural, field_selector)
        found = [obj for (plural, _, _), obj in self.api.objects.items() if plural == resource.plural and matches(obj, field_selector)]
        return copy.deepcopy(found), str(self.api.version)

    async def watch(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        field_selector: str = "",
        label_selector: str = "",
        resource_version: str = "",
        seconds: int = 0,
    ) -> AsyncGenerator[WatchEvent, None]:
        await self._enter("watch", resource.plural, field_selector)
        queue: asyncio.Queue[WatchEvent | KubewrightError | None] = asyncio.Queue()
        row = (resource, field_selector, queue)
        self.api.watchers.append(row)
        self._queues.append(queue)
        try:
            for obj in list(self.api.objects.values()):  # what happened since the version that the caller knows
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

    async def create(self, obj: Mapping[str, Any], *, resource: Resource | None = None, subresource: str = "") -> dict[str, Any]:
        row, metadata = resource or resources.of(obj), obj["metadata"]
        await self._enter("create", row.plural, metadata.get("name", ""), obj)
        if (row.plural, metadata.get("namespace") or "", metadata.get("name", "")) in self.api.objects:
            raise AlreadyExists(f"{row.plural} {metadata['name']} is there", code=409)
        return self.api.put(obj)

    async def update(self, obj: Mapping[str, Any], *, resource: Resource | None = None, subresource: str = "") -> dict[str, Any]:
        row, metadata = resource or resources.of(obj), obj["metadata"]
        await self._enter("update", row.plural, metadata["name"], obj)
        stored = self.api.get(row, metadata["name"], metadata.get("namespace"))
        if metadata.get("resourceVersion") not in {None, stored["metadata"]["resourceVersion"]}:
            raise Conflict("it changed", code=409)
        return self.api.put(obj)

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: object,
        namespace: str | None = None,
        *,
        type: str = "strategic",
        subresource: str = "",
        force: bool = False,
    ) -> dict[str, Any]:
        await self._enter("patch", f"{resource.plural}/{subresource}" if subresource else resource.plural, name, body)
        stored = self.api.get(resource, name, namespace)
        assert isinstance(body, dict)
        if body.get("metadata", {}).get("uid", stored["metadata"]["uid"]) != stored["metadata"]["uid"]:
            raise Conflict("another object of this name", code=409)
        new = merge(stored, body)
        return stored if new == stored else self.api.put(new)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        propagation: str = "",
        grace_seconds: int | None = None,
        uid: str = "",
        resource_version: str = "",
    ) -> dict[str, Any]:
        await self._enter("delete", resource.plural, name, {"grace": grace_seconds, "uid": uid})
        stored = self.api.get(resource, name, namespace)
        if uid and uid != stored["metadata"]["uid"]:
            raise Conflict("another object of this name", code=409)
        if stored["metadata"].get("finalizers"):
            stored["metadata"].update(deletionTimestamp="2026-01-02T03:04:05Z", deletionGracePeriodSeconds=0)
            return self.api.put(stored)
        self.api.remove(resource, name, namespace)
        return {"kind": "Status", "status": "Success"}

    async def raw(self, method: str, path: str, **_: Any) -> Any:
        raise NotImplementedError

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
