"""Requests that anyone with a token may send, kind by kind, and their outcomes.

Three of them crash oneinfra's hub, and others get certificates from it.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hub_kit import CLOCK, cluster
from old_peer import OldHub, OldNode, lock, oaep, to_text

from kubewright.base.records import replace
from kubewright.enrollment.protocol import decisions, requests
from kubewright.enrollment.protocol.decisions import Issue, Refuse
from kubewright.enrollment.protocol.fields import MalformedField
from kubewright.enrollment.protocol.requests import JoinRequest
from kubewright.pki import keys

HUB = OldHub()
PUBLIC = HUB.key.public_key()
KEY = b"000102030405060708090a0b0c0d0e0f"
ENDPOINT = "https://10.0.0.1:6443"
GOOD: dict[str, Any] = OldNode("worker", ENDPOINT, ("10.0.0.5",), key=KEY).request(HUB.public_pem)["spec"]
SEALED = GOOD["symmetricKey"]
POLICY = cluster(names=("*.example.com",)).policy(foreign={"10.0.0.7": "other"})


def to_hub(content: bytes, how: padding.AsymmetricPadding | None = None) -> str:
    return to_text(PUBLIC.encrypt(content, how or oaep()))


def with_key(value: object) -> dict[str, Any]:
    return {**GOOD, "symmetricKey": value}


def made_with(key: bytes) -> dict[str, Any]:
    return OldNode("worker", ENDPOINT, key=key).request(HUB.public_pem)["spec"]


def to(endpoint: str) -> dict[str, Any]:
    return {**GOOD, "apiServerEndpoint": lock(endpoint, KEY)}


def raw(content: bytes) -> str:
    return to_text(b"n" * 12 + AESGCM(KEY).encrypt(b"n" * 12, content, None))


def for_names(*sans: str) -> dict[str, Any]:
    return {**GOOD, "extraSANs": [lock(san, KEY) for san in sans]}


LABELLED = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), b"label")
MALFORMED = {
    "no key": {name: value for name, value in GOOD.items() if name != "symmetricKey"},
    "an empty key": with_key(""),
    "a key of 4 characters": with_key("AAAA"),
    "one character less": with_key(SEALED[:-1]),
    "one character more": with_key(SEALED + "A"),
    "a padded key": with_key(SEALED + "=="),
    "a key on two lines": with_key(f"{SEALED[:171]}\n{SEALED[171:-1]}"),
    "a key that ends in a line break": with_key(f"{SEALED}\n"),
    "the alphabet of URLs": with_key("-_" * 171),
    "letters that are none of ASCII": with_key("é" * 342),
    "noise": with_key(to_text(os.urandom(256))),
    "MGF1 with SHA-1": with_key(to_hub(KEY, oaep(mgf=hashes.SHA1))),
    "SHA-1 throughout": with_key(to_hub(KEY, oaep(digest=hashes.SHA1, mgf=hashes.SHA1))),
    "PKCS #1 v1.5": with_key(to_hub(KEY, padding.PKCS1v15())),
    "OAEP with a label": with_key(to_hub(KEY, LABELLED)),
    "another cluster's": OldNode("worker", ENDPOINT, key=KEY).request(OldHub().public_pem)["spec"],
    "a key of no bytes": with_key(to_hub(b"")),
    "a key of 15 bytes": with_key(to_hub(KEY[:15])),
    "a key of 33 bytes": with_key(to_hub(KEY + b"\n")),
    "a key of 190 bytes": with_key(to_hub(b"k" * 190)),
    "fields of another key": with_key(to_hub(KEY[::-1])),
    **{f"an endpoint of {size} bytes": {**GOOD, "apiServerEndpoint": to_text(b"x" * size)} for size in (1, 11, 12, 27, 28)},
    "a padded endpoint": {**GOOD, "apiServerEndpoint": lock(ENDPOINT, KEY) + "="},
    "an endpoint in clear": {**GOOD, "apiServerEndpoint": ENDPOINT},
    "an endpoint that is no text": {**GOOD, "apiServerEndpoint": raw(b"\xff\xfe")},
    "an endpoint that is too long": to("https://" + "a" * 5000),
    "a SAN without text": {**GOOD, "extraSANs": [""]},
    "a SAN of 11 bytes": {**GOOD, "extraSANs": [to_text(b"x" * 11)]},
    "a SAN that is null": {**GOOD, "extraSANs": [None]},
    "17 SANs": for_names(*(f"10.1.0.{number}" for number in range(17))),
    "2,000 SANs": {**GOOD, "extraSANs": GOOD["extraSANs"] * 2000},
    "a SAN of 5,000 letters": for_names("a" * 5000),
}
REFUSED = {
    "an endpoint with NUL": (to(f"{ENDPOINT}\0"), "EndpointNotAllowed"),
    "an endpoint with a line break": (to(f"{ENDPOINT}\nx: y"), "EndpointNotAllowed"),
    "an endpoint without TLS": (to("http://10.0.0.1"), "EndpointNotAllowed"),
    "an endpoint that is a word": (to("x"), "EndpointNotAllowed"),
    "an endpoint with a user": (to("https://me@10.0.0.1"), "EndpointNotAllowed"),
    "an endpoint with a path": (to(f"{ENDPOINT}/x"), "EndpointNotAllowed"),
    "an empty SAN": (for_names(""), "SanNotAllowed"),
    "a wildcard": (for_names("*.example.com"), "SanNotAllowed"),
    "capitals": (for_names("Node.example.com"), "SanNotAllowed"),
    "a name that is none of ASCII": (for_names("knöten.example.com"), "SanNotAllowed"),
    "a name with NUL": (for_names("a.example.com\0"), "SanNotAllowed"),
    "254 letters": (for_names("a" * 250 + ".com"), "SanNotAllowed"),
    "a name that is not allowed": (for_names("node.example.org"), "SanNotAllowed"),
    "the API server": (for_names("10.0.0.1"), "SanNotAllowed"),
    "another node's address": (for_names("10.0.0.7"), "SanNotAllowed"),
    "another node's, in IPv6": (for_names("::ffff:10.0.0.7"), "SanNotAllowed"),
    "a Service": (for_names("10.96.0.1"), "SanNotAllowed"),
    "a name of the cluster": (for_names("kubernetes.default.svc"), "SanNotAllowed"),
    "another loopback address": (for_names("127.0.0.2"), "SanNotAllowed"),
    "link-local": (for_names("169.254.169.254"), "SanNotAllowed"),
    "a name twice": (for_names("a.example.com", "a.example.com"), "SanNotAllowed"),
}
LET_IN = {
    "what stock nodes send": GOOD,
    "no endpoint": {name: value for name, value in GOOD.items() if name != "apiServerEndpoint"},
    "no SANs": {name: value for name, value in GOOD.items() if name != "extraSANs"},
    "loopback names": for_names("localhost", "127.0.0.1", "::1"),
    "its own name": for_names("worker"),
    "a key of 16 bytes": made_with(KEY[:16]),
    "a key of 24 bytes": made_with(KEY[:24]),
    "a key of any 32 bytes": made_with(bytes(range(224, 256))),
    "16 SANs": for_names(*(f"10.1.0.{number}" for number in range(16))),
    "noise where only the node reads": {**GOOD, "containerRuntimeEndpoint": "x", "imageServiceEndpoint": "y" * 4000},
}


def outcome(spec: dict[str, Any]) -> decisions.Outcome:
    request = {"metadata": {"name": "worker", "uid": "u"}, "spec": spec}
    seen = decisions.look(request)
    assert decisions.decide(seen, None, POLICY, CLOCK.now()) == decisions.Open()
    try:
        contents: JoinRequest | MalformedField = requests.read(request, join_key=keys.load(HUB.private_pem, source="the join key"))
    except MalformedField as error:
        contents = error
    return decisions.decide(replace(seen, contents=contents), None, POLICY, CLOCK.now())


@pytest.mark.parametrize("spec", MALFORMED.values(), ids=list(MALFORMED))
def test_malformed_requests_are_refused(spec):
    found = outcome(spec)
    assert isinstance(found, Refuse)
    assert (found.reason, found.message.isprintable(), len(found.message) < 200) == ("Malformed", True, True)


@pytest.mark.parametrize(("spec", "reason"), REFUSED.values(), ids=list(REFUSED))
def test_forbidden_requests_are_refused(spec, reason):
    found = outcome(spec)
    assert isinstance(found, Refuse)
    assert (found.reason, found.message.isprintable()) == (reason, True)


@pytest.mark.parametrize("spec", LET_IN.values(), ids=list(LET_IN))
def test_valid_requests_are_admitted(spec):
    assert isinstance(outcome(spec), Issue)
