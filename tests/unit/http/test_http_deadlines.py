"""A timeout covers the whole request: a server that sends a byte now and then cannot extend it, at any stage."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from dripping import STAGES, DrippingServer, said
from scripted_server import Raw, ScriptedServer, answer, lines_answer

from busy import HANGS, LONGER, reaches
from kubewright.http import aio, loop, sync, tls, unix
from kubewright.http.failures import NoAnswer, Reason
from kubewright.http.messages import Limits
from kubewright.http.proxies import Proxies, Proxy
from kubewright.http.sync import Downloads
from kubewright.http.tls import serves, serves_async

TIMEOUT = LONGER[0]
LARGE = b"x" * (16 << 20)


@pytest.fixture
def trusting(ca_pem: bytes) -> ssl.SSLContext:
    return tls.client_context(ca_pem)


@pytest.fixture
def drip(server_tls: ssl.SSLContext) -> Iterator[Callable[..., DrippingServer]]:
    with contextlib.ExitStack() as servers:
        yield lambda stage, **options: servers.enter_context(DrippingServer(stage, **{"context": server_tls, **options}))


def ask_sync(url: str, context: ssl.SSLContext | None, *, body: bytes | None = None, timeout: float = TIMEOUT, **options: object) -> None:
    transport = sync.Transport(url, context=context, limits=Limits(connect=timeout), **options)
    try:
        transport.request("POST", "/x", body=body, timeout=timeout)
    finally:
        transport.close()


def ask_async(url: str, context: ssl.SSLContext | None, *, body: bytes | None = None, timeout: float = TIMEOUT, **options: object) -> None:
    async def main() -> None:
        transport = aio.Transport(url, context=context, limits=Limits(connect=timeout), **options)
        try:
            await transport.request("POST", "/x", body=body, timeout=timeout)
        finally:
            await transport.close()

    loop.run(main)


@pytest.fixture(params=[ask_sync, ask_async], ids=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Callable[..., None]:
    return request.param


def joined(call: Callable[[], object]) -> BaseException:
    """Require that a call ends by itself and fails, and return its error; otherwise its thread would hang."""
    caught: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(HANGS)
    assert not thread.is_alive(), "the deadline has passed, and the call goes on"
    assert len(caught) == 1
    return caught[0]


def ends(call: Callable[[], object]) -> NoAnswer:
    """Require that a request ends by itself without an answer."""
    error = joined(call)
    assert isinstance(error, NoAnswer)
    return error


def times_out(server: DrippingServer, call: Callable[[float], object], *reasons: Reason) -> None:
    """Require that a call with a timeout ends by it, while the server sends slowly."""

    def drips(timeout: float) -> bool:
        assert ends(lambda: call(timeout)).reason in {Reason.TIMED_OUT, *reasons}
        return server.dripped > 2

    reaches(drips)


@pytest.mark.parametrize("stage", STAGES)
def test_a_request_ends_with_its_deadline_at_every_stage(ask, drip, trusting: ssl.SSLContext, stage: str) -> None:
    server = drip(stage)
    times_out(server, lambda timeout: ask(server.url, trusting, body=LARGE if stage == "request body" else b"{}", timeout=timeout))


@pytest.mark.parametrize("stage", ["head", "request body"])
def test_a_request_ends_with_its_deadline_without_tls(ask, drip, stage: str) -> None:
    server = drip(stage, context=None)
    times_out(server, lambda timeout: ask(server.url, None, body=LARGE if stage == "request body" else b"{}", timeout=timeout))


@pytest.mark.parametrize("stage", ["head", "interim answers"])
def test_the_deadline_includes_the_answer_of_a_proxy_to_connect(ask, drip, trusting: ssl.SSLContext, stage: str) -> None:
    server = drip(stage, proxy=True)
    proxy = Proxy(url=f"http://127.0.0.1:{server.port}")
    times_out(server, lambda timeout: ask("https://a.invalid:6443", trusting, proxy=proxy, timeout=timeout), Reason.PROXY)


def test_a_server_that_accepts_no_connection_times_out(ask) -> None:
    """Its queue is full: the connection itself is not established."""
    with contextlib.ExitStack() as opened:
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        error = ends(lambda: ask(f"http://127.0.0.1:{listener.getsockname()[1]}", None))
    assert error.reason is Reason.TIMED_OUT


def test_a_reused_connection_has_the_deadline_of_the_new_request(
    make_server: Callable[..., ScriptedServer], trusting: ssl.SSLContext
) -> None:
    server = make_server()
    transport = sync.Transport(server.url, context=trusting)
    assert transport.request("GET", "/x", timeout=HANGS).status == 200
    first, rest = said("head")
    server.handler = lambda _: Raw((first, *(bytes([byte]) for byte in rest[:3000])), pause=0.02)
    assert ends(lambda: transport.request("GET", "/x", timeout=TIMEOUT)).reason is Reason.TIMED_OUT
    server.handler = lambda _: answer(200, b"{}", delay=2 * TIMEOUT)
    assert transport.request("GET", "/x", timeout=HANGS).status == 200
    transport.close()


def test_a_stream_may_last_longer_than_the_deadline_of_its_head(
    make_server: Callable[..., ScriptedServer], trusting: ssl.SSLContext
) -> None:
    def follow(timeout: float) -> list[bytes]:
        transport = sync.Transport(server.url, context=trusting)
        try:
            with transport.stream("GET", "/log", timeout=timeout, stall=HANGS) as stream:
                return list(stream.chunks())
        finally:
            transport.close()

    async def follow_async(timeout: float) -> list[bytes]:
        transport = aio.Transport(server.url, context=trusting)
        try:
            async with transport.stream("GET", "/log", timeout=timeout, stall=HANGS) as stream:
                return [chunk async for chunk in stream.chunks()]
        finally:
            await transport.close()

    server = make_server()

    def outlasts(timeout: float) -> bool:
        server.handler = lambda _: lines_answer(*[b"line\n"] * 3, pause=timeout / 2)
        with ThreadPoolExecutor() as threads:
            both = [threads.submit(follow, timeout), threads.submit(loop.run, lambda: follow_async(timeout))]
            try:
                return [one.result(HANGS) for one in both] == [[b"line\n"] * 3] * 2
            except NoAnswer:  # the beginning took that long
                return False

    reaches(outlasts)


@pytest.mark.parametrize("stage", ["handshake", "head", "interim answers"])
def test_the_head_of_a_stream_has_a_deadline(drip, trusting: ssl.SSLContext, stage: str) -> None:
    server = drip(stage)
    transport = sync.Transport(server.url, context=trusting, limits=Limits(connect=TIMEOUT))

    def follow() -> None:
        with transport.stream("GET", "/log", timeout=TIMEOUT):
            pass

    async def main() -> None:
        asynchronous = aio.Transport(server.url, context=trusting)
        try:
            async with asynchronous.stream("GET", "/log", timeout=TIMEOUT):
                pass
        finally:
            await asynchronous.close()

    assert ends(follow).reason is Reason.TIMED_OUT
    assert ends(lambda: loop.run(main)).reason is Reason.TIMED_OUT
    transport.close()


def test_a_refusal_of_a_stream_is_read_within_a_deadline(drip, trusting: ssl.SSLContext) -> None:
    server = drip("body")

    async def main() -> None:
        transport = aio.Transport(server.url, context=trusting)
        try:
            async with transport.stream("GET", "/log") as answered:
                await answered.read(within=TIMEOUT)
        finally:
            await transport.close()

    assert ends(lambda: loop.run(main)).reason is Reason.TIMED_OUT


@pytest.mark.parametrize("stage", ["handshake", "head", "interim answers", "body"])
def test_a_download_may_have_a_deadline(drip, trusting: ssl.SSLContext, stage: str) -> None:
    server = drip(stage)
    downloads = Downloads(trusting)

    def download() -> None:
        with downloads.get(f"{server.url}/file", within=TIMEOUT) as stream:
            stream.read()

    assert ends(download).reason is Reason.TIMED_OUT
    downloads.close()


def test_a_download_without_a_deadline_has_one_for_its_head(drip, trusting: ssl.SSLContext) -> None:
    server = drip("head")
    downloads = Downloads(trusting, connect=TIMEOUT, stall=TIMEOUT)

    def download() -> None:
        with downloads.get(f"{server.url}/file"):
            pass

    assert ends(download).reason is Reason.TIMED_OUT
    downloads.close()


def test_redirects_share_one_deadline(make_server: Callable[..., ScriptedServer], trusting: ssl.SSLContext) -> None:
    server = make_server()
    downloads = Downloads(trusting)

    def redirected(within: float) -> bool:
        server.handler = lambda _: answer(302, headers={"Location": "/again"}, delay=within / 2)

        def download() -> None:
            with downloads.get(f"{server.url}/0", within=within, redirects=1000):
                pass

        before = len(server.seen)
        assert ends(download).reason is Reason.TIMED_OUT
        assert len(server.seen) - before <= 3
        return len(server.seen) > before

    reaches(redirected)
    downloads.close()


@pytest.mark.parametrize("stage", ["head", "body"])
def test_a_request_to_the_control_socket_ends_with_its_deadline(short_path: Path, stage: str) -> None:
    place = short_path / "control.sock"
    with DrippingServer(stage, path=place) as server:
        times_out(server, lambda timeout: unix.request("GET", place, "/x", timeout=timeout))


def test_following_a_log_through_the_control_socket_has_a_deadline_for_the_head_only(short_path: Path) -> None:
    place = short_path / "control.sock"

    def follow() -> None:
        with unix.stream("GET", place, "/logs/etcd", timeout=TIMEOUT):
            pass

    with DrippingServer("head", path=place):
        assert ends(follow).reason is Reason.TIMED_OUT
    place.unlink()

    def outlasts(timeout: float) -> bool:
        try:
            with unix.stream("GET", place, "/logs/etcd", timeout=timeout) as (status, _, chunks):
                end, found = time.monotonic() + timeout, b""
                while time.monotonic() < end:
                    found += next(chunks)
                assert (status, set(found)) == (200, {ord("x")})
        except NoAnswer:  # the head took that long
            return False
        return True

    with DrippingServer("body", path=place):
        reaches(outlasts)


@pytest.mark.parametrize("form", ["sync", "async"])
def test_a_slow_handshake_times_out(drip, form: str) -> None:
    port = drip("handshake").port
    if form == "sync":
        assert serves("127.0.0.1", port, within=TIMEOUT) is False
    else:
        assert asyncio.run(serves_async("127.0.0.1", port, within=TIMEOUT)) is False


def test_downloads_use_the_proxies_of_the_environment(drip, trusting: ssl.SSLContext) -> None:
    server = drip("head", proxy=True)
    downloads = Downloads(trusting, proxies=Proxies.from_environment({"HTTPS_PROXY": f"127.0.0.1:{server.port}"}))

    def download() -> None:
        with downloads.get("https://a.invalid/file", within=TIMEOUT):
            pass

    assert ends(download).reason in {Reason.TIMED_OUT, Reason.PROXY}
    downloads.close()
