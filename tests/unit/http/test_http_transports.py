"""All transports against a server that misbehaves in every way we know: one table, run for each."""

from __future__ import annotations

import asyncio
import io
import re
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
import trustme
from scripted_server import Raw, ScriptedServer, Seen, answer, json_answer, lines_answer

from busy import HANGS
from kubewright.base import logs
from kubewright.base.errors import Unreachable
from kubewright.http import aio, loop, sync, tls
from kubewright.http.failures import NoAnswer, Reason
from kubewright.http.messages import Limits, Response

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


class Sync:
    """Runs a request through the synchronous transport."""

    def __call__(self, url: str, context: ssl.SSLContext | None, *, limits: Limits | None = None, **options: object) -> Response:
        transport = sync.Transport(url, context=context, limits=limits)
        try:
            return transport.request("GET", "/x?y=1", **options)
        finally:
            transport.close()


class Async:
    """Runs a request through the asynchronous transport."""

    def __call__(self, url: str, context: ssl.SSLContext | None, *, limits: Limits | None = None, **options: object) -> Response:
        async def main() -> Response:
            transport = aio.Transport(url, context=context, limits=limits)
            try:
                return await transport.request("GET", "/x?y=1", **options)
            finally:
                await transport.close()

        return loop.run(main)


Call = Sync | Async


