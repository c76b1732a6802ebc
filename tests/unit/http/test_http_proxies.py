"""Which proxy a URL goes through: the table of Go's httpproxy, and that both transports and downloads use what they are given."""

from __future__ import annotations

import base64
import contextlib
import ssl
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import Raw, ScriptedServer, Seen, answer

from kubewright.base.errors import UsageError
from kubewright.http import aio, loop, sync
from kubewright.http.failures import NoAnswer, Reason
from kubewright.http.proxies import Proxies, Proxy

MakeServer = Callable[..., ScriptedServer]
SECURE, PLAIN = "http://secure:1", "http://plain:2"
BOTH = {"HTTPS_PROXY": "secure:1", "HTTP_PROXY": "plain:2"}

ROWS = [
    ({}, "https://a.example", None),
    (BOTH, "https://a.example", SECURE),
    (BOTH, "http://a.example", PLAIN),
    ({"https_proxy": "secure:1"}, "https://a.example", SECURE),
    ({"https_proxy": "other:1", "HTTPS_PROXY": "secure:1"}, "https://a.example", SECURE),
    ({"HTTP_PROXY": "plain:2"}, "https://a.example", None),
    ({**BOTH, "REQUEST_METHOD": "GET"}, "http://a.example", None),
    ({**BOTH, "REQUEST_METHOD": "GET"}, "https://a.example", SECURE),
    (BOTH, "https://localhost:6443", None),
    (BOTH, "https://127.0.0.1:6443", None),
    (BOTH, "https://127.99.0.1", None),
    (BOTH, "https://[::1]:6443", None),
    (BOTH, "https://[::ffff:127.0.0.1]:6443", None),
    ({**BOTH, "NO_PROXY": "*"}, "https://a.example", None),
    ({**BOTH, "NO_PROXY": "a.example"}, "https://a.example", None),
    ({**BOTH, "NO_PROXY": "a.example"}, "https://b.a.example", None),
    ({**BOTH, "NO_PROXY": "a.example"}, "https://ba.example", SECURE),
    ({**BOTH, "NO_PROXY": ".a.example"}, "https://a.example", SECURE),
    ({**BOTH, "NO_PROXY": ".a.example"}, "https://b.a.example", None),
    ({**BOTH, "NO_PROXY": "*.a.example"}, "https://b.a.example", None),
    ({**BOTH, "NO_PROXY": "*.a.example"}, "https://a.example", SECURE),
    ({**BOTH, "NO_PROXY": "A.Example"}, "https://a.example", None),
    ({**BOTH, "NO_PROXY": " x.example , a.example "}, "https://a.example", None),
    ({**BOTH, "NO_PROXY": "a.example:443"}, "https://a.example", None),
    ({**BOTH, "NO_PROXY": "a.example:6443"}, "https://a.example", SECURE),
    ({**BOTH, "NO_PROXY": "a.example:6443"}, "https://a.example:6443", None),
    ({**BOTH, "NO_PROXY": "10.0.0.0/8"}, "https://10.1.2.3:6443", None),
    ({**BOTH, "NO_PROXY": "10.0.0.0/8"}, "https://11.1.2.3:6443", SECURE),
    ({**BOTH, "NO_PROXY": "10.0.0.0/8"}, "https://ten.example:6443", SECURE),
    ({**BOTH, "NO_PROXY": "fd00::/8"}, "https://[fd00::1]:6443", None),
    ({**BOTH, "NO_PROXY": "010.0.0.0/08"}, "https://10.1.2.3:6443", None),
    ({**BOTH, "NO_PROXY": "10.0.0.0/8"}, "https://010.001.2.3:6443", None),
    ({**BOTH, "NO_PROXY": "10.0.0.0/255.0.0.0"}, "https://10.1.2.3:6443", SECURE),
    ({**BOTH, "NO_PROXY": "10.0.0.1"}, "https://010.0.0.1:6443", SECURE),
    ({**BOTH, "NO_PROXY": "10.0.0.1"}, "https://10.0.0.1:6443", None),
    ({**BOTH, "NO_PROXY": "10.0.0.1:6443"}, "https://10.0.0.1:6443", None),
    ({**BOTH, "NO_PROXY": "10.0.0.1:80"}, "https://10.0.0.1:6443", SECURE),
    ({**BOTH, "NO_PROXY": "[fd00::1]:6443"}, "https://[fd00::1]:6443", None),
    ({**BOTH, "NO_PROXY": "fd00::1"}, "https://[fd00::1]:6443", None),
    ({**BOTH, "NO_PROXY": ":6443"}, "https://a.example:6443", SECURE),
    ({**BOTH, "NO_PROXY": ",,"}, "https://a.example", SECURE),
]


