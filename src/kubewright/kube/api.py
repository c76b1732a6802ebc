"""The KubeAPI seam: one call is sent, one object comes back.

The verbs are written on top of that, once for commands and once for daemons.

Everything that represents a cluster (a client, an overlay for plans, a retrying wrapper) implements `send` and inherits
all verbs.
"""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from kubewright.http.messages import Headers, Response
from kubewright.kube import core
from kubewright.kube.answers import WatchEvent
from kubewright.kube.core import Call, Object, PatchType, Propagation
from kubewright.kube.resources import Resource


class KubeAPI(ABC):
    """The Kubernetes API, synchronously. Objects are plain JSON maps.

    Every verb raises the StatusError of a refusal and NoAnswer (an Unreachable) where there was no usable answer.
    """

    @abstractmethod
    def send(self, call: Call, /) -> Object:
        """Make one call and return the object of the answer: of a `list` one page, with kind and apiVersion in each item."""

    @abstractmethod
    def raw(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Headers | None = None,
        timeout: float | None = None,
    ) -> Response:
        """Send any request, `/readyz` for example. Every status code is an answer."""

    def close(self) -> None:  # noqa: B027  # whoever opens nothing has nothing to close
        """Close every connection; a later call opens new ones. Idempotent."""

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """Read one object."""
        return self.send(core.get(resource, name, namespace))

    def list(
        self, resource: Resource, namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> builtins.list[Object]:
        """Read all objects of a kind, in one namespace or in all, page by page."""
        found: builtins.list[Object] = []
        token = ""
        while True:
            page = self.send(core.list_page(resource, namespace, label_selector=label_selector, field_selector=field_selector, token=token))
            found += page["items"]
            token = core.metadata(page).get("continue") or ""
            if not token:
                return found

    def create(self, obj: Mapping[str, Any], *, resource: Resource | None = None, subresource: str = "") -> Object:
        """Create an object and return it as stored. Raises AlreadyExists."""
        return self.send(core.create(obj, resource=resource, subresource=subresource))

    def update(self, obj: Mapping[str, Any], *, resource: Resource | None = None, subresource: str = "") -> Object:
        """Replace an object and return it as stored. Raises Conflict if its resourceVersion is not the present one."""
        return self.send(core.update(obj, resource=resource, subresource=subresource))

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
        """Change part of an object and return it as stored."""
        return self.send(core.patch(resource, name, body, namespace, type=type, subresource=subresource, force=force))

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
        """Delete an object. Returns a Status, or the object while finalizers hold it."""
        return self.send(
            core.delete(
                resource,
                name,
                namespace,
                propagation=propagation,
                grace_seconds=grace_seconds,
                uid=uid,
                resource_version=resource_version,
            )
        )


class AsyncKubeAPI(ABC):
    """The Kubernetes API, asynchronously: the verbs of `KubeAPI`, and watching."""

    @abstractmethod
    async def send(self, call: Call, /) -> Object:
        """Make one call and return the object of the answer, as `KubeAPI.send` does."""

    @abstractmethod
    def stream(self, call: Call, /) -> AsyncGenerator[WatchEvent, None]:
        """Make a watch and yield its events until the server ends it. Raises Gone when the version to begin with is too old."""

    @abstractmethod
    async def raw(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Headers | None = None,
        timeout: float | None = None,
    ) -> Response:
        """Send any request, `/readyz` for example. Every status code is an answer."""

    async def close(self) -> None:  # noqa: B027  # whoever opens nothing has nothing to close
        """Close every connection; a later call opens new ones. Idempotent."""

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """Read one object."""
        return await self.send(core.get(resource, name, namespace))

    async def list(
        self, resource: Resource, namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> builtins.list[Object]:
        """Read all objects of a kind, in one namespace or in all, page by page."""
        return (await self.list_versioned(resource, namespace, label_selector=label_selector, field_selector=field_selector))[0]

    async def list_versioned(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
    ) -> tuple[builtins.list[Object], str]:
        """Read all objects of a kind and the resource version to watch from. Version `0` allows the server's cache."""
        found: builtins.list[Object] = []
        token = ""
        while True:
            call = core.list_page(
                resource,
                namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                resource_version=resource_version,
                # From its cache the server returns everything at once, whatever the limit is.
                limit=0 if resource_version == "0" else core.PAGE,
                token=token,
            )
            page = await self.send(call)
            found += page["items"]
            token = core.metadata(page).get("continue") or ""
            if not token:
                return found, core.metadata(page).get("resourceVersion") or ""

    def watch(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        field_selector: str = "",
        label_selector: str = "",
        resource_version: str = "",
        seconds: int = 0,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield what happens after a resource version until the server ends the watch. Raises Gone when the version is too old."""
        return self.stream(
            core.watch(
                resource,
                namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                resource_version=resource_version,
                seconds=seconds,
            )
        )

    async def create(self, obj: Mapping[str, Any], *, resource: Resource | None = None, subresource: str = "") -> Object:
        """Create an object and return it as stored. Raises AlreadyExists."""
        return await self.send(core.create(obj, resource=resource, subresource=subresource))

    async def update(self, obj: Mapping[str, Any], *, resource: Resource | None = None, subresource: str = "") -> Object:
        """Replace an object and return it as stored. Raises Conflict if its resourceVersion is not the present one."""
        return await self.send(core.update(obj, resource=resource, subresource=subresource))

    async def patch(
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
        """Change part of an object and return it as stored."""
        return await self.send(core.patch(resource, name, body, namespace, type=type, subresource=subresource, force=force))

    async def delete(
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
        """Delete an object. Returns a Status, or the object while finalizers hold it."""
        return await self.send(
            core.delete(
                resource,
                name,
                namespace,
                propagation=propagation,
                grace_seconds=grace_seconds,
                uid=uid,
                resource_version=resource_version,
            )
        )
