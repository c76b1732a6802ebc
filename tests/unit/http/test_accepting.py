"""Our servers answer however many connections others hold, and whatever these do with them, on the event loops of asyncio and uvloop."""

from __future__ import annotations

import asyncio
import gc
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import uvloop

from busy import HANGS
from kubewright.http import accepting, serving, tls
from kubewright.http.messages import Response
from kubewright.http.routes import Request, Route, Streaming

LOOPS = {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}
LIMIT = 5
HOSTILE, GOOD, OTHER = "127.0.0.2", "127.0.0.3", "127.0.0.4"
ASK = b"GET /ok HTTP/1.1\r\nhost: h\r\n\r\n"
FOLLOW = b"GET /follow HTTP/1.1\r\nhost: h\r\n\r\n"
KINDS = {
    "silent": (False, b""),
    "in the handshake": (False, b"\x16\x03\x01\x02\x00\x01"),
    "no TLS": (False, b"x" * 100),
    "after the handshake": (True, b""),
    "in the head": (True, b"GET /ok HTTP/1.1\r\nx-long: "),
    "in the body": (True, b"POST /ok HTTP/1.1\r\nhost: h\r\ncontent-length: 100\r\n\r\nx"),
    "does not read": (True, b"GET /large HTTP/1.1\r\nhost: h\r\n\r\n"),
    "waiting for an answer": (True, b"GET /hang HTTP/1.1\r\nhost: h\r\n\r\n"),
    "idle": (True, ASK),
}
"""What a client that holds a connection has sent, and whether that is after the handshake."""


async def ok(_: Request) -> Response:
    return Response(status=200, body=b"ok")


async def large(_: Request) -> Response:
    return Response(status=200, body=b"x" * (32 << 20))


async def hang(_: Request) -> Response:
    await asyncio.sleep(HANGS)
    raise AssertionError


async def follow(_: Request) -> Streaming:
    async def pieces() -> AsyncIterator[bytes]:
        while True:
            yield b"line\n"
            await asyncio.sleep(0.05)

    return Streaming(chunks=pieces())


async def late(request: Request) -> Response:
    """Answer some iterations of the event loop later."""
    for _ in range(int(request.query["turns"])):
        await asyncio.sleep(0)
    return Response(status=200, body=b"ok")


ROUTES = [Route(method="*", pattern=f"/{handler.__name__}", handler=handler) for handler in (ok, large, hang, follow, late)]


class Client:
    """A connection from one address, and its input."""

    def __init__(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        self.reader, self.writer = streams

    async def ask(self) -> bytes:
        """Send a request and return the first line of the answer; b"" if the connection is closed."""
        with suppress(OSError):
            self.writer.write(ASK)
            return (await self.reader.readuntil(b"\r\n\r\nok")).partition(b"\r\n")[0]
        return b""

    async def closed(self) -> None:
        """Read until the server closes the connection."""
        with suppress(OSError):
            while await self.reader.read(1 << 20):
                pass

    async def is_open(self) -> bool:
        """Whether the server has left it open so far."""
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await self.closed()
                return False
        return True


class Site:
    """A server and its clients."""

    def __init__(self, server: serving.Server, trusting: ssl.SSLContext) -> None:
        self.server, self.trusting = server, trusting
        self.clients: list[Client] = []

    async def connect(self, address: str, kind: str = "after the handshake", content: bytes = b"") -> Client:
        secure, said = KINDS[kind]
        context = self.trusting if secure else None
        name = "127.0.0.1" if secure else None
        streams = await asyncio.open_connection(
            "127.0.0.1", self.server.port, local_addr=(address, 0), ssl=context, server_hostname=name, limit=1 << 16
        )
        streams[1].write(content or said)
        self.clients.append(Client(streams))
        return self.clients[-1]

    async def answered(self, address: str) -> bytes:
        """Connect, send a request, and return the first line of the answer."""
        return await (await self.connect(address)).ask()


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest, server_tls: ssl.SSLContext, ca_pem: bytes, monkeypatch: pytest.MonkeyPatch):
    """Run a test's coroutine with a server that allows few connections; afterwards nothing may be left open."""
    monkeypatch.setattr(accepting, "LIMIT", LIMIT)
    monkeypatch.setattr(serving, "GRACE", 0.05)

    def run(use: Callable[[Site], Awaitable[None]]) -> None:
        async def main() -> None:
            site = Site(await serving.serve(ROUTES, host="127.0.0.1", port=0, context=server_tls), tls.client_context(ca_pem))
            try:
                async with asyncio.timeout(2 * HANGS):
                    await use(site)
            finally:
                await site.server.stop()
                for client in site.clients:
                    client.writer.transport.abort()
            async with asyncio.timeout(HANGS):
                while asyncio.all_tasks() != {asyncio.current_task()}:
                    await asyncio.sleep(0.01)

        before = _sockets()
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            troubles: list[object] = []
            runner.get_loop().set_exception_handler(lambda _, context: troubles.append(context))
            runner.run(main())
        gc.collect()
        assert _sockets() - before == set()
        assert troubles == []

    return run