@pytest.mark.parametrize(("environment", "url", "proxy"), ROWS)
def test_the_proxy_of_a_url_is_chosen_as_by_go(environment: dict[str, str], url: str, proxy: str | None) -> None:
    found = Proxies.from_environment(environment).for_url(url)
    assert (found.url if found else None) == proxy


@pytest.mark.parametrize(
    "text", ["socks5://user:canary@proxy:1", "http://user:canary@:1", "http://user:canary@proxy:x", "http://[", "ftp://x"]
)
def test_an_unusable_proxy_is_refused_without_showing_its_secret(text: str) -> None:
    found = Proxies.from_environment({"HTTPS_PROXY": text, "NO_PROXY": "10.0.0.0/8"})
    with pytest.raises(UsageError) as caught:
        found.for_url("https://a.example")
    assert "canary" not in str(caught.value)
    assert "canary" not in repr(found)


@pytest.mark.parametrize("url", ["https://10.0.0.1:6443", "https://localhost", "https://[::1]:6443", "http://a.example"])
def test_an_unusable_proxy_is_no_error_for_urls_that_do_not_need_it(url: str) -> None:
    found = Proxies.from_environment({"HTTPS_PROXY": "socks5://proxy:1", "NO_PROXY": "10.0.0.0/8"})
    assert found.for_url(url) is None


def test_credentials_stay_out_of_the_url_and_repr() -> None:
    found = Proxies.from_environment({"HTTPS_PROXY": "http://us%40er:can%3Aary@proxy"}).for_url("https://a.example")
    assert found == Proxy(url="http://proxy:80", user="us@er", password="can:ary")
    assert "can" not in repr(found)


@given(st.dictionaries(st.sampled_from(["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "no_proxy"]), st.text(max_size=30)))
def test_no_environment_raises_an_error_outside_the_tree(environment: dict[str, str]) -> None:
    with contextlib.suppress(UsageError):
        Proxies.from_environment(environment).for_url("https://10.0.0.1:6443")


def relay(seen: Seen) -> Raw:
    return answer(200, f"{seen.target} {seen.headers.get('proxy-authorization', '')}".encode())


def test_plain_requests_go_through_the_proxy(make_server: MakeServer) -> None:
    server = make_server(relay, context=None)
    proxy = Proxy(url=server.url, user="us", password="pw")
    expected = f"http://a.invalid/x Basic {base64.b64encode(b'us:pw').decode()}".encode()
    transport = sync.Transport("http://a.invalid", proxy=proxy)
    assert transport.request("GET", "/x").body == expected
    transport.close()

    async def main() -> bytes:
        asynchronous = aio.Transport("http://a.invalid", proxy=proxy)
        found = await asynchronous.request("GET", "/x")
        await asynchronous.close()
        return found.body

    assert loop.run(main) == expected


def test_tls_goes_through_a_tunnel_and_refusals_name_the_proxy(make_server: MakeServer) -> None:
    server = make_server(lambda _: answer(403, b"no"), context=None)
    proxy = Proxy(url=server.url)
    transport = sync.Transport("https://a.invalid:6443", context=ssl.create_default_context(), proxy=proxy)
    with pytest.raises(NoAnswer) as caught:
        transport.request("GET", "/x")
    assert caught.value.reason is Reason.PROXY
    transport.close()

    async def main() -> None:
        asynchronous = aio.Transport("https://a.invalid:6443", context=ssl.create_default_context(), proxy=proxy)
        try:
            await asynchronous.request("GET", "/x")
        finally:
            await asynchronous.close()

    with pytest.raises(NoAnswer) as caught:
        loop.run(main)
    assert caught.value.reason is Reason.PROXY
    assert [seen.method + " " + seen.target for seen in server.seen] == ["CONNECT a.invalid:6443"] * 2


def test_a_dead_proxy_is_reported(make_server: MakeServer) -> None:
    server = make_server(context=None)
    server.stop()
    transport = sync.Transport("http://a.invalid", proxy=Proxy(url=server.url))
    with pytest.raises(NoAnswer) as caught:
        transport.request("GET", "/x")
    assert caught.value.reason is Reason.PROXY
    transport.close()
