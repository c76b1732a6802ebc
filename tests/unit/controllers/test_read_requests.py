"""Reading requests: large texts are cheap, and the cache is bounded in bytes."""

from __future__ import annotations

import base64

import pytest
from controllers_kit import csr, request

from kubewright.controllers import requests
from kubewright.controllers.requests import ReadRequests
from kubewright.pki.requests.request_details import LARGEST, RefusedRequest


def test_the_cache_is_bounded_in_bytes_and_keeps_the_latest():
    texts = [request(subject=[("2.5.4.3", f"user-{number:02d}")]) for number in range(10)]
    kept = ReadRequests(most=4 * max(map(len, texts)))
    found = [kept.details(text) for text in texts]
    assert [one.common_name for one in found] == [f"user-{number:02d}" for number in range(10)]
    assert kept.details(texts[6]) is found[6]  # and therefore the newest of all
    assert kept.details(texts[0]) is not found[0]
    assert [kept.details(texts[number]) is found[number] for number in (6, 9, 8)] == [True] * 3
    assert kept.details(texts[7]) is not found[7]


def test_a_large_text_is_refused_before_it_is_processed():
    text = request() + b" " * 1_400_000
    found = requests.read(csr(text))
    assert LARGEST < len(found.request) < LARGEST + 10
    with pytest.raises(RefusedRequest, match="larger than 65536 bytes"):
        found.details()
    largest = requests.read(csr((request() + b" " * LARGEST)[:LARGEST]))
    assert largest.details().common_name == "system:node:a"


@pytest.mark.parametrize("damage", [lambda text: f"{text}=", lambda text: text.rstrip("=") + "===", lambda text: f" {text}"])
def test_base64_that_go_refuses_is_refused(damage):
    body = csr(request() + b"\n")
    body["spec"]["request"] = damage(base64.b64encode(request() + b"\n\n").decode())
    assert requests.read(body).request == b""