def _sockets() -> set[str]:
    """Return the open sockets by their inodes. Those of earlier tests may be closed at any moment."""
    found = (str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink())
    return {name for name in found if name.startswith("socket:")}


@pytest.mark.parametrize("kind", KINDS)
def test_other_clients_are_answered_however_many_connections_are_held(run, kind: str) -> None:
    async def use(site: Site) -> None:
        good = await site.connect(GOOD)
        held = [await site.connect(HOSTILE, kind) for _ in range(3 * LIMIT)]
        for address in (OTHER, HOSTILE):
            assert await site.answered(address) == b"HTTP/1.1 200 OK"
        assert await good.ask() == b"HTTP/1.1 200 OK"
        places = 0 if kind == "no TLS" else LIMIT - 3
        oldest, newest = held[: len(held) - places], held[len(held) - places :]
        await asyncio.gather(*(client.closed() for client in oldest))
        assert await asyncio.gather(*(client.is_open() for client in newest)) == [True] * places

    run(use)


def test_followed_logs_are_interrupted_only_if_nothing_else_can_be_closed(run) -> None:
    async def use(site: Site) -> None:
        streams = [await site.connect(GOOD, content=FOLLOW) for _ in range(LIMIT - 1)]
        for client in streams:
            await client.reader.readuntil(b"line")
        [await site.connect(HOSTILE) for _ in range(LIMIT)]
        assert await site.answered(OTHER) == b"HTTP/1.1 200 OK"
        for client in streams:
            await client.reader.readuntil(b"line")
        last = await site.connect(GOOD, content=FOLLOW)
        await last.reader.readuntil(b"line")
        assert await site.answered(OTHER) == b"HTTP/1.1 200 OK"
        await streams[0].closed()
        assert [await client.is_open() for client in [*streams[1:], last]] == [True] * (LIMIT - 1)

    run(use)


def test_a_server_without_descriptors_continues_once_it_has_some(run, caplog: pytest.LogCaptureFixture) -> None:
    async def use(site: Site) -> None:
        first = await site.connect(GOOD)
        waiting = socket.socket()
        waiting.setblocking(False)
        with few_files():
            await asyncio.get_running_loop().sock_connect(waiting, ("127.0.0.1", site.server.port))
            while "cannot accept a connection: Too many open files" not in caplog.text:
                await asyncio.sleep(0.01)
            assert await first.ask() == b"HTTP/1.1 200 OK"
        waiting.close()
        assert await site.answered(OTHER) == b"HTTP/1.1 200 OK"

    run(use)


@contextmanager
def few_files() -> Iterator[None]:
    """Let this process open no more files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_answers_for_closing_connections_are_dropped(run) -> None:
    async def use(site: Site) -> None:
        for turns in range(300):
            await site.connect(HOSTILE, content=b"GET /late?turns=%d HTTP/1.1\r\nhost: h\r\n\r\n" % (turns % 60))
            site.clients[-1].writer.transport.pause_reading()
        assert await site.answered(GOOD) == b"HTTP/1.1 200 OK"

    run(use)
