"""However and whenever a connection ends, no descriptor, transport or task is left, on the event loops of asyncio and uvloop.

One server halts at every stage of a connection, in every way; the client is cancelled or times out while the server
sends nothing, and at each point at which it waits. Descriptors are counted in /proc/self/fd after each row, with the
transport still open: a failed connection must not stay even in the pool.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import ssl
import warnings
from collections.abc import Awaitable, Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop
from halting_server import ENDS, PROXY_STAGES, STAGES, TLS_STAGES, HaltingServer

from busy import HANGS
from kubewright.http import aio, connectors, tls
from kubewright.http.failures import NoAnswer, Reason
from kubewright.http.messages import Limits
from kubewright.http.proxies import Proxy

DESCRIPTORS = Path("/proc/self/fd")
LOOPS = {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}
WAYS = ("plain", "tls", "tunnel", "tunnel through tls")
TICKS = 30
"""Iterations of the event loop in which everything has to be closed: no time passes, so nothing can have waited for the server's close."""
SHORT = 0.05


@dataclass
class Bench:
    """Creates servers and transports to them, and knows what is open."""

    way: str
    serving: ssl.SSLContext
    trusting: ssl.SSLContext
    servers: dict[int, HaltingServer] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)

    def server(self, stage: str, end: str) -> HaltingServer:
        proxy = {"tunnel": True, "tunnel through tls": self.serving}.get(self.way, False)
        server = HaltingServer(None if self.way == "plain" else self.serving, proxy=proxy, stage=stage, end=end)
        self.servers[server.port] = server
        return server

    def transport(self, server: HaltingServer, **limits: object) -> aio.Transport:
        limits = Limits(**{"connections": 1, "connect": HANGS, **limits})
        if "tunnel" in self.way:
            proxy = Proxy(url=f"{'https' if 'tls' in self.way else 'http'}://localhost:{server.port}", user="us", password="pw")
            return aio.Transport("https://127.0.0.1:1", context=self.trusting, proxy=proxy, limits=limits)
        base = f"{'http' if self.way == 'plain' else 'https'}://127.0.0.1:{server.port}"
        return aio.Transport(base, context=self.trusting, limits=limits)

    def stop(self) -> None:
        for server in self.servers.values():
            server.stop()

    def trouble(self, text: str) -> None:
        """Record what the event loop complains about, except for asyncio's own bug with TLS over TLS (Python 3.11: sslproto, `_force_close`)."""
        if "SSLProtocol._abort() takes 1 positional argument but 2 were given" not in text:
            self.troubles.append(text)

    async def left(self) -> list[str]:
        """Return what is open after some iterations of the event loop: connections by the stage at which their server halts."""
        for _ in range(TICKS):
            await asyncio.sleep(0)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        return [*filter(None, map(self._stage, _descriptors())), *(repr(task.get_coro()) for task in tasks), *self.troubles]

    def _stage(self, number: str) -> str:
        """Return the stage of the server to which a descriptor is connected, '' for any other descriptor."""
        with contextlib.suppress(OSError):
            if not str((DESCRIPTORS / number).readlink()).startswith("socket:"):
                return ""
            with socket.socket(fileno=os.dup(int(number))) as copy:
                if copy.family is socket.AF_INET and copy.getsockname()[1] not in self.servers:
                    peer = self.servers.get(copy.getpeername()[1])
                    return peer.stage if peer is not None else ""
        return ""


def _descriptors() -> list[str]:
    return [entry.name for entry in DESCRIPTORS.iterdir()]


async def ask(transport: aio.Transport, form: str, timeout: float = HANGS) -> bytes:
    if form == "request":
        return (await transport.request("GET", "/x", timeout=timeout)).body
    async with transport.stream("GET", "/x", timeout=timeout, stall=timeout) as stream:
        return b"".join([piece async for piece in stream.chunks()])


async def outcome(work: Awaitable[bytes]) -> object:
    try:
        return await work
    except NoAnswer as error:
        return error.reason
    except asyncio.CancelledError:
        return "cancelled"


async def reached(server: HaltingServer) -> None:
    """Wait until the server has halted; polled, because it does so in a thread."""
    while not server.reached.is_set():
        await asyncio.sleep(0.001)


class Cancelled:
    """An awaitable that is cancelled at the n-th point at which it waits: while it waits, or at the moment when the wait ends."""

    def __init__(self, work: Generator[Any, Any, bytes], at: int, moment: str) -> None:
        self._work, self._at, self._moment = work, at, moment
        self.points = 0

    def __await__(self) -> Generator[Any, Any, bytes]:
        task, value = asyncio.current_task(), None
        throw: BaseException | None = None
        while True:
            try:
                future = self._work.throw(throw) if throw is not None else self._work.send(value)
            except StopIteration as end:
                return end.value
            if self.points == self._at:
                if self._moment == "while it waits" or future is None:
                    asyncio.get_running_loop().call_soon(task.cancel)
                else:
                    future.add_done_callback(lambda _: task.cancel())
            self.points += 1
            throw = None
            try:
                value = yield future
            except BaseException as error:
                throw = error


@pytest.fixture(params=WAYS)
def bench(request: pytest.FixtureRequest, server_tls: ssl.SSLContext, ca_pem: bytes, monkeypatch) -> Iterator[Bench]:
    trusting = tls.client_context(ca_pem)
    monkeypatch.setattr(connectors, "host_context", lambda: trusting)
    found = Bench(request.param, server_tls, trusting)
    yield found
    found.stop()


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest, bench: Bench) -> Callable[[Callable[[], Awaitable[object]]], object]:
    def running(main: Callable[[], Awaitable[object]]) -> object:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner, warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", ResourceWarning)
            gc.freeze()  # existing descriptors are not examined repeatedly
            runner.get_loop().set_exception_handler(lambda _, context: bench.trouble(str(context)))
            found = runner.run(main())
            gc.collect()
            gc.unfreeze()
        assert [str(one.message) for one in warned] == []
        assert bench.troubles == []
        return found

    return running


