"""Accepting the connections of a listening socket: at most `LIMIT` are open at a time.

Anyone who can reach a port can open connections and hold them. At the limit, a new client replaces the oldest
connection of the address that has most of them. So no client is locked out, however many others are connected, and a
client that sends its request promptly gets an answer. Connections over which an answer is streamed (a log that is
followed, which requires permissions) are closed last.

Sockets are accepted here and not by `loop.create_server`, which shows a connection to its protocol only after the TLS
handshake: clients that never shake hands would not be counted.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from kubewright.base import unexpected

LIMIT: Final = 256
"""Connections of one socket. A kube-apiserver and a metrics collector need a few dozen."""
_PAUSE: Final = 0.1
"""Seconds until the next attempt when the kernel could not open a connection for lack of descriptors or memory."""
_REMIND: Final = 60.0
"""Seconds between two warnings."""

_log: Final = logging.getLogger(__name__)


class _Connection:
    """An accepted connection. The event loop closes its socket together with the transport."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock: Final = sock
        self.address: Final = _address(sock)
        self.transport: asyncio.Transport | None = None
        """None until it is set up."""
        self.streams = False

    @property
    def is_open(self) -> bool:
        return self.sock.fileno() >= 0

    def drop(self) -> None:
        """Close it at once.

        Before it is set up, the kernel shuts the socket down, which event loops notice. If the wait for the handshake
        were cancelled instead, they would lose the transport below TLS (`http.opening`).
        """
        if self.transport is not None:
            self.transport.abort()
        else:
            with suppress(OSError):  # the client was faster
                self.sock.shutdown(socket.SHUT_RDWR)


class Acceptor:
    """Accepts the connections of one listening socket.

    made ── start() ──> accepting ── stop() ──> stopped: the socket is closed, and connections that are set up stay
    """

    def __init__(self, *, context: ssl.SSLContext | None, handshake: float) -> None:
        """Keep the arguments.

        `handshake` is the time limit of the TLS handshake in seconds, if there is a TLS context.
        """
        self._context = context
        self._handshake = handshake if context is not None else None
        self._open: dict[asyncio.BaseProtocol, _Connection] = {}
        self._sock: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._setups: set[asyncio.Task[None]] = set()
        self._warned = float("-inf")

    def start(self, sock: socket.socket, make: Callable[[], asyncio.Protocol]) -> None:
        """Begin to accept. `make` returns a protocol for each connection."""
        sock.setblocking(False)
        self._sock = sock
        accept = partial(self._accept, sock, make)
        self._accepting = asyncio.create_task(unexpected.keep_running("accepting connections", accept), name="accepting connections")

    async def stop(self) -> None:
        """Stop listening, and close connections that are not set up. Idempotent."""
        if self._accepting is None or self._sock is None:
            return
        self._accepting.cancel()
        await asyncio.wait([self._accepting])
        self._sock.close()
        for connection in self._open.values():
            if connection.transport is None:
                connection.drop()
        await asyncio.gather(*self._setups)

    @contextmanager
    def streaming(self, protocol: asyncio.BaseProtocol) -> Iterator[None]:
        """Close a connection only after all others, because an answer is streamed over it."""
        connection = self._open.get(protocol)
        if connection is None:
            yield
            return
        connection.streams = True
        try:
            yield
        finally:
            connection.streams = False

    async def _accept(self, sock: socket.socket, make: Callable[[], asyncio.Protocol]) -> None:
        while True:
            try:
                accepted, _ = await asyncio.get_running_loop().sock_accept(sock)
            except OSError as error:
                self._warn("cannot accept a connection: %s", error.strerror or error)
                await asyncio.sleep(_PAUSE)
                continue
            self._make_room()
            protocol, connection = make(), _Connection(accepted)
            self._open[protocol] = connection
            task = asyncio.create_task(self._set_up(connection, protocol), name="setting up a connection")
            self._setups.add(task)
            task.add_done_callback(self._setups.discard)
            await asyncio.sleep(0)  # while clients are waiting, sock_accept() returns without yielding to the event loop

    def _make_room(self) -> None:
        """Forget closed connections, and make sure that there are fewer than the limit."""
        self._open = {protocol: one for protocol, one in self._open.items() if one.is_open}
        if len(self._open) < LIMIT:
            return
        closable = {protocol: one for protocol, one in self._open.items() if not one.streams} or self._open
        counts = Counter(one.address for one in closable.values())
        protocol, connection = max(closable.items(), key=lambda item: counts[item[1].address])  # of equals the first, which is the oldest
        self._warn("%d connections are open: the oldest one from %s is closed", len(self._open), connection.address)
        connection.drop()
        del self._open[protocol]

    def _warn(self, message: str, *arguments: object) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._warned >= _REMIND:
            self._warned = now
            _log.warning(message, *arguments)

    async def _set_up(self, connection: _Connection, protocol: asyncio.Protocol) -> None:
        loop = asyncio.get_running_loop()
        try:
            connection.transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, connection.sock, ssl=self._context, ssl_handshake_timeout=self._handshake
            )
        except OSError:
            pass  # the client went away, was too slow, or does not speak TLS
        except Exception as error:
            unexpected.report("setting up a connection", error)


def _address(sock: socket.socket) -> str:
    """Return the client's IP address; '' if it has gone already, and for Unix sockets."""
    try:
        name = sock.getpeername()
    except OSError:
        return ""
    return str(name[0]) if isinstance(name, tuple) else ""
