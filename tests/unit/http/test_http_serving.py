"""Our servers: authentication of clients, limits on requests, streaming, stopping; and the control socket with its small client."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import parts
from busy import HANGS
from kubewright.base.errors import Forbidden, HostError, PortInUse, UsageError
from kubewright.http import aio, loop, serving, tls, unix
from kubewright.http.failures import NoAnswer, Reason
from kubewright.http.listening import listen
from kubewright.http.messages import Response
from kubewright.http.routes import Request, Route, Streaming

SEEN: list[Request] = []


async def show(request: Request) -> Response:
    peer = request.peer
    who = f"{peer.common_name} {','.join(peer.organizations)}" if peer else f"uid {request.uid}"
    text = f"{request.method} {request.parts.get('name', '')} {request.query.get('q', '')} {who} {len(request.body)}"
    return Response(status=201, headers={"x-mine": "1"}, body=text.encode())


async def count(request: Request) -> Streaming:
    async def lines() -> AsyncIterator[bytes]:
        for number in range(3):
            yield f"{number}\n".encode()
            await asyncio.sleep(0.01)

    return Streaming(chunks=lines(), headers={"content-type": "text/plain"})


async def refuse(request: Request) -> Response:
    raise Forbidden("you may not", code=403)


async def fail(request: Request) -> Response:
    raise HostError("the disk is full")


async def hang(request: Request) -> Response:
    SEEN.append(request)
    await asyncio.sleep(60)
    raise AssertionError


ROUTES = (
    Route(method="*", pattern="/show/{name}", handler=show),
    Route(method="GET", pattern="/count", handler=count),
    Route(method="GET", pattern="/refuse", handler=refuse),
    Route(method="GET", pattern="/fail", handler=fail),
    Route(method="GET", pattern="/hang", handler=hang),
)


def served(server_pair: tuple[bytes, bytes], ca_pem: bytes, use: Callable[[str], object]) -> object:
    async def main() -> object:
        context = tls.server_context(*server_pair, client_ca_pem=ca_pem, clients=tls.Clients.OPTIONAL)
        server = await serving.serve(ROUTES, host="127.0.0.1", port=0, context=context)
        try:
            return await use(f"https://127.0.0.1:{server.port}")
        finally:
            await server.stop()
            await server.stop()

    return loop.run(main)


def test_the_handler_gets_the_identity_of_the_client(server_pair, ca_pem: bytes, client_pair) -> None:
    async def use(url: str) -> list[Response]:
        found = []
        for pair in (client_pair, ()):
            transport = aio.Transport(url, context=tls.client_context(ca_pem, *pair))
            found.append(await transport.request("POST", "/show/a%20b?q=1", body=b"12345"))
            await transport.close()
        return found

    one, two = served(server_pair, ca_pem, use)
    assert (one.status, one.headers["x-mine"]) == (201, "1")
    assert one.body == b"POST a b 1 system:node:n1 system:nodes 5"
    assert two.body == b"POST a b 1 uid None 5"


@pytest.mark.parametrize(
    ("method", "target", "body", "status"),
    [
        ("GET", "/nothing", b"", 404),
        ("POST", "/count", b"", 405),
        ("GET", "/refuse", b"", 403),
        ("GET", "/fail", b"", 500),
        ("POST", "/show/x", b"x" * (2 << 20), 413),
    ],
)
def test_requests_without_a_route_are_refused(server_pair, ca_pem: bytes, method: str, target: str, body: bytes, status: int) -> None:
    async def use(url: str) -> int:
        transport = aio.Transport(url, context=tls.client_context(ca_pem))
        found = await transport.request(method, target, body=body)
        await transport.close()
        return found.status

    assert served(server_pair, ca_pem, use) == status


@pytest.mark.parametrize("before", [b"", b"GET /refuse HTTP/1.1\r\nhost: h\r\n\r\n"], ids=["the first bytes", "after a request"])
def test_clients_that_do_not_speak_http_get_400_and_leave_nothing_in_the_log(before: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def use() -> bytes:
        server = await serving.serve(ROUTES, host="127.0.0.1", port=0)
        try:
            async with asyncio.timeout(HANGS):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                if before:
                    writer.write(before)
                    await reader.readuntil(b"you may not\n")
                writer.write(b"\x16\x03\x01\x02\x00\x01\x00")
                answer = await reader.read()
                writer.close()
                return answer
        finally:
            await server.stop()

    assert loop.run(use).startswith(b"HTTP/1.0 400 Bad Request")
    assert caplog.text == ""


def test_an_answer_may_be_streamed(server_pair, ca_pem: bytes) -> None:
    async def use(url: str) -> bytes:
        transport = aio.Transport(url, context=tls.client_context(ca_pem))
        async with transport.stream("GET", "/count") as stream:
            found = await stream.read()
        await transport.close()
        return found

    assert served(server_pair, ca_pem, use) == b"0\n1\n2\n"


def test_a_stopping_server_does_not_wait_for_ever(server_pair, ca_pem: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "GRACE", 0.1)
    SEEN.clear()

    async def main() -> float:
        loop = asyncio.get_running_loop()
        server = await serving.serve(ROUTES, host="127.0.0.1", port=0, context=tls.server_context(*server_pair))
        transport = aio.Transport(f"https://127.0.0.1:{server.port}", context=tls.client_context(ca_pem))
        asking = asyncio.create_task(transport.request("GET", "/hang", timeout=60))
        while not SEEN:
            await asyncio.sleep(0.01)
        start = loop.time()
        await server.stop()
        with pytest.raises(NoAnswer):
            await asking
        await transport.close()
        return loop.time() - start

    assert loop.run(main) < HANGS


def test_a_port_in_use_is_reported() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(PortInUse) as caught:
                await serving.serve(ROUTES, host="127.0.0.1", port=port)
            assert str(port) in caught.value.what
        with pytest.raises(HostError):
            await serving.serve(ROUTES, host="203.0.113.1", port=0)

    loop.run(main)


def on_socket(path: Path, use: Callable[[], object]) -> object:
    async def main() -> object:
        server = await serving.serve_unix(ROUTES, path=path)
        try:
            return await asyncio.to_thread(use)
        finally:
            await server.stop()

    return loop.run(main)


def test_a_listening_socket_queues_clients_until_it_is_served_even_by_the_next_server() -> None:
    def ask(port: int) -> bytes:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=HANGS) as caller:
                caller.sendall(b"GET /show/x HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")
                asking.set()
                return b"".join(iter(lambda: caller.recv(4096), b""))
        finally:
            asking.set()

    asking = threading.Event()

    async def main() -> None:
        with listen("127.0.0.1", 0) as sock:
            port = sock.getsockname()[1]
            for _ in range(2):
                asking.clear()
                asked = asyncio.ensure_future(asyncio.to_thread(ask, port))
                await asyncio.to_thread(asking.wait)
                server = await serving.serve_socket(ROUTES, sock)
                assert server.port == port
                assert (await asked).startswith(b"HTTP/1.1 201 ")
                await server.stop()
        with socket.socket() as caller:
            assert caller.connect_ex(("127.0.0.1", port)) != 0

    loop.run(main)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_listening_on_a_port_in_use_fails(address: str) -> None:
    with listen(address, 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse) as caught:
            listen(address, port)
    assert str(port) in str(caught.value)


def test_listening_on_a_foreign_address_fails() -> None:
    with pytest.raises(HostError) as caught:
        listen("192.0.2.1", 10248)
    assert "192.0.2.1 port 10248" in str(caught.value)


@pytest.fixture
def place(short_path: Path) -> Path:
    return short_path / "control.sock"


def test_the_control_socket_is_private(place: Path) -> None:
    def use() -> tuple[int, Response]:
        return place.stat().st_mode & 0o777, unix.request("POST", place, "/show/x?q=2", body=b"123")

    mode, found = on_socket(place, use)
    assert mode == 0o600
    assert found.body == f"POST x 2 uid {os.geteuid()} 3".encode()
    assert not place.exists()


def test_the_control_socket_streams(place: Path) -> None:
    def use() -> tuple[int, bytes]:
        with unix.stream("GET", place, "/count") as (status, headers, chunks):
            assert headers["content-type"] == "text/plain"
            return status, b"".join(chunks)

    assert on_socket(place, use) == (200, b"0\n1\n2\n")


def test_a_stream_ends_with_its_reader(place: Path) -> None:
    ended = asyncio.Event()

    async def follow(_: Request) -> Streaming:
        async def lines() -> AsyncIterator[bytes]:
            try:
                yield b"0\n"
                await asyncio.Event().wait()
            finally:
                ended.set()

        return Streaming(chunks=lines())

    def read() -> bytes:
        with unix.stream("GET", place, "/follow") as (_, _, chunks):
            return next(chunks)

    async def main() -> None:
        server = await serving.serve_unix([Route(method="GET", pattern="/follow", handler=follow)], path=place)
        assert b"0" in await asyncio.to_thread(read)
        async with asyncio.timeout(HANGS):
            await ended.wait()
        await server.stop()

    loop.run(main)


def test_a_long_path_of_a_socket_works(tmp_path: Path) -> None:
    directory = tmp_path / ("a" * 120)
    directory.mkdir(mode=0o700)
    assert on_socket(directory / "control.sock", lambda: unix.request("GET", directory / "control.sock", "/show/x")).status == 201


def test_a_stale_socket_is_replaced(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(place))
    with pytest.raises(NoAnswer) as caught:
        unix.request("GET", place, "/show/x")
    assert caught.value.reason is Reason.REFUSED
    assert on_socket(place, lambda: unix.request("GET", place, "/show/x")).status == 201


def test_a_missing_socket_is_reported(place: Path) -> None:
    with pytest.raises(NoAnswer) as caught:
        unix.request("GET", place, "/show/x")
    assert caught.value.reason is Reason.REFUSED
    assert str(place) in str(caught.value)


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o770])
def test_a_directory_that_others_can_enter_is_refused(tmp_path: Path, mode: int) -> None:
    directory = tmp_path / "open"
    directory.mkdir()
    directory.chmod(mode)
    link = tmp_path / "link"
    link.symlink_to(directory)

    async def main() -> None:
        for bad in (directory, link, tmp_path / "missing"):
            with pytest.raises(HostError):
                await serving.serve_unix(ROUTES, path=bad / "control.sock")

    loop.run(main)


class Fixed:
    """A server on a Unix socket that sends fixed bytes for every request."""

    def __init__(self, path: Path, content: bytes) -> None:
        import threading

        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.content = content
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        connection, _ = self.listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(self.content)

    def __enter__(self) -> Fixed:
        return self

    def __exit__(self, *_: object) -> None:
        self.thread.join(5)
        self.listener.close()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", Reason.TRUNCATED),
        (b"HTTP/1.0 200 OK\r\ncontent-le", Reason.TRUNCATED),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 10\r\n\r\n123", Reason.TRUNCATED),
        (b"nonsense\r\n\r\n", Reason.MALFORMED),
        (b"HTTP/1.0 abc OK\r\n\r\n", Reason.MALFORMED),
        (b"HTTP/1.0 200 OK\r\ncontent-length: x\r\n\r\n", Reason.MALFORMED),
        (b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 3000, Reason.TOO_LARGE),
        (b"x: y\r\n" * 20_000, Reason.TRUNCATED),
    ],
)
def test_a_broken_answer_on_the_socket_has_its_reason(place: Path, content: bytes, reason: Reason) -> None:
    with Fixed(place, content), pytest.raises(NoAnswer) as caught:
        unix.request("GET", place, "/x", most=2000)
    assert caught.value.reason is reason


@settings(max_examples=parts.given(30), deadline=None)
@given(content=st.binary(max_size=60) | st.binary(max_size=20).map(lambda rest: b"HTTP/1.0 200 OK\r\n" + rest + b"\r\n\r\n"))
def test_no_answer_on_the_socket_raises_an_error_outside_the_tree(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    place = tmp_path_factory.mktemp("s") / "c"
    with Fixed(place, content), contextlib.suppress(NoAnswer):
        unix.request("GET", place, "/x")


@pytest.mark.parametrize("target", ["/x y", "/x\r\nevil: 1", "/ä", ""])
def test_a_target_cannot_break_out_of_its_line(place: Path, target: str) -> None:
    with pytest.raises(UsageError):
        unix.request("GET", place, target)


def test_the_small_client_imports_little() -> None:
    script = "import sys, kubewright.http.unix; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    loaded = set(done.stdout.split())
    assert not loaded & {"ssl", "asyncio", "aiohttp", "urllib3", "http.client", "email", "json", "msgspec", "cryptography"}
