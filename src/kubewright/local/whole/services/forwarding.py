"""Forwarding published ports to machines: TCP by connection, UDP by the client's address.

A target may be open on one machine only (a hostPort), and a machine may have lost its power: connections go to the first
machine that accepts them, beginning with the one that accepted the last.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol, TypeVar, cast

from kubewright.base.errors import HostError, PortInUse
from kubewright.host.network.interfaces import RealNetwork
from kubewright.http.listening import cannot_listen, listen
from kubewright.local.published import TCP, PublishedPort
from kubewright.local.whole.services.places import MODULE

T = TypeVar("T")
Machines = Callable[[], Sequence[str]]
"""The addresses of the machines that run."""
ACCEPTS_WITHIN: Final = 2.0
"""Seconds for a machine to accept a connection; one on the same host does at once or never."""
_CHUNK: Final = 64 * 1024
MOST_CONNECTIONS: Final = 4096
"""TCP connections of one port; the oldest one is closed for another, so that nobody can exhaust the daemon by holding connections."""
_MOST_EARLY: Final = 16
"""Packets of a new UDP client that wait for its socket; more are lost, as on any network."""
_IDLE: Final = 90.0
"""Seconds after which a UDP client without packets is forgotten."""
MOST_CLIENTS: Final = 1024
"""UDP clients of one port; the one that came first is forgotten for another."""


class Forwarded(Protocol):
    """A port that is being forwarded."""

    def end_lost(self, running: Collection[str]) -> None:
        """End connections to machines other than those that run: they will not be answered."""
        ...

    async def close(self) -> None:
        """Stop listening, and end all connections. Idempotent."""
        ...


class Forwarder:
    """The published ports of a cluster.

    none ── publish() ──> listening on exactly the given ports ── close() ──> none
    """

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._ports: dict[PublishedPort, Forwarded] = {}

    @property
    def ports(self) -> tuple[PublishedPort, ...]:
        """The ports that are being forwarded."""
        return tuple(self._ports)

    async def publish(self, wanted: Sequence[PublishedPort]) -> None:
        """Listen on exactly these ports. Raises PortInUse, with the owner, or HostError; the ports are then those from before."""
        stale = [port for port in self._ports if port not in wanted]
        fresh = [port for port in wanted if port not in self._ports]
        await self._close(stale)  # first: one of them may have the listener that another target needs
        try:
            await self._open(fresh)
        except HostError:
            await self._close([port for port in fresh if port in self._ports])
            await self._open(stale)
            raise

    def look_again(self) -> None:
        """End the connections to machines that have stopped."""
        running = frozenset(self._machines())
        for port in self._ports.values():
            port.end_lost(running)

    async def close(self) -> None:
        """Stop forwarding."""
        await self.publish(())

    async def _open(self, ports: Sequence[PublishedPort]) -> None:
        for port in ports:
            chosen = _Choice(self._machines)
            self._ports[port] = await (_TCPPort.listening(port, chosen) if port.protocol == TCP else _UDPPort.listening(port, chosen))

    async def _close(self, ports: Sequence[PublishedPort]) -> None:
        for port in ports:
            await self._ports.pop(port).close()


class _Choice:
    """The order in which machines are tried."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._last = ""

    def order(self) -> list[str]:
        """Return the machines that run, beginning with the one that worked last."""
        return sorted(self._machines(), key=lambda address: address != self._last)

    def worked(self, address: str) -> None:
        """Begin with this machine from now on."""
        self._last = address

    def failed(self, address: str) -> None:
        """Begin with another machine than this one."""
        others = [one for one in self.order() if one != address]
        self._last = others[0] if others else ""


