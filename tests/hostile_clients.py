"""Clients that occupy a server's connections, in a separate process: `hostile(address, port)` runs 1,100 of them.

Each client connects, keeps its connection for as long as it can, and reconnects a second after the connection was
closed. They run on loopback only, and for a limited time.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import random
import resource
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import cycle, islice
from pathlib import Path
from typing import Final

COUNT: Final = 1100
"""More than the 1,024 files that a process may open by default."""
LASTS: Final = 1200.0
"""Seconds after which the process ends by itself."""
PAUSE: Final = 1.0
"""Seconds until a client reconnects."""
BYTE: Final = 0.5
"""Seconds between two bytes."""
_TRIES: Final = 3.0

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _silent(streams: Streams) -> None:
    await streams[0].read()


async def _dripping(streams: Streams, content: bytes) -> None:
    for byte in content:
        streams[1].write(bytes([byte]))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BYTE):
                if not await streams[0].read(65536):
                    return


async def _slow_handshake(streams: Streams) -> None:
    await _dripping(streams, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 508)


async def _slow_head(streams: Streams) -> None:
    await _dripping(streams, b"GET /healthz HTTP/1.1\r\nhost: h\r\nx-long: " + b"x" * 4000)


async def _idle(streams: Streams) -> None:
    streams[1].write(b"GET /healthz HTTP/1.1\r\nhost: h\r\n\r\n")
    await streams[0].read()


KINDS: Final[Mapping[str, tuple[bool, Callable[[Streams], Awaitable[None]]]]] = {
    "silent": (False, _silent),
    "slow handshake": (False, _slow_handshake),
    "slow head": (True, _slow_head),
    "idle": (True, _idle),
}
"""What a client does, and whether it completes the TLS handshake first if the server uses TLS."""


@contextlib.contextmanager
def few_files() -> Iterator[None]:
    """Give processes started inside the block the soft limit for open files that service managers set."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def health(address: str, port: int, *, secure: bool, path: str = "/healthz") -> tuple[int, bytes]:
    """Request the health of a daemon over a new connection."""
    connection = (
        http.client.HTTPSConnection(address, port, timeout=600, context=_trusting())
        if secure
        else http.client.HTTPConnection(address, port, timeout=600)
    )
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()


def _trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@contextlib.contextmanager
def hostile(address: str, port: int, *, secure: bool) -> Iterator[None]:
    """Run the clients; each of them has tried to connect when the block begins."""
    argv = [sys.executable, str(Path(__file__).resolve()), address, str(port), "tls" if secure else ""]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            yield
            assert process.poll() is None, "the hostile clients ended early"
        finally:
            process.kill()


async def _client(address: str, port: int, kind: str, context: ssl.SSLContext | None, tried: asyncio.Semaphore) -> None:
    handshakes, holds = KINDS[kind]
    while True:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_TRIES):
                streams = await asyncio.open_connection(address, port, ssl=context if handshakes else None)
            tried.release()
            try:
                await holds(streams)
            finally:
                streams[1].transport.abort()
        tried.release()
        await asyncio.sleep(random.uniform(0.5, 1.5) * PAUSE)


async def _main(address: str, port: int, context: ssl.SSLContext | None) -> None:
    tried = asyncio.Semaphore(0)
    clients = [asyncio.create_task(_client(address, port, kind, context, tried)) for kind in islice(cycle(KINDS), COUNT)]
    for _ in clients:
        await tried.acquire()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.sleep(LASTS)


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(_main(sys.argv[1], int(sys.argv[2]), _trusting() if sys.argv[3] else None))
