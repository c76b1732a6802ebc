"""Downloads: ranges, redirects within bounds, stalls, sizes."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator

import pytest
from scripted_server import Raw, ScriptedServer, Seen, answer

from busy import HANGS, reaches
from kubewright.http import tls
from kubewright.http.failures import NoAnswer, Reason
from kubewright.http.proxies import Proxies
from kubewright.http.sync import Downloads

MakeServer = Callable[..., ScriptedServer]
CONTENT = bytes(range(256)) * 1000


@pytest.fixture
def downloads(ca_pem: bytes) -> Iterator[Downloads]:
    made = Downloads(tls.client_context(ca_pem), stall=HANGS)
    yield made
    made.close()


def file(seen: Seen) -> Raw:
    start = int(seen.headers.get("range", "bytes=0-")[6:-1])
    return answer(206 if start else 200, CONTENT[start:], headers={"Content-Range": f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}"})


def test_a_download_can_start_at_any_offset(make_server: MakeServer, downloads: Downloads) -> None:
    server = make_server(file)
    with downloads.get(f"{server.url}/file") as stream:
        assert (stream.status, b"".join(stream.chunks())) == (200, CONTENT)
    with downloads.get(f"{server.url}/file", start=100_000) as stream:
        assert (stream.status, stream.read()) == (206, CONTENT[100_000:])
    assert server.connections == 1
    assert [seen.headers.get("range") for seen in server.seen] == [None, "bytes=100000-"]


def hops(count: int, base: str = "") -> Callable[[Seen], Raw]:
    def handler(seen: Seen) -> Raw:
        number = int(seen.target.rpartition("/")[2])
        return answer(302, headers={"Location": f"{base}/{number + 1}"}) if number < count else answer(200, b"there")

    return handler


def test_redirects_are_followed_within_bounds(make_server: MakeServer, downloads: Downloads) -> None:
    server = make_server(hops(5))
    with downloads.get(f"{server.url}/0") as stream:
        assert stream.read() == b"there"
        assert stream.url == f"{server.url}/5"
    assert len(server.seen) == 6
    server.handler = hops(6)
    with pytest.raises(NoAnswer) as caught, downloads.get(f"{server.url}/0"):
        pass
    assert caught.value.reason is Reason.REDIRECTED
    with pytest.raises(NoAnswer), downloads.get(f"{server.url}/0", redirects=0):
        pass


def test_a_redirect_never_leaves_tls(make_server: MakeServer, downloads: Downloads) -> None:
    plain = make_server(file, context=None)
    for place in (f"{plain.url}/file", "file:///etc/passwd", "ftp://x/y"):
        server = make_server(lambda _, place=place: answer(301, headers={"Location": place}))
        with pytest.raises(NoAnswer) as caught, downloads.get(f"{server.url}/0"):
            pass
        assert caught.value.reason is Reason.REDIRECTED
    assert plain.seen == []


def test_every_status_code_is_an_answer(make_server: MakeServer, downloads: Downloads) -> None:
    server = make_server(lambda _: answer(404, b"nothing here"))
    with downloads.get(f"{server.url}/file") as stream:
        assert (stream.status, stream.read()) == (404, b"nothing here")


HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n"


@pytest.mark.parametrize(
    ("raw", "options", "reason"),
    [
        (Raw((HEAD + b"x" * 500,), close=True), {}, Reason.TRUNCATED),
        (answer(200, CONTENT), {"most": 1000}, Reason.TOO_LARGE),
    ],
)
def test_a_failed_download_has_a_reason(make_server: MakeServer, downloads: Downloads, raw: Raw, options: dict, reason: Reason) -> None:
    server = make_server(lambda _: raw)
    with downloads.get(f"{server.url}/file", **options) as stream, pytest.raises(NoAnswer) as caught:
        stream.read()
    assert caught.value.reason is reason


def test_a_stalled_download_ends(make_server: MakeServer, ca_pem: bytes) -> None:
    server = make_server(lambda _: Raw((HEAD + b"x" * 500, b"x"), pause=HANGS))

    def stalls(stall: float) -> bool:
        downloads, found = Downloads(tls.client_context(ca_pem), stall=stall), b""
        with pytest.raises(NoAnswer) as caught, downloads.get(f"{server.url}/file") as stream:
            for chunk in stream.chunks():
                found += chunk
        assert caught.value.reason is Reason.TIMED_OUT
        downloads.close()
        return found == b"x" * 500

    reaches(stalls)


def test_data_received_before_a_failure_is_returned(make_server: MakeServer, downloads: Downloads) -> None:
    server = make_server(lambda _: Raw((HEAD + b"x" * 500,), close=True))
    found = b""
    with downloads.get(f"{server.url}/file") as stream, pytest.raises(NoAnswer):
        for chunk in stream.chunks():
            found += chunk
    assert found == b"x" * 500


def test_a_download_goes_through_the_proxy(make_server: MakeServer, ca_pem: bytes) -> None:
    server = make_server(lambda seen: answer(200, seen.target.encode()), context=None)
    through = Downloads(tls.client_context(ca_pem), proxies=Proxies.from_environment({"HTTP_PROXY": server.url}))
    with through.get("http://files.invalid/a") as stream:
        assert stream.read() == b"http://files.invalid/a"
    through.close()


def test_the_trust_of_the_system_is_not_that_of_the_cluster(make_server: MakeServer, server_tls: ssl.SSLContext) -> None:
    server = make_server(file, context=server_tls)
    downloads = Downloads(tls.host_context())
    with pytest.raises(NoAnswer) as caught, downloads.get(f"{server.url}/file"):
        pass
    assert caught.value.reason is Reason.UNTRUSTED
    downloads.close()
