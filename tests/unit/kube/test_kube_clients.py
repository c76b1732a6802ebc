"""What the clients add to the core: paging, timeouts, identities, interrupted watches. Both run with a scripted server."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from scripted_server import Raw, ScriptedServer, Seen, json_answer, lines_answer

from busy import HANGS, reaches
from kubewright.base import errors
from kubewright.base.clock import FakeClock
from kubewright.base.errors import Flooded
from kubewright.http import loop
from kubewright.http.failures import NoAnswer, Reason
from kubewright.http.messages import Limits
from kubewright.kube import answers, core, resources
from kubewright.kube.answers import EventType, persist
from kubewright.kube.client import AsyncKubeClient, KubeClient
from kubewright.kube.credentials import Access, BearerToken, ClientCertificate

MakeServer = Callable[..., ScriptedServer]
CM = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "ns"}}


def access(server: ScriptedServer, ca_pem: bytes, **options: object) -> Access:
    return Access(server=server.url, ca_pem=ca_pem, **options)


def test_both_clients_send_the_same_requests(make_server: MakeServer, ca_pem: bytes) -> None:
    server = make_server(lambda _: json_answer({"kind": "Node", "items": []}))
    client = KubeClient(access(server, ca_pem, identity=BearerToken("t")), field_manager="me")
    client.get(resources.NODE, "n")
    client.list(resources.POD, "ns", label_selector="a=b")
    client.create(CM)
    client.update(CM, subresource="status")
    client.patch(resources.NODE, "n", {"a": 1}, subresource="status")
    client.delete(resources.NODE, "n", uid="u")
    client.raw("GET", "/readyz")
    client.close()

    async def main() -> None:
        other = AsyncKubeClient(access(server, ca_pem, identity=BearerToken("t")), field_manager="me")
        await other.get(resources.NODE, "n")
        await other.list(resources.POD, "ns", label_selector="a=b")
        await other.create(CM)
        await other.update(CM, subresource="status")
        await other.patch(resources.NODE, "n", {"a": 1}, subresource="status")
        await other.delete(resources.NODE, "n", uid="u")
        await other.raw("GET", "/readyz")
        await other.close()

    loop.run(main)
    assert len(server.seen) == 14
    for one, two in zip(server.seen[:7], server.seen[7:], strict=True):
        assert (one.method, one.target, one.body) == (two.method, two.target, two.body)
        for name in ("accept", "authorization", "content-type", "user-agent", "accept-encoding"):
            assert one.headers.get(name) == two.headers.get(name), name


def test_lists_are_read_page_by_page(make_server: MakeServer, ca_pem: bytes) -> None:
    def handler(seen: Seen) -> Raw:
        last = "continue=more" in seen.target
        return json_answer(
            {"kind": "PodList", "metadata": {} if last else {"continue": "more"}, "items": [{"metadata": {"name": str(last)}}]}
        )

    server = make_server(handler)
    client = KubeClient(access(server, ca_pem))
    assert [item["metadata"]["name"] for item in client.list(resources.POD)] == ["False", "True"]
    assert len(server.seen) == 2
    client.close()


def pages(count: int, *, size: int) -> Callable[[Seen], Raw]:
    """Answer with so many Pods of this size, in the pages that are requested; a list from the cache has one page."""

    def handler(seen: Seen) -> Raw:
        query = {name: values[0] for name, values in parse_qs(urlsplit(seen.target).query).items()}
        first, limit = int(query.get("continue", "0")), int(query.get("limit", count))
        items = [{"metadata": {"name": f"p{number}"}, "text": "x" * size} for number in range(first, min(first + limit, count))]
        more = {"continue": str(first + limit)} if first + limit < count else {}
        return json_answer({"kind": "PodList", "metadata": {"resourceVersion": "7", **more}, "items": items})

    return handler


LARGE = Limits(body=1000)


def limits_of(server: ScriptedServer) -> list[str]:
    return [parse_qs(urlsplit(seen.target).query).get("limit", [""])[0] for seen in server.seen]


def test_pages_that_are_too_large_are_requested_again_with_fewer_objects(make_server: MakeServer, ca_pem: bytes) -> None:
    server = make_server(pages(3, size=500))
    client = KubeClient(access(server, ca_pem), limits=LARGE)
    assert [item["metadata"]["name"] for item in client.list(resources.POD)] == ["p0", "p1", "p2"]
    assert limits_of(server) == ["500", "125", "31", "7", "1", "1", "1"]
    client.close()


def test_a_list_from_the_cache_that_is_too_large_is_read_in_pages(make_server: MakeServer, ca_pem: bytes) -> None:
    server = make_server(pages(600, size=10))

    async def main() -> tuple[list[dict], str]:
        client = AsyncKubeClient(access(server, ca_pem), limits=Limits(body=30_000))
        found = await client.list_versioned(resources.POD, resource_version="0")
        await client.close()
        return found

    found, version = loop.run(main)
    assert ([item["metadata"]["name"] for item in found], version) == ([f"p{number}" for number in range(600)], "7")
    assert limits_of(server) == ["", "500", "500"]


@pytest.mark.parametrize(
    "tokens", [itertools.repeat("same"), map(str, itertools.count())], ids=["one page again and again", "new pages for ever"]
)
def test_a_list_without_end_is_given_up(
    make_server: MakeServer, ca_pem: bytes, monkeypatch: pytest.MonkeyPatch, tokens: Iterator[str]
) -> None:
    monkeypatch.setattr(core, "MOST_PAGES", 20)
    server = make_server(lambda _: json_answer({"kind": "PodList", "metadata": {"continue": next(tokens)}, "items": []}))
    client = KubeClient(access(server, ca_pem))
    with pytest.raises(NoAnswer, match="pages without end"):
        client.list(resources.POD)
    assert len(server.seen) <= 20
    client.close()


def test_a_list_of_more_than_the_caller_keeps_is_given_up_page_by_page(make_server: MakeServer, ca_pem: bytes) -> None:
    server = make_server(pages(5000, size=1000))

    async def main() -> None:
        client = AsyncKubeClient(access(server, ca_pem), limits=Limits(body=2_000_000))
        try:
            await client.list_versioned(resources.POD, most=3_000_000)
        finally:
            await client.close()

    with pytest.raises(Flooded, match="more than 3000000 bytes"):
        loop.run(main)
    assert len(server.seen) == 3


def test_a_list_of_empty_objects_is_not_a_list() -> None:
    # a few bytes of text each, but hundreds in memory
    with pytest.raises(NoAnswer, match="not a list of objects"):
        answers.page(core.list_page(resources.POD), {"kind": "PodList", "items": [{}] * 10}, server="https://a")


def test_an_object_that_is_too_large_to_be_read_ends_a_list(make_server: MakeServer, ca_pem: bytes) -> None:
    server = make_server(pages(2, size=2000))
    client = KubeClient(access(server, ca_pem), limits=LARGE)
    with pytest.raises(NoAnswer) as caught:
        client.list(resources.POD)
    assert (caught.value.reason, limits_of(server)[-1]) == (Reason.TOO_LARGE, "1")
    client.close()


def test_an_expired_page_raises_gone(make_server: MakeServer, ca_pem: bytes) -> None:
    server = make_server(lambda _: json_answer({"kind": "Status", "reason": "Expired", "code": 410}, 410))
    client = KubeClient(access(server, ca_pem))
    with pytest.raises(errors.Gone):
        client.list(resources.POD)
    client.close()


def test_a_slow_server_times_out(make_server: MakeServer, ca_pem: bytes) -> None:
    server = make_server(lambda _: json_answer({}, delay=HANGS))
    client = KubeClient(access(server, ca_pem), timeout=0.2)
    with pytest.raises(NoAnswer) as caught:
        client.get(resources.NODE, "n")
    assert caught.value.reason is Reason.TIMED_OUT
    client.close()


def test_another_identity_gets_another_connection(
    make_server: MakeServer, ca_pem: bytes, client_pair: tuple[bytes, bytes], other_client_pair: tuple[bytes, bytes]
) -> None:
    server = make_server(lambda _: json_answer({}))
    one, two = (
        ClientCertificate(cert_pem=client_pair[0], key_pem=client_pair[1]),
        ClientCertificate(cert_pem=other_client_pair[0], key_pem=other_client_pair[1]),
    )
    client = KubeClient(access(server, ca_pem, identity=BearerToken("bootstrap")))
    for identity in (None, one, two, one):
        if identity is not None:
            client.set_identity(identity)
        client.get(resources.NODE, "n")
        client.get(resources.NODE, "n")
    client.close()

    async def main() -> None:
        other = AsyncKubeClient(access(server, ca_pem, identity=BearerToken("bootstrap")))
        for identity in (None, one, two, one):
            if identity is not None:
                await other.set_identity(identity)
            await other.get(resources.NODE, "n")
            await other.get(resources.NODE, "n")
        await other.close()

    loop.run(main)
    expected = [None, None, *["system:node:n1"] * 2, *["system:node:n2"] * 2, *["system:node:n1"] * 2]
    assert [seen.common_name for seen in server.seen] == expected * 2
    assert [seen.headers.get("authorization") for seen in server.seen[:4]] == ["Bearer bootstrap"] * 2 + [None] * 2
    assert server.connections == 8


def test_a_call_in_flight_survives_a_new_identity(make_server: MakeServer, ca_pem: bytes, client_pair: tuple[bytes, bytes]) -> None:
    server = make_server(lambda _: json_answer({"metadata": {"name": "n"}}, delay=0.3))
    identity = ClientCertificate(cert_pem=client_pair[0], key_pem=client_pair[1])

    async def main() -> str:
        client = AsyncKubeClient(access(server, ca_pem))
        asking = asyncio.create_task(client.get(resources.NODE, "n"))
        await asyncio.sleep(0.1)
        await client.set_identity(identity)
        assert asking.done()
        found = await asking
        await client.close()
        return found["metadata"]["name"]

    assert loop.run(main) == "n"


WATCHES = {
    "disconnected in an event": (lines_answer({"type": "ADDED", "object": {}}, b'{"type":"AD', close=True), 1, Reason.TRUNCATED),
    "disconnected between events": (lines_answer({"type": "ADDED", "object": {}}, close=True, ending=False), 1, Reason.TRUNCATED),
    "refused": (json_answer({"kind": "Status", "code": 403, "reason": "Forbidden"}, 403), 0, errors.Forbidden),
    "html": (Raw((b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n<html>\n\n",)), 0, Reason.MALFORMED),
    "too old at once": (json_answer({"kind": "Status", "code": 410, "reason": "Expired"}, 410), 0, errors.Gone),
    "silent": (json_answer({}, delay=HANGS), 0, Reason.TIMED_OUT),
}


@pytest.mark.parametrize("case", WATCHES)
def test_a_watch_ends_with_a_reason(make_server: MakeServer, ca_pem: bytes, case: str) -> None:
    raw, count, expected = WATCHES[case]
    server = make_server(lambda _: raw)

    async def main() -> tuple[int, errors.APIError]:
        client = AsyncKubeClient(access(server, ca_pem), timeout=0.3 if case == "silent" else HANGS)
        found = 0
        try:
            async for event in client.watch(resources.NODE):
                assert event.type is EventType.ADDED
                found += 1
        except errors.APIError as error:
            return found, error
        finally:
            await client.close()
        raise AssertionError

    found, error = loop.run(main)
    assert found == count
    assert error.reason is expected if isinstance(expected, Reason) else type(error) is expected


async def watched(client: AsyncKubeClient) -> None:
    async with asyncio.timeout(HANGS):
        try:
            async for _ in client.watch(resources.NODE):
                pass
        finally:
            await client.close()


def test_a_refusal_of_a_watch_is_read_within_a_deadline(make_server: MakeServer, ca_pem: bytes) -> None:
    head = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 1000\r\n\r\n"
    server = make_server(lambda _: Raw((head, *[b" "] * 900), pause=0.2))
    with pytest.raises(NoAnswer) as caught:
        loop.run(lambda: watched(AsyncKubeClient(access(server, ca_pem), timeout=0.3)))
    assert caught.value.reason is Reason.TIMED_OUT


def test_a_refusal_of_a_watch_is_not_read_beyond_the_largest_body(make_server: MakeServer, ca_pem: bytes) -> None:
    head = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 1000000\r\n\r\n"
    server = make_server(lambda _: Raw((head, *[b" " * 1000] * 1000)))
    with pytest.raises(NoAnswer) as caught:
        loop.run(lambda: watched(AsyncKubeClient(access(server, ca_pem), timeout=HANGS, limits=Limits(body=5000))))
    assert caught.value.reason is Reason.TOO_LARGE


def test_a_watch_that_is_silent_beyond_its_timeout_ends(make_server: MakeServer, ca_pem: bytes) -> None:
    server = make_server(lambda _: lines_answer({"type": "ADDED", "object": {}}, {"type": "ADDED", "object": {}}, ending=False))

    async def watch(timeout: float) -> int:
        client, found = AsyncKubeClient(access(server, ca_pem), timeout=timeout), 0
        async with asyncio.timeout(HANGS):
            with pytest.raises(NoAnswer, match="timed out"):
                async for _ in client.watch(resources.NODE, seconds=1):
                    found += 1
        await client.close()
        return found

    reaches(lambda timeout: loop.run(lambda: watch(timeout)) == 2)


def test_a_watch_that_the_server_ends_is_no_error(make_server: MakeServer, ca_pem: bytes) -> None:
    server = make_server(lambda _: lines_answer({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}))

    async def main() -> list[str]:
        client = AsyncKubeClient(access(server, ca_pem))
        found = [event.resource_version async for event in client.watch(resources.NODE)]
        await client.close()
        return found

    assert loop.run(main) == ["9"]


def test_credentials_are_not_sent_unencrypted(make_server: MakeServer) -> None:
    server = make_server(lambda _: json_answer({"metadata": {"name": "n"}}), context=None)
    assert KubeClient(Access(server=server.url)).get(resources.NODE, "n")["metadata"]["name"] == "n"
    with pytest.raises(errors.UsageError):
        KubeClient(Access(server=server.url, identity=BearerToken("canary"))).get(resources.NODE, "n")
    assert len(server.seen) == 1


def test_a_server_without_a_ca_is_not_trusted(make_server: MakeServer) -> None:
    server = make_server()
    with pytest.raises(errors.CertificateError):
        KubeClient(Access(server=server.url)).get(resources.NODE, "n")


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:6443", "ftp://x", "https://user:canary@x", "https://x?y=canary", "https://[", "https://x:99999"]
)
def test_a_server_address_is_checked(url: str) -> None:
    with pytest.raises(errors.UsageError) as caught:
        KubeClient(Access(server=url))
    assert "canary" not in str(caught.value)


def test_the_name_in_the_certificate_may_be_another(make_server: MakeServer, ca_pem: bytes) -> None:
    server = make_server(lambda _: json_answer({}))
    client = KubeClient(access(server, ca_pem, tls_server_name="localhost"))
    client.get(resources.NODE, "n")
    client.set_identity(BearerToken("t"))
    wrong = KubeClient(access(server, ca_pem, tls_server_name="other.example"))
    with pytest.raises(NoAnswer) as caught:
        wrong.get(resources.NODE, "n")
    assert caught.value.reason is Reason.UNTRUSTED

    async def main() -> None:
        other = AsyncKubeClient(access(server, ca_pem, tls_server_name="localhost"))
        await other.get(resources.NODE, "n")
        await other.close()

    loop.run(main)
    client.close()
    assert len(server.seen) == 2


def test_calls_are_retried_by_the_injected_clock() -> None:
    clock = FakeClock()
    calls = []

    def call() -> str:
        calls.append(clock.monotonic())
        if len(calls) < 8:
            raise errors.ServerError("starting", code=503)
        return "done"

    assert persist(call, clock=clock) == "done"
    assert len(calls) == 8
    with pytest.raises(errors.NotFound):
        persist(lambda: (_ for _ in ()).throw(errors.NotFound("x", code=404)), clock=clock, within=5)
    assert clock.monotonic() == pytest.approx(calls[-1] + 5)


def test_contexts_are_created_only_when_needed(ca_pem: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ssl.SSLContext] = []
    monkeypatch.setattr(Access, "context", lambda self: made.append(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)) or made[-1])
    client = KubeClient(Access(server="https://127.0.0.1:1", ca_pem=ca_pem))
    assert made == []
    for _ in range(3):
        with pytest.raises(NoAnswer):
            client.get(resources.NODE, "n")
    assert len(made) == 1
