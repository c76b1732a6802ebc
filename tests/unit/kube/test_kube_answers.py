"""Reading answers: every status, every shape, watch lines in any pieces; nothing outside the error tree."""

from __future__ import annotations

import contextlib
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base import errors
from kubewright.http.failures import NoAnswer, Reason
from kubewright.http.messages import Response
from kubewright.kube import answers, core, resources
from kubewright.kube.answers import EventType, WatchDecoder

SERVER = "https://127.0.0.1:6443"
CALL = core.get(resources.CONFIG_MAP, "kubeadm-config", "kube-system")
LIST = core.list_page(resources.NODE)


def status(code: int, reason: str = "", message: str = "", **details: object) -> bytes:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "details": details}
    return json.dumps({**body, **({"reason": reason} if reason else {})}).encode()


STATUSES = [
    (401, status(401, "Unauthorized"), errors.Unauthorized, ""),
    (403, status(403, "Forbidden", "nodes is forbidden"), errors.Forbidden, "nodes is forbidden"),
    (404, status(404, "NotFound", "not found"), errors.NotFound, "not found"),
    (404, b"404 page not found\n", errors.NotFound, "404 page not found"),
    (409, status(409, "AlreadyExists", "exists"), errors.AlreadyExists, "exists"),
    (409, status(409, "Conflict", "modified"), errors.Conflict, "modified"),
    (409, b"", errors.Conflict, "409"),
    (410, status(410, "Expired", "too old"), errors.Gone, "too old"),
    (410, status(410, "Gone"), errors.Gone, ""),
    (422, status(422, "Invalid", "bad"), errors.Invalid, "bad"),
    (429, status(429, "TooManyRequests"), errors.TooManyRequests, ""),
    (429, b"Too many requests, please try again later.\n", errors.TooManyRequests, "Too many"),
    (
        500,
        b"<html><head><title>x</title><style>p{}</style></head><body><h1>Oops</h1> broken</body></html>",
        errors.ServerError,
        "x Oops broken",
    ),
    (503, status(503, "ServiceUnavailable", "etcd"), errors.ServerError, "etcd"),
    (504, status(504, "Timeout"), errors.ServerError, ""),
    (500, b"\x00\xff\xfe{", errors.ServerError, ""),
    (400, status(400, "BadRequest", "no"), errors.StatusError, "no"),
    (418, b"[1,2]", errors.StatusError, "[1,2]"),
]


@pytest.mark.parametrize(("code", "body", "kind", "text"), STATUSES)
def test_a_refusal_raises_its_error_class(code: int, body: bytes, kind: type, text: str) -> None:
    with pytest.raises(errors.StatusError) as caught:
        answers.read_object(CALL, Response(status=code, body=body), server=SERVER)
    assert type(caught.value) is kind
    assert caught.value.code == code
    assert "configmap kube-system/kubeadm-config" in caught.value.what
    assert text in caught.value.detail
    assert caught.value.detail.isprintable()


@pytest.mark.parametrize(
    ("headers", "details", "seconds"),
    [
        ({"retry-after": "7"}, {}, 7.0),
        ({}, {"retryAfterSeconds": 3}, 3.0),
        ({"retry-after": "soon"}, {"retryAfterSeconds": 3}, 3.0),
        ({"retry-after": "99999999999"}, {}, None),
        ({}, {"retryAfterSeconds": True}, None),
        ({}, {}, None),
    ],
)
def test_the_time_to_wait_is_read(headers: dict, details: dict, seconds: float | None) -> None:
    with pytest.raises(errors.TooManyRequests) as caught:
        answers.check(CALL, Response(status=429, headers=headers, body=status(429, "TooManyRequests", "", **details)), server=SERVER)
    assert caught.value.retry_after == seconds


def test_a_secret_in_a_refusal_is_masked() -> None:
    message = 'Secret "x" is invalid: data[token]: Invalid value: "abcdef.0123456789abcdef"'
    with pytest.raises(errors.Invalid) as caught:
        answers.check(CALL, Response(status=422, body=status(422, "Invalid", message)), server=SERVER)
    assert "0123456789abcdef" not in str(caught.value)
    assert "abcdef." in str(caught.value)


