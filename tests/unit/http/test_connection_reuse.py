"""The decisions of the asynchronous transport about reusing a connection."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_server import Raw, Seen, answer, json_answer, lines_answer

import parts
from busy import HANGS, LONGER
from kubewright.base.errors import UsageError
from kubewright.http import aio, loop, tls
from kubewright.http.aio import Transport
from kubewright.http.failures import NoAnswer, Reason
from kubewright.http.messages import Limits, Response

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
def trusting(ca_pem: bytes) -> ssl.SSLContext:
    return tls.client_context(ca_pem)


def talk(url: str, context: ssl.SSLContext | None, main: Callable[[Transport], Awaitable[object]], **limits: int) -> object:
    async def whole() -> object:
        transport = Transport(url, context=context, limits=Limits(**limits))
        try:
            return await main(transport)
        finally:
            await transport.close()

    return loop.run(whole)


async def twice(transport: Transport) -> list[Response]:
    return [await transport.request("GET", "/1"), await transport.request("GET", "/2")]


async def twice_with_an_end_between(transport: Transport) -> list[Response]:
    first = await transport.request("GET", "/1")
    async with asyncio.timeout(HANGS):
        while any(kept.open for kept in transport._free):
            await asyncio.sleep(0.01)
    return [first, await transport.request("GET", "/2")]


ONCE = {
    "it says close": Raw((OK + b"connection: close\r\ncontent-length: 2\r\n\r\n{}",)),
    "it closes": answer(200, b"{}", close=True),
    "HTTP/1.0": Raw((b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}",)),
    "more than was asked for": Raw((OK + b"content-length: 2\r\n\r\n{}" + OK + b"content-length: 6\r\n\r\nforged",)),
    "more, a little later": Raw((OK + b"content-length: 2\r\n\r\n{}", OK + b"content-length: 6\r\n\r\nforged"), pause=0.03),
    "no length, closed at the end": Raw((OK + b"\r\n{}",), close=True),
    "rubbish behind it": Raw((OK + b"content-length: 2\r\n\r\n{}", b"\x15\x03\x01"), pause=0.03),
}


@pytest.mark.parametrize("case", ONCE)
def test_a_connection_in_an_unknown_state_is_not_reused(make_server, trusting, case: str) -> None:
    server = make_server(lambda seen: ONCE[case] if seen.target == "/1" else json_answer({"second": True}))
    first, second = talk(server.url, trusting, twice_with_an_end_between)
    assert (first.body, second.body) == (b"{}", b'{"second": true}')
    assert server.connections == 2


@pytest.mark.parametrize(
    "raw",
    [
        Raw((b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"content-length: 2\r\n\r\n{}",)),
        Raw((b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n", OK + b"content-length: 2\r\n\r\n{}"), pause=0.02),
        Raw((OK[:9], OK[9:] + b"content-le", b"ngth: 2\r", b"\n\r\n{", b"}"), pause=0.02),
        lines_answer(b"{", b"}"),
        Raw((b"HTTP/1.1 204 No Content\r\n\r\n",)),
    ],
    ids=["100", "103", "pieces", "chunks", "204"],
)
def test_an_unusual_response_is_read_and_the_connection_kept(make_server, trusting, raw: Raw) -> None:
    server = make_server(lambda seen: raw if seen.target == "/1" else json_answer({}))
    first, _ = talk(server.url, trusting, twice)
    assert first.body == (b"" if first.status == 204 else b"{}")
    assert "link" not in first.headers
    assert server.connections == 1


def test_a_connection_that_was_idle_for_too_long_is_not_reused(make_server, trusting, monkeypatch) -> None:
    monkeypatch.setattr(aio, "KEEP_ALIVE", 0.0)
    server = make_server()
    talk(server.url, trusting, twice)
    assert server.connections == 2


@pytest.mark.parametrize(
    "raw", [Raw((OK + b"x: " + b"y" * 100_000, b"y" * 100_000, b"y"), pause=0.02), answer(101), Raw((b"HTTP/2 200\r\n\r\n",))]
)
def test_a_head_without_end_and_other_protocols_are_refused(make_server, trusting, raw: Raw) -> None:
    server = make_server(lambda _: raw)
    with pytest.raises(NoAnswer) as caught:
        talk(server.url, trusting, lambda transport: transport.request("GET", "/", timeout=HANGS))
    assert caught.value.reason is Reason.MALFORMED


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        ("/a b", {}),
        ("/a\r\nx: y", {}),
        ("/\u00e9", {}),
        ("/", {"x": "a\r\nhost: b"}),
        ("/", {"x": "a\0"}),
        ("/", {"x: y\r\nz": "a"}),
        ("/", {"": "a"}),
    ],
)
def test_values_that_would_form_another_request_are_never_sent(make_server, trusting, target: str, headers: dict[str, str]) -> None:
    server = make_server()
    with pytest.raises(NoAnswer) as caught:
        talk(server.url, trusting, lambda transport: transport.request("GET", target, headers=headers))
    assert caught.value.reason is Reason.MALFORMED
    assert (server.connections, server.seen) == (0, [])


def test_requests_wait_for_a_free_connection_and_streams_do_not_count(make_server, trusting) -> None:
    def handler(seen: Seen) -> Raw:
        return lines_answer(b"one\n", pause=0.5) if seen.target == "/watch" else json_answer({}, delay=0.05)

    server = make_server(handler)

    async def main(transport: Transport) -> int:
        async with transport.stream("GET", "/watch"), asyncio.TaskGroup() as group:
            for number in range(6):
                group.create_task(transport.request("GET", f"/{number}"))
        return server.connections

    assert talk(server.url, trusting, main, connections=2) == 3
    assert len(server.seen) == 7


def test_a_cancelled_or_late_request_closes_its_connection(make_server, trusting) -> None:
    server = make_server(lambda seen: json_answer({"target": seen.target}, delay=HANGS if seen.target.startswith("/slow") else 0))

    async def quick(transport: Transport) -> int:
        """Return how many connections a request opens."""
        before = server.connections
        assert (await transport.request("GET", "/quick")).body == b'{"target": "/quick"}'
        return server.connections - before

    async def main(transport: Transport) -> list[int]:
        for timeout in LONGER:
            with pytest.raises(NoAnswer) as caught:
                await transport.request("GET", "/slow-late", timeout=timeout)
            assert caught.value.reason is Reason.TIMED_OUT
            if server.seen:
                break
        opened = [await quick(transport), await quick(transport)]
        task = asyncio.create_task(transport.request("GET", "/slow", timeout=HANGS))
        while server.seen[-1].target != "/slow":
            await asyncio.sleep(0.01)
        task.cancel()
        return [*opened, await quick(transport)]

    assert talk(server.url, trusting, main) == [1, 0, 1]


def test_closing_a_transport_works_while_a_connection_times_out(make_server, trusting) -> None:
    async def main(transport: Transport) -> Reason:
        task = asyncio.create_task(transport.request("GET", "/"))
        while not transport._opening:
            await asyncio.sleep(0)
        [bound] = transport._opening
        bound.reschedule(asyncio.get_running_loop().time())
        while not bound.expired():
            await asyncio.sleep(0)
        assert transport._opening == {bound}
        await transport.close()
        with pytest.raises(NoAnswer) as caught:
            await task
        return caught.value.reason

    assert talk(make_server().url, trusting, main) is Reason.CLOSED


def test_a_slow_reader_makes_the_server_wait(make_server, trusting) -> None:
    piece = b"x" * 65_536
    server = make_server(lambda _: lines_answer(*[piece] * 200))

    async def main(transport: Transport) -> tuple[int, int]:
        async with transport.stream("GET", "/") as stream:
            await asyncio.sleep(0.3)
            ahead = stream._size
            return ahead, sum([len(chunk) async for chunk in stream.chunks()])

    ahead, whole = talk(server.url, trusting, main)
    assert whole == 200 * len(piece)
    assert ahead < 3_000_000


def test_nothing_is_sent_unencrypted_if_a_context_is_missing(make_server) -> None:
    server = make_server()
    with pytest.raises(UsageError):
        Transport(server.url)
    plain = make_server(context=None)
    assert talk(plain.url, None, lambda transport: transport.request("GET", "/")).status == 200
    assert server.connections == 0


class _Held:
    """An asyncio transport that stores nothing."""

    def write(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass


PIECES = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from(
            (
                OK,
                b"\r\n",
                b"content-length: 2\r\n",
                b"content-length: -1\r\n",
                b"transfer-encoding: chunked\r\n",
                b"5\r\nhello\r\n",
                b"0\r\n\r\n",
            )
        ),
        st.sampled_from(
            (b"{}", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 304 \r\n", b"upgrade: x\r\n", b"connection: close\r\n", b": \0\r\n")
        ),
    ),
    max_size=12,
)


@settings(max_examples=parts.given(300), deadline=None)
@given(PIECES, st.booleans())
def test_any_input_gives_a_response_or_an_error(pieces: list[bytes], lost: bool) -> None:
    from kubewright.http.connections import Connection, Whole

    async def main() -> None:
        connection, whole = Connection(), Whole(1000)
        connection.connection_made(_Held())
        connection.send(b"", whole)
        for piece in pieces:
            connection.data_received(piece)
        connection.connection_lost(ConnectionResetError() if lost else None)
        assert whole.done.done()
        assert not connection.open
        if whole.done.exception() is None:
            assert 200 <= whole.status < 1000

    asyncio.run(main())
