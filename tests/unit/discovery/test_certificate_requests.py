"""Waiting for a certificate: approval is not enough, refusals end it, gaps in the watch do not, and it must be for our key."""

from __future__ import annotations

import asyncio
import base64

import pytest

from kubewright.base import errors
from kubewright.discovery import csr
from kubewright.http.failures import NoAnswer, Reason
from kubewright.kube.answers import EventType, WatchEvent
from kubewright.pki import keys
from kubewright.pki.keys import Algorithm

KEY, OTHER_KEY = keys.generate(Algorithm.ECDSA_P256), keys.generate(Algorithm.ECDSA_P256)
WANTED = csr.node_client("n1", KEY)
NEVER = NoAnswer("lost", reason=Reason.RESET)


def certificate_for(key) -> bytes:
    """Create a self-signed certificate; only its key matters here."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding

    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "system:node:n1")])
    start = datetime(2026, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(name, name, key.native.public_key(), 1, start, start + timedelta(days=1))
    return builder.sign(key.native, hashes.SHA256()).public_bytes(Encoding.PEM)


CERTIFICATE = certificate_for(KEY)


def request(*conditions: str, content: bytes | None = None, uid: str = "u1", version: str = "5") -> dict:
    status: dict = {"conditions": [{"type": kind, "status": "True", "reason": "Why", "message": "because"} for kind in conditions]}
    if content is not None:
        status["certificate"] = base64.b64encode(content).decode()
    return {"metadata": {"name": "csr-x", "uid": uid, "resourceVersion": version}, "status": status}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (request(), None),
        ({"metadata": {"name": "csr-x", "uid": "u1"}}, None),
        (request("Approved"), None),
        (request(content=CERTIFICATE), None),
        (request("Approved", content=CERTIFICATE), CERTIFICATE),
        (request("Denied"), errors.CertificateError),
        (request("Approved", "Failed"), errors.CertificateError),
        (request("Denied", "Approved", content=CERTIFICATE), errors.CertificateError),
        (request("Approved", content=CERTIFICATE, uid="u2"), errors.CertificateError),
        ({**request("Approved"), "status": {"conditions": [{"type": "Approved"}], "certificate": "?"}}, errors.CertificateError),
    ],
)
def test_the_outcome_of_a_request_is_read_from_its_conditions(found: dict, expected: object) -> None:
    if isinstance(expected, type):
        with pytest.raises(expected) as caught:
            csr.verdict(found, uid="u1")
        assert "csr-x" in str(caught.value)
    else:
        assert csr.verdict(found, uid="u1") == expected


def test_the_request_equals_that_of_a_kubelet() -> None:
    body = WANTED.body()
    assert body["metadata"] == {"generateName": "csr-"}
    assert body["spec"]["signerName"] == "kubernetes.io/kube-apiserver-client-kubelet"
    assert body["spec"]["usages"] == ["digital signature", "client auth"]
    assert "expirationSeconds" not in body["spec"]
    assert base64.b64decode(body["spec"]["request"]).startswith(b"-----BEGIN CERTIFICATE REQUEST-----")
    named = csr.RequestedCertificate(request_pem=b"x", key_pem=b"canary", signer="s", usages=(), name="mine", expiration_seconds=600)
    assert (named.body()["metadata"], named.body()["spec"]["expirationSeconds"]) == ({"name": "mine"}, 600)
    assert "canary" not in repr(named)


class Api:
    """Returns the states of a request; each is a list response and a watch event. An exception is a gap. The last state repeats in lists."""

    def __init__(self, *states: object) -> None:
        self.states = list(states)
        self.created: list[dict] = []

    def _next(self) -> object:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def _create(self, body: dict) -> dict:
        self.created.append(body)
        return {**body, **request()}


class AsyncApi(Api):
    async def create(self, body: dict) -> dict:
        return self._create(body)

    async def list_versioned(
        self, resource, namespace=None, *, label_selector="", field_selector="", resource_version="", slim=None, most=0
    ):
        assert resource_version == ""
        return [self.states[0]] if isinstance(self.states[0], dict) else [], "50"

    async def watch(self, resource, *, namespace=None, field_selector="", label_selector="", resource_version="", seconds=0):
        assert field_selector == "metadata.name=csr-x"
        while True:
            await asyncio.sleep(0.1)
            found = self._next()
            if isinstance(found, Exception):
                raise found
            yield WatchEvent(EventType.MODIFIED if found is not None else EventType.DELETED, found or request())


def run(*states: object, within: float = 60) -> bytes:
    import looptime

    with asyncio.Runner(loop_factory=lambda: looptime.new_event_loop(start=0)) as runner:
        return runner.run(csr.obtain(AsyncApi(*states), WANTED, within=within))


DONE = request("Approved", content=CERTIFICATE, version="9")


def test_a_certificate_is_waited_for() -> None:
    assert run(request(), request("Approved"), DONE) == CERTIFICATE


def test_gaps_do_not_end_the_wait() -> None:
    assert (
        run(NEVER, request(version="6"), errors.ServerError("restarting", code=503), errors.Gone("too old", code=410), DONE) == CERTIFICATE
    )


@pytest.mark.parametrize("state", [request("Denied"), request("Failed"), request("Approved", content=CERTIFICATE, uid="u2"), None])
def test_a_refusal_ends_the_wait(state: dict | None) -> None:
    with pytest.raises(errors.CertificateError):
        run(request(), state)


def test_a_certificate_of_another_key_is_refused() -> None:
    with pytest.raises(errors.CertificateMismatch):
        run(request("Approved", content=certificate_for(OTHER_KEY)))


@pytest.mark.parametrize("content", [b"nothing", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_an_invalid_certificate_is_refused(content: bytes) -> None:
    with pytest.raises(errors.CertificateError):
        run(request("Approved", content=content))


def test_a_request_that_is_never_decided_is_reported() -> None:
    with pytest.raises(errors.WaitTimeout) as caught:
        run(request("Approved"), within=5)
    assert "csr-x" in str(caught.value)
    assert caught.value.remedy