@pytest.fixture(params=[Sync(), Async()], ids=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Call:
    return request.param


@pytest.mark.parametrize(("verbosity", "count"), [(5, 0), (6, 2), (10, 2)])
def test_each_request_is_logged_in_one_line_without_secrets(call, make_server, trusting, verbosity, count):
    stream = io.StringIO()
    logs.configure(verbosity, stream=stream)
    url = make_server(lambda seen: json_answer({"ok": "canary"}, status=403)).url
    call(url, trusting, headers={"authorization": "Bearer canary-1234567890"})
    with pytest.raises(NoAnswer):
        call("https://127.0.0.1:1", trusting)
    lines = [line for line in stream.getvalue().splitlines() if url in line or "127.0.0.1:1/" in line]  # threads of other tests log as well
    assert len(lines) == count
    if count:
        assert re.fullmatch(rf'I.*tracing\.py:\d+\] "Response" verb="GET" url="{url}/x\?y=1" status="403" milliseconds=\d+', lines[0])
        assert re.search(r'\] "No response" verb="GET" url="https://127\.0\.0\.1:1/x\?y=1" err=".+" milliseconds=\d+$', lines[1])
    assert "canary" not in stream.getvalue()


def test_user_information_and_queries_of_downloads_are_not_logged(make_server, trusting):
    stream = io.StringIO()
    logs.configure(10, stream=stream)
    server = make_server(lambda seen: json_answer({}))
    place = server.url.replace("https://", "https://me:canary@")
    with sync.Downloads(trusting).get(f"{place}/file?signature=canary") as found:
        assert found.read() == b"{}"
    assert "canary" not in stream.getvalue()
    [line] = [line for line in stream.getvalue().splitlines() if server.url in line]  # threads of other tests log as well
    assert f'url="{server.url}/file?..." status="200"' in line


@pytest.fixture
def trusting(ca_pem: bytes) -> ssl.SSLContext:
    return tls.client_context(ca_pem)


MakeServer = Callable[..., ScriptedServer]

BROKEN = {
    "body shorter than its length": (Raw((HEAD + b"content-length: 10\r\n\r\n12345",), close=True), Reason.TRUNCATED),
    "chunks without an end": (Raw((HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\n12345\r\n",), close=True), Reason.TRUNCATED),
    "chunk cut in the middle": (Raw((HEAD + b"transfer-encoding: chunked\r\n\r\n9\r\n123",), close=True), Reason.TRUNCATED),
    "closed without a word": (Raw((), close=True), Reason.RESET),
    "not HTTP": (Raw((b"220 mail.example ESMTP\r\n",), close=True), Reason.MALFORMED),
    "body larger than allowed": (answer(200, b"x" * 5000), Reason.TOO_LARGE),
    "chunks larger than allowed": (lines_answer(*[b"x" * 1000] * 5), Reason.TOO_LARGE),
    "silent": (answer(200, b"{}", delay=HANGS), Reason.TIMED_OUT),
    "a byte now and then": (Raw((HEAD + b"content-length: 1000\r\n\r\n", *[b"x"] * 999), pause=0.05, close=True), Reason.TIMED_OUT),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_response_has_a_reason(call: Call, make_server: MakeServer, trusting: ssl.SSLContext, case: str) -> None:
    raw, reason = BROKEN[case]
    server = make_server(lambda _: raw)
    with pytest.raises(NoAnswer) as caught:
        call(server.url, trusting, limits=Limits(body=2000, connect=HANGS), timeout=0.25 if reason is Reason.TIMED_OUT else HANGS)
    assert caught.value.reason is reason
    assert isinstance(caught.value, Unreachable)
    assert caught.value.remedy
    assert "y=1" not in str(caught.value)


@pytest.mark.parametrize("status", [200, 204, 301, 307, 404, 429, 500, 503])
def test_every_status_code_is_an_answer(call: Call, make_server: MakeServer, trusting: ssl.SSLContext, status: int) -> None:
    body = b"" if status == 204 else b"{}"
    server = make_server(lambda _: answer(status, body, headers={"Location": "http://elsewhere.example/", "Retry-After": "7"}))
    found = call(server.url, trusting)
    assert (found.status, found.body) == (status, body)
    assert found.headers["retry-after"] == "7"
    assert len(server.seen) == 1


def test_the_request_target_arrives_unchanged(call: Call, make_server: MakeServer, trusting: ssl.SSLContext) -> None:
    server = make_server()
    call(server.url + "/prefix/", trusting, headers={"x-many": ("a", "b"), "accept": "application/json"})
    assert server.seen[0].target == "/prefix/x?y=1"
    assert [line for line in server.seen[0].lines if line.lower().startswith("x-many")] == ["x-many: a", "x-many: b"]
    assert server.seen[0].headers["accept-encoding"] == "identity"


def test_a_wrong_ca_is_reported(call: Call, make_server: MakeServer) -> None:
    server = make_server()
    with pytest.raises(NoAnswer) as caught:
        call(server.url, tls.client_context(trustme.CA().cert_pem.bytes()))
    assert caught.value.reason is Reason.UNTRUSTED
    assert server.seen == []


def test_a_wrong_name_is_reported(call: Call, make_server: MakeServer, authority: trustme.CA, ca_pem: bytes) -> None:
    leaf = authority.issue_cert("other.example")
    server = make_server(context=tls.server_context(leaf.cert_chain_pems[0].bytes(), leaf.private_key_pem.bytes()))
    with pytest.raises(NoAnswer) as caught:
        call(server.url, tls.client_context(ca_pem))
    assert caught.value.reason is Reason.UNTRUSTED
    assert "127.0.0.1" in str(caught.value)


@pytest.mark.parametrize(("begins", "ends"), [(-2, -1), (1, 2)])
def test_a_certificate_that_is_not_valid_now_gives_a_hint_to_compare_clocks(
    call: Call, make_server: MakeServer, authority: trustme.CA, trusting: ssl.SSLContext, begins: int, ends: int
) -> None:
    now = datetime.now(UTC)
    leaf = authority.issue_cert("127.0.0.1", not_before=now + timedelta(days=begins), not_after=now + timedelta(days=ends))
    server = make_server(context=tls.server_context(leaf.cert_chain_pems[0].bytes(), leaf.private_key_pem.bytes()))
    with pytest.raises(NoAnswer, match="not yet valid" if begins > 0 else "has expired") as caught:
        call(server.url, trusting)
    assert caught.value.remedy.startswith("compare the clocks of both machines (`date -u`)")


def test_a_server_without_tls_is_reported(call: Call, make_server: MakeServer, trusting: ssl.SSLContext) -> None:
    server = make_server(context=None)
    with pytest.raises(NoAnswer) as caught:
        call(server.url.replace("http:", "https:"), trusting, timeout=0.5)
    assert caught.value.reason in {Reason.TLS, Reason.RESET, Reason.TIMED_OUT}


def test_a_refused_connection_is_reported(call: Call, make_server: MakeServer, trusting: ssl.SSLContext) -> None:
    server = make_server()
    server.stop()
    with pytest.raises(NoAnswer) as caught:
        call(server.url, trusting)
    assert caught.value.reason is Reason.REFUSED
    assert server.url in str(caught.value)


@pytest.mark.parametrize("host", ["name.invalid", "two..dots", f"{'long' * 16}.test"])
def test_an_unknown_name_is_reported(call: Call, trusting: ssl.SSLContext, host: str) -> None:
    with pytest.raises(NoAnswer) as caught:
        call(f"https://{host}:6443", trusting)
    assert caught.value.reason is Reason.DNS


@pytest.mark.parametrize("host", ["127.000.000.001", "0177.0.0.1", "127.1", "0x7f.0.0.1", "2130706433"])
def test_addresses_that_only_the_c_library_accepts_do_not_resolve(call: Call, make_server: MakeServer, host: str) -> None:
    """As for Go's dialer. The C library reads octal numbers there, and `010.0.0.1` would be another machine."""
    server = make_server(lambda _: json_answer({}))
    with pytest.raises(NoAnswer) as caught:
        call(server.url.replace("127.0.0.1", host), tls.client_context(None, verify=False))
    assert caught.value.reason is Reason.DNS
    assert server.seen == []


def test_disabled_verification_gives_no_warning(call: Call, make_server: MakeServer) -> None:
    server = make_server(lambda _: json_answer({"a": 1}))
    assert call(server.url, tls.client_context(None, verify=False)).body == b'{"a": 1}'


def test_the_client_certificate_is_presented(call: Call, make_server: MakeServer, ca_pem: bytes, client_pair: tuple[bytes, bytes]) -> None:
    server = make_server()
    call(server.url, tls.client_context(ca_pem, *client_pair))
    assert [seen.common_name for seen in server.seen] == ["system:node:n1"]


def test_the_environment_is_not_trusted(
    call: Call, make_server: MakeServer, trusting: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    log = tmp_path / "keys.log"
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login canary password canary\n")
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("SSLKEYLOGFILE", str(log))
    monkeypatch.setenv("NETRC", str(netrc))
    server = make_server()
    assert call(server.url, trusting).status == 200
    assert not log.exists()
    assert "authorization" not in server.seen[0].headers


def test_one_connection_serves_many_requests(make_server: MakeServer, trusting: ssl.SSLContext) -> None:
    server = make_server(lambda seen: json_answer({"target": seen.target}))
    transport = sync.Transport(server.url, context=trusting)
    for number in range(5):
        transport.request("PUT", f"/{number}", body=b"{}")
    assert (server.connections, len(server.seen)) == (1, 5)

    async def main() -> None:
        transport = aio.Transport(server.url, context=trusting)
        for number in range(5):
            await transport.request("PUT", f"/{number}", body=b"{}")
        await transport.close()

    loop.run(main)
    assert (server.connections, len(server.seen)) == (2, 10)
    transport.close()


def test_streams_yield_pieces_as_they_arrive(make_server: MakeServer, trusting: ssl.SSLContext) -> None:
    server = make_server(lambda _: lines_answer(b"one\n", b"two\n", b"three\n", pause=0.05))
    transport = sync.Transport(server.url, context=trusting)
    with transport.stream("GET", "/log") as stream:
        assert list(stream.chunks()) == [b"one\n", b"two\n", b"three\n"]

    async def main() -> list[bytes]:
        transport = aio.Transport(server.url, context=trusting)
        async with transport.stream("GET", "/log") as answered:
            found = [chunk async for chunk in answered.chunks()]
        await transport.close()
        return found

    assert loop.run(main) == [b"one\n", b"two\n", b"three\n"]
    transport.close()


def test_a_stream_that_stalls_ends(make_server: MakeServer, trusting: ssl.SSLContext) -> None:
    server = make_server(lambda _: lines_answer(b"one\n", b"two\n", pause=HANGS))
    transport = sync.Transport(server.url, context=trusting)
    with transport.stream("GET", "/log", stall=0.1) as stream, pytest.raises(NoAnswer) as caught:
        list(stream.chunks())
    assert caught.value.reason is Reason.TIMED_OUT

    async def main() -> None:
        transport = aio.Transport(server.url, context=trusting)
        try:
            async with transport.stream("GET", "/log", stall=0.1) as answered:
                async for _ in answered.chunks():
                    pass
        finally:
            await transport.close()

    with pytest.raises(NoAnswer) as caught:
        loop.run(main)
    assert caught.value.reason is Reason.TIMED_OUT
    transport.close()


def test_draining_lets_requests_finish_and_cuts_streams(make_server: MakeServer, trusting: ssl.SSLContext) -> None:
    def handler(seen: Seen) -> Raw:
        return lines_answer(b"one\n", b"two\n", pause=HANGS) if seen.target == "/watch" else json_answer({}, delay=0.2)

    server = make_server(handler)

    async def main() -> tuple[int, Reason]:
        transport = aio.Transport(server.url, context=trusting)

        async def watch() -> Reason:
            with pytest.raises(NoAnswer) as caught:
                async with transport.stream("GET", "/watch") as stream:
                    async for _ in stream.chunks():
                        pass
            return caught.value.reason

        watching = asyncio.create_task(watch())
        asking = asyncio.create_task(transport.request("GET", "/slow", timeout=HANGS))
        while len(server.seen) < 2:
            await asyncio.sleep(0.01)
        await transport.drain()
        assert asking.done()
        answered = await asking
        return answered.status, await asyncio.wait_for(watching, HANGS / 2)

    assert loop.run(main) == (200, Reason.CLOSED)


def test_cancelling_a_drain_leaves_no_connection_open(make_server: MakeServer, trusting: ssl.SSLContext) -> None:
    server = make_server(lambda _: json_answer({}, delay=HANGS))

    async def main() -> Reason:
        transport = aio.Transport(server.url, context=trusting)
        asking = asyncio.create_task(transport.request("GET", "/slow", timeout=HANGS))
        while not server.seen:
            await asyncio.sleep(0.01)
        draining = asyncio.create_task(transport.drain())
        await asyncio.sleep(0.01)
        draining.cancel()
        with pytest.raises(NoAnswer) as caught:
            await asking
        assert draining.cancelled()
        return caught.value.reason

    assert loop.run(main) is Reason.CLOSED
