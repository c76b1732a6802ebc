"""The KubeAPI seam: one call is sent, one object comes back.

The verbs are written once, for commands and for daemons (docs/decisions/0030-verbs-for-both-clients.md).

Everything that represents a cluster (a client, an overlay for plans, a retrying wrapper) implements `send` and `exchange`
and inherits all verbs.
"""

from __future__ import annotations

import builtins
import functools
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from kubewright.http.failures import NoAnswer
from kubewright.http.messages import Headers, Request, Response
from kubewright.kube import core
from kubewright.kube.answers import WatchEvent
from kubewright.kube.core import Call, Listing, Object
from kubewright.kube.resources import Resource

ObjectT = TypeVar("ObjectT")
ResponseT = TypeVar("ResponseT")
P = ParamSpec("P")


def _verb(build: Callable[P, Call]) -> Callable[Concatenate[Verbs[ObjectT, Any], P], ObjectT]:
    """Return the verb that makes a call: a method with the arguments of the function that builds the call."""

    @functools.wraps(build)
    def verb(self: Verbs[ObjectT, Any], /, *arguments: P.args, **options: P.kwargs) -> ObjectT:
        return self.send(build(*arguments, **options))

    return verb


class Verbs(ABC, Generic[ObjectT, ResponseT]):
    """The verbs that are one call each. Objects are plain JSON maps; `ObjectT` is such a map, or an awaitable of one.

    Every verb raises the StatusError of a refusal, and NoAnswer (an Unreachable) if there was no usable answer.
    """

    @abstractmethod
    def send(self, call: Call, /) -> ObjectT:
        """Make one call and return the object of the answer; for a `list`, one page, with kind and apiVersion in each item."""

    @abstractmethod
    def exchange(self, request: Request, /) -> ResponseT:
        """Send any request. Every status code is an answer."""

    def raw(self, method: str, path: str, *, body: bytes | None = None, headers: Headers | None = None) -> ResponseT:
        """Send a request for any path, `/readyz` for example. Every status code is an answer."""
        return self.exchange(core.raw(method, path, body=body, headers=headers))

    get = _verb(core.get)
    create = _verb(core.create)
    update = _verb(core.update)
    patch = _verb(core.patch)
    delete = _verb(core.delete)


class KubeAPI(Verbs[Object, Response]):
    """The Kubernetes API, synchronously."""

    def close(self) -> None:  # a client that opens nothing has nothing to close
        """Close every connection; a later call opens new ones. Idempotent."""

    def list(
        self, resource: Resource, namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> builtins.list[Object]:
        """Read all objects of a kind, in one namespace or in all, page by page."""
        listing = Listing(resource, namespace, label_selector=label_selector, field_selector=field_selector)
        while not listing.complete:
            try:
                page = self.send(listing.call)
            except NoAnswer as error:
                listing.failed(error)
            else:
                listing.add(page)
        return listing.items


class AsyncKubeAPI(Verbs[Coroutine[Any, Any, Object], Coroutine[Any, Any, Response]]):
    """The Kubernetes API, asynchronously: the verbs of `KubeAPI`, and watching."""

    @abstractmethod
    def stream(self, call: Call, /) -> AsyncGenerator[WatchEvent, None]:
        """Start a watch and yield its events until the server ends it. Raises Gone if the version to start from is too old."""

    async def close(self) -> None:  # a client that opens nothing has nothing to close
        """Close every connection; a later call opens new ones. Idempotent."""

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
        slim: Callable[[Object], Object] | None = None,
        most: int = 0,
    ) -> tuple[builtins.list[Object], str]:
        """Read all objects of a kind and the resource version to watch from. Version `0` allows the server's cache.

        `slim` and `most` are those of `Listing`; raises Flooded for more than `most`.
        """
        listing = Listing(
            resource,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            resource_version=resource_version,
            slim=slim,
            most=most,
        )
        while not listing.complete:
            try:
                page = await self.send(listing.call)
            except NoAnswer as error:
                listing.failed(error)
            else:
                listing.add(page)
        return listing.items, listing.version

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
        """Yield the events after a resource version until the server ends the watch. Raises Gone if the version is too old."""
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
