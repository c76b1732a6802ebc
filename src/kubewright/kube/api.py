"""The KubeAPI seam: the verbs that phases, controllers and agents use. Implemented by the two clients, and by the recording overlay."""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol

from kubewright.http.messages import Headers, Response
from kubewright.kube.answers import WatchEvent
from kubewright.kube.core import Object, PatchType, Propagation
from kubewright.kube.resources import Resource


class KubeAPI(Protocol):
    """The Kubernetes API, synchronously. Objects are plain JSON maps.

    Every verb raises the StatusError of a refusal and NoAnswer (an Unreachable) where there was no usable answer; nothing is retried.
    """

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """Read one object."""
        ...

    def list(
        self, resource: Resource, namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> builtins.list[Object]:
        """Read all objects of a kind, in one namespace or in all, page by page."""
        ...

    def create(self, obj: Mapping[str, Any], *, resource: Resource | None = None, subresource: str = "") -> Object:
        """Create an object and return it as stored. Raises AlreadyExists."""
        ...

    def update(self, obj: Mapping[str, Any], *, resource: Resource | None = None, subresource: str = "") -> Object:
        """Replace an object and return it as stored. Raises Conflict if its resourceVersion is not the present one."""
        ...

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
        ...

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
        ...

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
        ...


class AsyncKubeAPI(Protocol):
    """The Kubernetes API, asynchronously: the verbs of `KubeAPI`, and watching."""

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """Read one object."""
        ...

    async def list(
        self, resource: Resource, namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> builtins.list[Object]:
        """Read all objects of a kind, in one namespace or in all, page by page."""
        ...

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
        ...

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
        ...

    async def create(self, obj: Mapping[str, Any], *, resource: Resource | None = None, subresource: str = "") -> Object:
        """Create an object and return it as stored. Raises AlreadyExists."""
        ...

    async def update(self, obj: Mapping[str, Any], *, resource: Resource | None = None, subresource: str = "") -> Object:
        """Replace an object and return it as stored. Raises Conflict if its resourceVersion is not the present one."""
        ...

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
        ...

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
        ...

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
        ...