def stages(way: str) -> tuple[str, ...]:
    return (*(PROXY_STAGES if "tunnel" in way else ()), *(TLS_STAGES if way != "plain" else TLS_STAGES[:1]), *STAGES[:-1])


@pytest.mark.parametrize("end", [*ENDS[1:], "cancelled", "timed out", "connecting timed out", "client closed"])
def test_a_halting_server_leaves_nothing_open(bench: Bench, run, end: str) -> None:
    servers = [bench.server(stage, end if end in ENDS else "silent") for stage in stages(bench.way)]
    rows = [(server, form) for server in servers for form in ("request", "stream")]

    async def main() -> tuple[list[object], list[str]]:
        transports = [bench.transport(server, **({"connect": SHORT} if end.startswith("connecting") else {})) for server, _ in rows]
        timeout = 4 * SHORT if end.endswith("timed out") else HANGS
        pairs = zip(transports, rows, strict=True)
        works = [asyncio.ensure_future(outcome(ask(transport, form, timeout))) for transport, (_, form) in pairs]
        if end in {"cancelled", "client closed"}:
            for server in servers:
                await reached(server)
            for transport, work in zip(transports, works, strict=True):
                await transport.close() if end == "client closed" else work.cancel()
        ended = [await work for work in works]
        left = await bench.left()
        for transport in transports:
            await transport.close()
        return ended, left

    ended, left = run(main)
    assert left == []
    found = {(server.stage, form): reason for (server, form), reason in zip(rows, ended, strict=True)}
    assert {row: reason for row, reason in found.items() if reason not in _expected(row[0], end)} == {}
    assert len(found) == 2 * len(stages(bench.way))


def _expected(stage: str, end: str) -> set[object]:
    if (
        "greeting" in stage
    ):  # if the server sends first, it is neither a TLS server nor a proxy, which may be noticed before anything else happens
        return {"cancelled", Reason.CLOSED, Reason.TLS, Reason.MALFORMED, Reason.PROXY, Reason.RESET, Reason.TIMED_OUT}
    if end in {"cancelled", "client closed"}:
        return {"cancelled" if end == "cancelled" else Reason.CLOSED}
    if stage.startswith("proxy"):
        return {Reason.PROXY, Reason.TIMED_OUT} if "timed out" in end else {Reason.PROXY}
    if "timed out" in end:
        return {Reason.TIMED_OUT}
    if stage in {"head", "body"} and end == "closed":
        return {Reason.TRUNCATED}
    return {Reason.RESET, Reason.TLS}


NEVER: dict[str, Reason] = {
    "refused": Reason.REFUSED,
    "no such name": Reason.DNS,
    "another CA": Reason.UNTRUSTED,
    "full backlog": Reason.TIMED_OUT,
}


@pytest.mark.parametrize("bench", ["tls"], indirect=True)
@pytest.mark.parametrize("form", ["request", "stream"])
def test_a_connection_that_is_never_established_leaves_nothing_open(bench: Bench, run, form: str) -> None:
    server = bench.server("answer", "silent")
    with contextlib.ExitStack() as held:
        full, nobody = held.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0)), socket.create_server(("127.0.0.1", 0))
        for _ in range(4):
            waiting = held.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        ports = {"refused": nobody.getsockname()[1], "full backlog": full.getsockname()[1]}
        nobody.close()

        async def main() -> tuple[dict[str, object], list[str]]:
            before, found = len(_descriptors()), {}
            for case in NEVER:
                trusting = tls.client_context(trustme.CA().cert_pem.bytes()) if case == "another CA" else bench.trusting
                host = "name.invalid" if case == "no such name" else "127.0.0.1"
                limits = Limits(connections=1, connect=2 * SHORT if case == "full backlog" else HANGS)
                transport = aio.Transport(f"https://{host}:{ports.get(case, server.port)}", context=trusting, limits=limits)
                found[case] = await outcome(ask(transport, form))
                found[f"{case}, again"] = await outcome(ask(transport, form))  # one slot: it is free again
            left = await bench.left()
            bench.stop()
            return found, [*left, *(["a descriptor"] if len(_descriptors()) > before else [])]

        found, left = run(main)
    assert left == []
    assert found == {row: reason for case, reason in NEVER.items() for row in (case, f"{case}, again")}


@pytest.mark.parametrize("moment", ["while it waits", "when it has got it"])
@pytest.mark.parametrize("form", ["request", "stream"])
def test_cancelling_at_any_point_leaves_nothing_open(bench: Bench, run, form: str, moment: str) -> None:
    server = bench.server("answer", "silent")

    async def rows() -> dict[int, tuple[object, list[str]]]:
        found = {}
        for point in range(100):
            transport = bench.transport(server)
            cancelled = Cancelled(ask(transport, form), point, moment)

            async def work(one: Cancelled = cancelled) -> bytes:
                return await one

            ended = await outcome(asyncio.ensure_future(work()))
            if cancelled.points <= point:
                assert ended == b"0123456789"
                await transport.close()
                return found
            left = await bench.left()
            again = await outcome(ask(transport, form))  # the transport is as good as before: no slot is lost
            await transport.close()
            found[point] = ended, [*left, *([] if again == b"0123456789" else [str(again)]), *await bench.left()]
        raise AssertionError("the request waits for ever")

    found = run(rows)
    assert len(found) >= (2 if bench.way == "plain" else 3)
    assert {point: row for point, row in found.items() if row != ("cancelled", [])} == {}