@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_a_redirect_is_refused(code: int) -> None:
    with pytest.raises(NoAnswer) as caught:
        answers.read_object(CALL, Response(status=code, headers={"location": "https://elsewhere.example/"}), server=SERVER)
    assert caught.value.reason is Reason.REDIRECTED
    assert "elsewhere.example" in caught.value.detail


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[1]", b'"x"', b"{", b'{"metadata": 7}', b"\xff", b'{"a":' * 100_000], ids=lambda body: repr(body[:12])
)
def test_a_response_that_is_no_object_is_an_error(body: bytes) -> None:
    with pytest.raises(NoAnswer) as caught:
        answers.read_object(CALL, Response(status=200, body=body), server=SERVER)
    assert caught.value.reason is Reason.MALFORMED


def test_list_items_get_their_kind_back() -> None:
    page = {
        "kind": "NodeList",
        "apiVersion": "v1",
        "metadata": {"continue": "t", "resourceVersion": "9"},
        "items": [{"metadata": {"name": "a"}}],
    }
    found = answers.page(LIST, page, server=SERVER)
    assert found == {**page, "items": [{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "a"}}]}
    assert answers.page(LIST, {"items": None}, server=SERVER) == {"items": [], "metadata": {}}
    for nonsense in ({"items": 3}, {"items": [3]}, {"items": [], "metadata": [1]}):
        with pytest.raises(NoAnswer):
            answers.page(LIST, nonsense, server=SERVER)


def line(kind: str, **metadata: str) -> bytes:
    return json.dumps({"type": kind, "object": {"kind": "Node", "metadata": metadata}}).encode() + b"\n"


STREAM = (
    line("ADDED", name="a", resourceVersion="1")
    + b"\n"
    + line("BOOKMARK", resourceVersion="2")
    + line("DELETED", name="ä", resourceVersion="3")
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_a_watch_may_arrive_in_any_pieces(cuts: list[int]) -> None:
    decoder = WatchDecoder(CALL, server=SERVER)
    places = [0, *sorted(cuts), len(STREAM)]
    found = [event for start, end in itertools.pairwise(places) for event in decoder.feed(STREAM[start:end])]
    decoder.end()
    assert [(event.type, event.resource_version) for event in found] == [
        (EventType.ADDED, "1"),
        (EventType.BOOKMARK, "2"),
        (EventType.DELETED, "3"),
    ]


def test_an_error_event_raises_its_error_class() -> None:
    decoder = WatchDecoder(CALL, server=SERVER)
    text = line("ADDED", name="a") + b'{"type":"ERROR","object":' + status(410, "Expired", "too old resource version: 1 (5)") + b"}\n"
    feed = decoder.feed(text)
    assert next(feed).object["metadata"]["name"] == "a"
    with pytest.raises(errors.Gone) as caught:
        next(feed)
    assert "too old" in str(caught.value)


def test_a_watch_cut_in_an_event_is_truncated() -> None:
    decoder = WatchDecoder(CALL, server=SERVER)
    assert len(list(decoder.feed(line("ADDED", name="a") + b'{"type":"ADD'))) == 1
    with pytest.raises(NoAnswer) as caught:
        decoder.end()
    assert caught.value.reason is Reason.TRUNCATED


def test_a_watch_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "LINE_LIMIT", 1000)
    decoder = WatchDecoder(CALL, server=SERVER)
    with pytest.raises(NoAnswer) as caught:
        for _ in range(3):
            list(decoder.feed(b"x" * 500))
    assert caught.value.reason is Reason.TOO_LARGE


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "object", "metadata", "code", "reason", "kind", "items", "details", "message", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(st.binary(max_size=60) | JSON_LIKE.map(lambda value: json.dumps(value).encode()), st.integers(100, 599))
def test_no_response_raises_an_error_outside_the_tree(body: bytes, code: int) -> None:
    with contextlib.suppress(errors.APIError):
        answers.read_object(CALL, Response(status=code, body=body), server=SERVER)
    with contextlib.suppress(errors.APIError):
        answers.read_object(LIST, Response(status=code, body=body), server=SERVER)


@given(st.binary(max_size=60) | JSON_LIKE.map(lambda value: json.dumps(value).encode() + b"\n"))
def test_no_watch_line_raises_an_error_outside_the_tree(body: bytes) -> None:
    decoder = WatchDecoder(CALL, server=SERVER)
    with contextlib.suppress(errors.APIError):
        for event in decoder.feed(body):
            assert isinstance(event.resource_version, str)
        decoder.end()
