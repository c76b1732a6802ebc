"""The asynchronous client: for daemons. Light enough for hundreds of identities in one process; belongs to one event loop."""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from kubewright.http.addresses import origin
from kubewright.http.messages import REQUEST_TIMEOUT, AsyncTransport, Headers, Limits, Response
from kubewright.http.proxies import Proxies
from kubewright.kube import answers, core
from kubewright.kube.answers import WatchEvent
from kubewright.kube.core import Call, Object, PatchType, Propagation, Writing
from kubewright.kube.credentials import Access, Identity
from kubewright.kube.resources import Resource


class AsyncKubeClient:
    """Talks to one cluster as one identity. Implements `api.AsyncKubeAPI`.

    One connection serves the calls that do not overlap, and each watch has one of its own.
    """

    def __init__(
        self,
        access: Access,
        *,
        field_manager: str = core.FIELD_MANAGER,
        timeout: float = REQUEST_TIMEOUT,
        dry_run: bool = False,
        proxies: Proxies | None = None,
        limits: Limits | None = None,
        transport: Callable[[Access], AsyncTransport] | None = None,
    ) -> None:
        self.access = access
        self._server = origin(access.server)[1]
        self._writing = Writing(field_manager=field_manager, dry_run=dry_run)
        self._timeout = timeout
        self._proxies = proxies or Proxies()
        self._limits = limits
        self._make = transport or self._default_transport
        self._transport: AsyncTransport | None = None
        self._headers = core.headers_for(access)

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        return await self._object(core.get(resource, name, namespace))

    async def list(
        self, resource: Resource, namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> builtins.list[Object]:
        found, _ = await self.list_versioned(resource, namespace, label_selector=label_selector, field_selector=field_selector)
        return found

    async def list_versioned(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
    ) -> tuple[builtins.list[Object], str]:
        found: builtins.list[Object] = []
        token = ""
        while True:
            call = core.list_page(
                resource,
                namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                resource_version=resource_version,
                # From its cache the server gives everything at once, whatever the limit says.
                limit=0 if resource_version == "0" else core.PAGE,
                token=token,
            )
            items, token, version = answers.items_of(call, await self._object(call), server=self._server)
            found += items
            if not token:
                return found, version

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
        call = core.watch(
            resource,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            resource_version=resource_version,
            seconds=seconds,
        )
        decoder = answers.WatchDecoder(call, server=self._server)
        headers = {**self._headers, **call.headers}
        async with self._opened().stream(call.method, call.target, headers=headers, timeout=self._timeout) as stream:
            if not 200 <= stream.status < 300:
                body = await stream.read()
                answers.check(call, Response(status=stream.status, headers=stream.headers, body=body), server=self._server)
            async with aclosing(stream.chunks()) as chunks:
                async for chunk in chunks:
                    for event in decoder.feed(chunk):
                        yield event
            decoder.end()

    async def create(self, obj: Mapping[str, Any], *, resource: Resource | None = None, subresource: str = "") -> Object:
        return await self._object(core.create(obj, self._writing, resource=resource, subresource=subresource))

    async def update(self, obj: Mapping[str, Any], *, resource: Resource | None = None, subresource: str = "") -> Object:
        return await self._object(core.update(obj, self._writing, resource=resource, subresource=subresource))

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
        return await self._object(
            core.patch(resource, name, body, namespace, type=type, writing=self._writing, subresource=subresource, force=force)
        )

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
        return await self._object(
            core.delete(
                resource,
                name,
                namespace,
                writing=self._writing,
                propagation=propagation,
                grace_seconds=grace_seconds,
                uid=uid,
                resource_version=resource_version,
            )
        )

    async def raw(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Headers | None = None,
        timeout: float | None = None,
    ) -> Response:
        return await self._send(core.raw(method, path, body=body, headers=headers), timeout)

    async def set_identity(self, identity: Identity) -> None:
        """Be somebody else from now on: new calls use new connections; calls in flight finish, watches are cut, old connections close."""
        self.access = self.access.as_identity(identity)
        self._headers = core.headers_for(self.access)
        await self.reconnect()

    async def reconnect(self) -> None:
        """Drop every connection, when what is in flight has finished: after failures that a connection of its own would not show."""
        old, self._transport = self._transport, None
        if old is not None:
            await old.drain()

    async def close(self) -> None:
        """Close every connection at once; a later call opens new ones. Idempotent."""
        old, self._transport = self._transport, None
        if old is not None:
            await old.close()

    async def _object(self, call: Call) -> Object:
        return answers.read_object(call, await self._send(call, None), server=self._server)

    async def _send(self, call: Call, timeout: float | None) -> Response:
        return await self._opened().request(
            call.method,
            call.target,
            headers={**self._headers, **call.headers},
            body=call.body,
            timeout=self._timeout if timeout is None else timeout,
        )

    def _opened(self) -> AsyncTransport:
        if self._transport is None:
            self._transport = self._make(self.access)
        return self._transport

    def _default_transport(self, access: Access) -> AsyncTransport:
        from kubewright.http import aio

        return aio.Transport(
            access.server,
            context=access.context(),
            proxy=access.proxy or self._proxies.for_url(access.server),
            server_name=access.tls_server_name,
            limits=self._limits,
        )
