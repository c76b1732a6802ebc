"""Opening one connection: TCP, then TLS. Nothing stays open after a failure or a cancellation.

TCP and TLS are two steps here, because event loops lose the transport below TLS if the wait for both is cancelled.
asyncio's (Python 3.11, `create_connection`) closes only the TLS layer, which does nothing before the handshake has
begun and afterwards waits for the server's close_notify, while the descriptor below may be closed and reused. Here
the lower transport is aborted, which both loops do at once.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Final, cast

from kubewright.http.resolver import look_up

# A watch may be silent for minutes, so the kernel probes whether the peer is still there (seconds, seconds, count).
_PROBES: Final = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


async def opened(
    protocol: asyncio.Protocol, host: str, port: int, *, context: ssl.SSLContext | None = None, server_name: str = ""
) -> asyncio.Transport:
    """Connect a protocol to the first address of a name that accepts a connection, with TLS if a context is given.

    `server_name` is the name that the certificate must have, if it is not the host. The caller limits the time.
    Returns the TCP transport, whose `abort` closes everything at once. Raises OSError: that of the last address, or
    of the handshake.
    """
    if context is None:
        return await _plain(protocol, host, port)
    bottom = await _plain(_Bare(), host, port)
    try:
        await secured(protocol, bottom, context=context, server_name=server_name or host)
    except BaseException:
        bottom.abort()
        raise
    return bottom


async def secured(protocol: asyncio.Protocol, below: asyncio.Transport, *, context: ssl.SSLContext, server_name: str) -> None:
    """Do the TLS handshake over a connection and connect a protocol to the result. If that fails, the caller aborts the connection."""
    if below.is_closing():
        raise ConnectionResetError("closed before the handshake")
    try:
        found = await asyncio.get_running_loop().start_tls(below, protocol, context, server_hostname=server_name)
    except TypeError as error:  # asyncio's way to say that TLS over TLS failed (Python 3.11: sslproto, `_force_close`)
        raise ConnectionResetError("closed in the handshake") from error
    if found is None or found.is_closing():  # both loops call that a success
        raise ConnectionResetError("closed in the handshake")
    protocol.connection_made(found)


async def _plain(protocol: asyncio.Protocol, host: str, port: int) -> asyncio.Transport:
    sock = await _connected(host, port)
    try:
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: protocol, sock=sock)
    except BaseException:
        sock.close()
        raise
    return transport


class _Bare(asyncio.Protocol):
    """Holds a connection until TLS takes over. A server that speaks first does not speak TLS."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.abort()


async def _connected(host: str, port: int) -> socket.socket:
    """Open a connection to the first address of a name that accepts one. Raises OSError: that of the last address."""
    loop = asyncio.get_running_loop()
    failed: OSError | None = None
    for family, kind, protocol, _, address in await asyncio.wrap_future(look_up(host, port)):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            _keep_alive(sock)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            failed = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failed or OSError(f"{host} has no address")


def _keep_alive(sock: socket.socket) -> None:
    """Make the kernel notice when the peer is gone."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _PROBES:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
