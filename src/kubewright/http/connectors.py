"""The way to a server: direct, or through a proxy, with a tunnel for TLS.

Source: CONNECT, RFC 9110 section 9.3.6.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from kubewright.http.connections import Connection, NotHTTP, Truncated
from kubewright.http.opening import opened, secured
from kubewright.http.tls import host_context

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubewright.http.proxies import Proxy

_PORTS: Final = {"http": 80, "https": 443}


class ProxyFailed(OSError):
    """The proxy cannot connect us. The cause or the text says why."""


class Connector:
    """Opens connections to one server. `server` is its URL without a path; `context` is used if that is https."""

    def __init__(self, server: str, *, context: ssl.SSLContext | None, server_name: str, proxy: Proxy | None) -> None:
        self._server = urlsplit(server)
        self._context = context if self._server.scheme == "https" else None
        self._name = server_name or _place(self._server)[0]
        self._proxy = proxy
        self._proxy_context: ssl.SSLContext | None = None

    @property
    def forwarding(self) -> bool:
        """Whether a proxy reads and forwards requests, so that their targets must name the server."""
        return self._proxy is not None and self._context is None

    async def opened(self) -> Connection:
        """Open a connection over which requests can be sent. Raises OSError, or ProxyFailed for failures before the proxy connects us."""
        connection = Connection()
        if self._proxy is None:
            connection.bottom = await opened(connection, *_place(self._server), context=self._context, server_name=self._name)
            return connection
        with _blamed():
            connection.bottom = await self._proxied(connection, self._proxy)
        return connection if self._context is None else await self._tunnelled(connection, self._proxy, self._context)

    async def _proxied(self, connection: Connection, proxy: Proxy) -> asyncio.Transport:
        place = urlsplit(proxy.url)
        if place.scheme == "https" and self._proxy_context is None:  # the machine's trust, never the cluster's CA
            self._proxy_context = host_context()
        return await opened(connection, *_place(place), context=self._proxy_context)

    async def _tunnelled(self, outer: Connection, proxy: Proxy, context: ssl.SSLContext) -> Connection:
        inner = Connection()
        inner.bottom = outer.bottom
        try:
            with _blamed():
                await _tunnel(outer, ":".join(map(str, _shown(self._server))), proxy.authorization())
            await secured(inner, outer.transport, context=context, server_name=self._name)
        except BaseException:
            outer.abort()
            raise
        return inner


def _place(url: SplitResult) -> tuple[str, int]:
    return url.hostname or "", url.port or _PORTS[url.scheme]


def _shown(url: SplitResult) -> tuple[str, int]:
    host, port = _place(url)
    return f"[{host}]" if ":" in host else host, port


@contextmanager
def _blamed() -> Iterator[None]:
    """Attribute a failure to the proxy. Time-outs are not attributed, because their cause is unknown."""
    try:
        yield
    except (NotHTTP, Truncated, OSError) as error:
        raise error if isinstance(error, ProxyFailed) else ProxyFailed from error


async def _tunnel(connection: Connection, place: str, authorization: str | None) -> None:
    """Ask a proxy for a tunnel to a host and port. Afterwards, the connection carries that server's data."""
    connection.require_open()
    head = _Head(connection)
    basic = f"proxy-authorization: {authorization}\r\n" if authorization is not None else ""
    connection.send(f"CONNECT {place} HTTP/1.1\r\nhost: {place}\r\nuser-agent: kubewright\r\n{basic}\r\n".encode(), head)
    status = await head.status
    if status != 200:
        raise ProxyFailed(f"it answered CONNECT with {status}")


class _Head:
    """The answer to CONNECT, of which only the status matters. Implements the receiver of `Connection`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def begun(self, status: int, headers: Mapping[str, str]) -> None:
        if not self.status.done():
            self.status.set_result(status)

    def piece(self, data: bytes) -> None:
        self._connection.abort()  # a server that speaks before TLS does not speak TLS

    def ended(self, error: Exception | None) -> None:
        if not self.status.done():
            self.status.set_exception(error or Truncated())