class _TCPPort:
    """One TCP port."""

    def __init__(self, port: PublishedPort, chosen: _Choice) -> None:
        self._port = port
        self._chosen = chosen
        self._connections: dict[asyncio.Task[None], str] = {}
        """The tasks of connections, with the addresses of their machines."""
        self._server: asyncio.Server | None = None

    @classmethod
    async def listening(cls, port: PublishedPort, chosen: _Choice) -> _TCPPort:
        """Listen. Raises PortInUse or HostError."""
        found = cls(port, chosen)
        found._server = await asyncio.start_server(found._accepted, sock=_bound(port))
        return found

    def end_lost(self, running: Collection[str]) -> None:
        for connection, address in self._connections.items():
            if address and address not in running:
                connection.cancel()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        for oldest in _surplus(self._connections, len(self._connections) + 1 - MOST_CONNECTIONS):
            oldest.cancel()
        self._connections[task] = ""
        try:
            await self._carried(reader, writer, task)
        finally:
            del self._connections[task]
            writer.transport.abort()

    async def _carried(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        """Connect to a machine and forward bytes in both directions until both sides have ended."""
        there = await self._connected(task)
        if there is None:
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_passed_on(reader, there[1]))
                group.create_task(_passed_on(there[0], writer))
            with suppress(OSError):
                writer.close()
                await writer.wait_closed()
        except* (OSError, RuntimeError):  # a side was reset, so the other one is; uvloop raises RuntimeError for a closed transport
            pass
        finally:
            there[1].transport.abort()

    async def _connected(self, task: asyncio.Task[None]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for address in self._chosen.order():
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(ACCEPTS_WITHIN):
                    found = await asyncio.open_connection(address, self._port.target)
                self._chosen.worked(address)
                self._connections[task] = address
                return found
        return None


def _surplus(found: Collection[T], count: int) -> list[T]:
    """Return the first `count` elements; none if the count is negative."""
    return list(found)[: max(0, count)]


async def _passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forward bytes until they end, then close the other side for writing."""
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


class _UDPPort(asyncio.DatagramProtocol):
    """One UDP port, with a socket for each client, so that answers reach the right client."""

    def __init__(self, port: PublishedPort, chosen: _Choice) -> None:
        self._port = port
        self._chosen = chosen
        self._transport: asyncio.DatagramTransport | None = None
        self._clients: dict[object, _UDPClient] = {}
        self._opening: dict[object, list[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def listening(cls, port: PublishedPort, chosen: _Choice) -> _UDPPort:
        """Listen. Raises PortInUse or HostError."""
        _, found = await asyncio.get_running_loop().create_datagram_endpoint(lambda: cls(port, chosen), sock=_bound(port))
        return found

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def end_lost(self, running: Collection[str]) -> None:
        for client in list(self._clients.values()):
            if client.machine not in running:
                client.close()

    async def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        for task in self._tasks:
            task.cancel()
        for client in list(self._clients.values()):
            client.close()

    def datagram_received(self, data: bytes, addr: tuple[str | int, ...]) -> None:
        client = self._clients.get(addr)
        if client is not None:
            client.send(data)
        elif addr in self._opening:
            if len(self._opening[addr]) < _MOST_EARLY:
                self._opening[addr].append(data)
        elif len(self._opening) < MOST_CLIENTS and (order := self._chosen.order()):
            self._opening[addr] = [data]
            task = asyncio.get_running_loop().create_task(self._open(addr, order[0]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _open(self, addr: object, machine: str) -> None:
        for oldest in _surplus(self._clients.values(), len(self._clients) + len(self._opening) - MOST_CLIENTS):
            oldest.close()
        try:
            loop, target = asyncio.get_running_loop(), (machine, self._port.target)
            _, client = await loop.create_datagram_endpoint(lambda: _UDPClient(self, addr, machine), remote_addr=target)
        except OSError:
            self._chosen.failed(machine)
            self._opening.pop(addr, None)
            return
        self._clients[addr] = client
        for data in self._opening.pop(addr, ()):
            client.send(data)

    def answer(self, data: bytes, addr: object) -> None:
        """Send an answer to a client."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.sendto(data, cast("tuple[str, int]", addr))

    def forget(self, addr: object, *, refused_by: str = "") -> None:
        """Forget a client; its next packet goes to another machine if this one refused."""
        self._clients.pop(addr, None)
        if refused_by:
            self._chosen.failed(refused_by)


class _UDPClient(asyncio.DatagramProtocol):
    """The packets of one client."""

    def __init__(self, port: _UDPPort, addr: object, machine: str) -> None:
        self._port = port
        self._addr = addr
        self.machine = machine
        self._transport: asyncio.DatagramTransport | None = None
        self._idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def send(self, data: bytes) -> None:
        """Pass a packet on to the machine."""
        self._used()
        if self._transport is not None:
            self._transport.sendto(data)

    def datagram_received(self, data: bytes, addr: tuple[str | int, ...]) -> None:
        self._used()
        self._port.answer(data, self._addr)

    def error_received(self, exc: Exception) -> None:
        self.close(refused=True)

    def close(self, *, refused: bool = False) -> None:
        """Forget the client."""
        if self._idle is not None:
            self._idle.cancel()
        if self._transport is not None:
            self._transport.close()
        self._port.forget(self._addr, refused_by=self.machine if refused else "")

    def _used(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(_IDLE, self.close)


def require_free(port: PublishedPort) -> None:
    """Require that the host has the address of a port, and no other process has the port. Raises HostError, PortInUse with the owner."""
    _bound(port).close()


def _bound(port: PublishedPort) -> socket.socket:
    """Return a socket that listens on a port. Raises PortInUse with the owner, or HostError."""
    if port.protocol == TCP:
        try:
            return listen(port.address, port.port)
        except PortInUse as error:
            raise taken(port) from error
    try:
        return _for_packets(port.address, port.port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise taken(port) from error
        raise cannot_listen(f"{port.listener}/{port.protocol}", error) from error


def _for_packets(address: str, port: int) -> socket.socket:
    """Return a UDP socket. One of IPv6 gets no packets of IPv4, as with TCP, so that both families can be published."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((address, port))
    except OSError:
        sock.close()
        raise
    return sock


def taken(port: PublishedPort) -> PortInUse:
    """Return the error for a port that is in use, with its owner if it can be found."""
    owner = RealNetwork().owner_of_port(port.address, port.port) if port.protocol == TCP else None
    held = "another process" if owner is None else _cluster_of(owner.pid) or str(owner)
    return PortInUse(
        f"port {port.listener}/{port.protocol} is in use by {held}", remedy="stop that process, or publish another port of the host"
    )


def _cluster_of(pid: int | None) -> str:
    """Return the cluster whose daemon a process is, '' for other processes."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")
        return f"cluster {Path(words[words.index(MODULE) + 2]).name}"
    except (OSError, ValueError, IndexError):
        return ""
