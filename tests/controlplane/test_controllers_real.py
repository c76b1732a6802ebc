"""kubewright's own controllers in a real cluster: nodes join through them, and they decide as kube-controller-manager does."""

from __future__ import annotations

import base64
import os
import random
import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from local_kit import COMPONENTS, Bench, bench, eventually

from kubewright.base.clock import rfc3339
from kubewright.base.errors import CertificateError, Forbidden, Invalid, StatusError
from kubewright.host.filesystem.files import Files
from kubewright.kube.client import KubeClient
from kubewright.kube.kubeconfigs import load_access
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST, CONFIG_MAP, SECRET
from kubewright.local.cluster.cluster import LocalCluster
from kubewright.pki.encoding import der, pem
from kubewright.pki.requests import request_details, request_signing
from kubewright.tokens import cluster_info
from kubewright.tokens.strings import BootstrapTokenString

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "controllers"))

from controllers_kit import CLIENT_USAGES, KEY, NODES, SERVING_USAGES, extension, rdn, request, san

CLIENT_KUBELET = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING = "kubernetes.io/kubelet-serving"
CLIENT = "kubernetes.io/kube-apiserver-client"
NAME = "kubewright-controllers"
COUNT = 320


@pytest.fixture(scope="module")
def ours() -> Iterator[Bench]:
    for found in bench():
        found.up(nodes=1, controllers="kubewright")
        yield found


@pytest.fixture(scope="module")
def api(ours: Bench) -> Iterator[KubeClient]:
    with ours.client() as client:
        yield client


def body(name: str, text: bytes, *, signer: str, usages: tuple[str, ...], seconds: int | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = {"request": base64.b64encode(text).decode(), "signerName": signer, "usages": list(usages)}
    if seconds is not None:
        spec["expirationSeconds"] = seconds
    return {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name}, "spec": spec}


def approve(client: KubeClient, made: dict[str, Any], kind: str = "Approved", **fields: str) -> None:
    """Approve a request as a person does, whatever has happened in the meantime."""
    condition = {"type": kind, "status": "True", "reason": "ByHand", "message": "", **fields}
    client.update({**made, "metadata": {"name": made["metadata"]["name"]}, "status": {"conditions": [condition]}}, subresource="approval")


def status(client: KubeClient, name: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(CERTIFICATE_SIGNING_REQUEST, name).get("status") or {}
    return found


def test_the_controllers_are_a_component_and_nodes_joined_through_them(ours: Bench, api: KubeClient) -> None:
    assert sorted(ours.components()) == sorted([*COMPONENTS, NAME])
    eventually(lambda: ours.components()[NAME]["state"] == "Ready", "the controllers to be ready")
    assert ours.components()[NAME]["restarts"] == 0
    [flag] = [row for row in ours.status()["changedFlags"] if row["flag"] == "controllers"]
    assert flag["value"].startswith("*,-csrapproving,-csrsigning")
    [joined] = api.list(CERTIFICATE_SIGNING_REQUEST)
    assert [one["reason"] for one in joined["status"]["conditions"]] == ["AutoApproved"]
    writers = {entry["manager"] for entry in joined["metadata"]["managedFields"] if entry.get("subresource") in {"approval", "status"}}
    assert writers == {NAME}


def test_a_second_up_changes_nothing(ours: Bench) -> None:
    assert ours.up(controllers="kubewright").changes == ()
    assert ours.up().changes == ()


def test_a_request_that_breaks_a_rule_fails(api: KubeClient) -> None:
    made = api.create(body("broken", request(names=[("dns", "a")]), signer=CLIENT_KUBELET, usages=CLIENT_USAGES))
    approve(api, made)
    eventually(lambda: len(status(api, "broken").get("conditions", ())) == 2, "the condition")
    failed = status(api, "broken")["conditions"][1]
    assert (failed["type"], failed["reason"], failed["message"]) == (
        "Failed",
        "SignerValidationFailure",
        "DNS subjectAltNames are not allowed",
    )


def test_serving_certificates_are_signed_only_after_approval(api: KubeClient) -> None:
    made = api.create(body("serving", request(names=[("ip", b"\x0a\0\0\1")]), signer=SERVING, usages=SERVING_USAGES, seconds=600))
    assert "certificate" not in status(api, "serving")
    approve(api, made)
    eventually(lambda: "certificate" in status(api, "serving"), "the certificate")
    found = x509.load_pem_x509_certificate(base64.b64decode(status(api, "serving")["certificate"]))
    assert found.not_valid_after_utc - found.not_valid_before_utc == timedelta(minutes=15)
    assert [one["type"] for one in status(api, "serving")["conditions"]] == ["Approved"]


def test_the_signed_request_is_the_one_that_the_api_server_and_the_approver_saw(kubewright_cluster: LocalCluster, api: KubeClient) -> None:
    """A request with two PEM blocks: Go skips the first one, whose padding is surplus, and Python's base64 reads it."""
    masters, seen = (request(subject=((ORGANIZATION, group), (CN, "dev"))) for group in ("system:masters", "developers"))
    with pytest.raises(Forbidden, match="system:masters"):  # the API server reads it, and refuses it for this signer
        api.create(body("masters", masters, signer=CLIENT, usages=("client auth",)))
    text = masters.replace(b"\n-----END", b"=\n-----END") + seen
    theirs = KubeClient(kubewright_cluster.access, timeout=600)
    for client in (api, theirs):
        approve(client, client.create(body("two-blocks", text, signer=CLIENT, usages=("client auth",))))
        eventually(lambda client=client: _ended(status(client, "two-blocks")), "the signer to sign it or to give up")
    signed = x509.load_pem_x509_certificate(base64.b64decode(status(theirs, "two-blocks")["certificate"]))
    theirs.close()
    assert [one.value for one in signed.subject.get_attributes_for_oid(x509.NameOID.ORGANIZATION_NAME)] == ["developers"]
    assert "certificate" not in status(api, "two-blocks")
    failed = status(api, "two-blocks")["conditions"][1]
    assert (failed["type"], failed["reason"]) == ("Failed", "SignerValidationFailure")
    assert failed["message"] == "the request has 2 BEGIN lines instead of one"


def _ended(found: dict[str, Any]) -> bool:
    return "certificate" in found or len(found["conditions"]) > 1


def _token(id_: str, **content: str) -> dict[str, Any]:
    values = {"token-id": id_, "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true", **content}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": f"bootstrap-token-{id_}", "namespace": "kube-system"},
        "stringData": values,
    }


def test_cluster_info_is_signed_and_an_expired_token_is_removed_with_its_signature(api: KubeClient) -> None:
    def data() -> dict[str, str]:
        found: dict[str, str] = api.get(CONFIG_MAP, "cluster-info", "kube-public")["data"]
        return found

    def secrets() -> set[str]:
        return {one["metadata"]["name"] for one in api.list(SECRET, "kube-system")}

    api.create(_token("expire", expiration=rfc3339(datetime.now(UTC) + timedelta(hours=1))))
    api.create(_token("stayss"))
    eventually(lambda: {"jws-kubeconfig-expire", "jws-kubeconfig-stayss"} <= data().keys(), "the signatures")
    assert cluster_info.verify_signature(
        data()["jws-kubeconfig-stayss"], data()["kubeconfig"], BootstrapTokenString("stayss", "0123456789abcdef")
    )
    soon = {"stringData": {"expiration": rfc3339(datetime.now(UTC) + timedelta(seconds=4))}}
    api.patch(SECRET, "bootstrap-token-expire", soon, "kube-system", type="merge")
    eventually(lambda: "jws-kubeconfig-expire" not in data(), "the signature of the expired token to go")
    eventually(lambda: "bootstrap-token-expire" not in secrets(), "the expired token to go")
    assert "bootstrap-token-stayss" in secrets()
    assert "jws-kubeconfig-stayss" in data()


def test_a_killed_process_is_restarted_continues_and_cleans_up(ours: Bench, api: KubeClient) -> None:
    made = api.create(body("old", request(), signer="example.com/nobody", usages=CLIENT_USAGES))
    approve(api, made, "Denied", lastUpdateTime=rfc3339(datetime.now(UTC) - timedelta(hours=2)))
    young = api.create(body("young", request(), signer="example.com/nobody", usages=CLIENT_USAGES))
    approve(api, young, "Denied")
    os.kill(ours.components()[NAME]["pid"], signal.SIGKILL)
    eventually(lambda: "old" not in {one["metadata"]["name"] for one in api.list(CERTIFICATE_SIGNING_REQUEST)}, "the old request to go")
    assert "young" in {one["metadata"]["name"] for one in api.list(CERTIFICATE_SIGNING_REQUEST)}
    api.create(body("after", request(), signer=CLIENT_KUBELET, usages=CLIENT_USAGES))
    eventually(lambda: "certificate" in status(api, "after"), "the certificate")
    assert [one["reason"] for one in status(api, "after")["conditions"]] == ["AutoApproved"]


def test_the_controllers_have_no_other_permissions(ours: Bench, api: KubeClient) -> None:
    [path] = ours.paths().machines.glob(f"*/kubernetes/{NAME}.conf")
    client = KubeClient(load_access(PurePosixPath(path), read=Files().read), timeout=600)
    for resource, namespace in ((SECRET, "default"), (SECRET, None), (CONFIG_MAP, "kube-public"), (CONFIG_MAP, "kube-system")):
        with pytest.raises(Forbidden):
            client.list(resource, namespace)
    with pytest.raises(Forbidden):
        client.get(SECRET, "bootstrap-token-stayss", "kube-system")
    made = api.create(body("foreign", request(names=[("dns", "a")]), signer=SERVING, usages=SERVING_USAGES))
    with pytest.raises(Forbidden):
        approve(client, made)
    client.close()


# Compared with kube-controller-manager: the same requests to both.

RSA = rsa.generate_private_key(65537, 2048)
CN, ORGANIZATION = "2.5.4.3", "2.5.4.10"
_STRINGS = (
    der.encode(der.UTF8_STRING, "n\u00e4me".encode()),
    der.encode(der.PRINTABLE_STRING, b"*a&b"),
    der.encode(der.T61_STRING, b"\xe9x"),
    der.encode(der.BMP_STRING, "\u00e9a".encode("utf-16-be")),
    der.encode(der.NUMERIC_STRING, b"12 3"),
    der.encode(der.IA5_STRING, b"a@b"),
    der.encode(0x1B, b"general"),
    der.encode(der.INTEGER, b"\5"),
    der.encode(der.PRINTABLE_STRING, b"a@b"),
)
_ATTRIBUTES = (CN, ORGANIZATION, *(f"2.5.4.{number}" for number in (5, 6, 7, 8, 9, 11, 17, 42)), "0.9.2342.19200300.100.1.1")
_NAMES: tuple[tuple[str | int, str | bytes], ...] = (
    ("dns", "a.example"),
    ("dns", "*.a"),
    ("dns", ""),
    ("dns", "xn--bcher-kva.example"),
    ("dns", b"\xc3\xa9"),
    ("ip", b"\x0a\0\0\1"),
    ("ip", b"\0" * 10 + b"\xff\xff\1\2\3\4"),
    ("ip", b"\xfd" + b"\0" * 15),
    ("ip", b"\1\2\3"),
    ("email", "a@b"),
    ("email", "no address"),
    ("uri", "HTTPS://h/%7efoo#"),
    ("uri", "urn:x#"),
    ("uri", "https://u:p@[::1]:8/a b?q"),
    ("uri", "http://a..b/"),
    (0xA0, b""),
    (0xA4, b""),
    (0x88, b"\x2a"),
)
_USAGES = (
    CLIENT_USAGES,
    SERVING_USAGES,
    (*CLIENT_USAGES, "key encipherment"),
    (*SERVING_USAGES, "key encipherment"),
    ("client auth",),
    ("digital signature",),
    ("any", "s/mime", "email protection", "netscape sgc"),
    ("cert sign", "encipher only", "decipher only", "crl sign"),
    ("client auth", "signing"),
)
_SECONDS = (None, None, None, 600, 3600, 28_799, 28_800, 40_000_000)


def _subject(chance: random.Random) -> list[bytes]:
    node = [rdn((ORGANIZATION, NODES)), rdn((CN, "system:node:a"))]
    odd = rdn(*((chance.choice(_ATTRIBUTES), chance.choice(_STRINGS)) for _ in range(chance.choice((1, 1, 2, 3)))))
    return chance.choice(
        (
            node,
            node,
            node,
            [rdn((ORGANIZATION, NODES), (CN, "system:node:a"))],
            [rdn((CN, "first")), *node],
            [*node, odd],
            [odd, *node],
            [rdn((CN, "anybody"))],
            [rdn((ORGANIZATION, NODES)), rdn((ORGANIZATION, "b"), (ORGANIZATION, "a")), rdn((CN, "system:node:a"))],
            [odd],
            [rdn(), *node],
        )
    )


def _text(chance: random.Random) -> bytes:
    if chance.random() < 0.1:  # made by a library, with an RSA key
        name = x509.Name(
            [x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, NODES), x509.NameAttribute(x509.NameOID.COMMON_NAME, "system:node:a")]
        )
        pss = chance.random() < 0.3
        scheme = padding.PSS(padding.MGF1(hashes.SHA256()), 32) if pss else None
        return x509.CertificateSigningRequestBuilder(name).sign(RSA, hashes.SHA256(), rsa_padding=scheme).public_bytes(Encoding.PEM)
    names = [chance.choice(_NAMES) for _ in range(chance.choice((0, 0, 0, 1, 1, 2, 3)))]
    more = []
    if chance.random() < 0.15:
        more.append(extension("1.2.3.4", b"any", chance.choice((b"", der.encode(der.BOOLEAN, b"\xff"), der.encode(der.BOOLEAN, b"\0")))))
    if chance.random() < 0.1:
        more.append(extension("2.5.29.19", der.encode(der.SEQUENCE, der.encode(der.BOOLEAN, b"\xff"))))
    if chance.random() < 0.03:
        more.append(san(("dns", "twice")))
    key = ec.generate_private_key(chance.choice((ec.SECP384R1(), ec.SECP224R1()))) if chance.random() < 0.1 else KEY
    text = request(sets=_subject(chance), names=names, extensions=more, key=key, good=chance.random() > 0.02)
    around = chance.random()
    if around < 0.03:
        return b"words before\n" + text + b"words after\n"
    if around < 0.06:
        return text + request(subject=[(CN, "second")])
    if around < 0.09:
        return text.replace(b"REQUEST-----\n", b"REQUEST-----\nHeader: value\n\n", 1)
    return text


def _cases() -> list[dict[str, Any]]:
    chance = random.Random(20261122)
    signers = {CLIENT_KUBELET: CLIENT_USAGES, SERVING: SERVING_USAGES, CLIENT: ("client auth",)}
    found = []
    for number in range(COUNT):
        signer = chance.choice(tuple(signers))
        usages = signers[signer] if chance.random() < 0.6 else chance.choice(_USAGES)
        found.append(body(f"beside-{number:03d}", _text(chance), signer=signer, usages=usages, seconds=chance.choice(_SECONDS)))
    return found


_AUTHORITY_KEY = der.encode(der.OBJECT_IDENTIFIER, der.identifier_content("2.5.29.35")).hex()


def _certificate(text: str) -> dict[str, Any]:
    """Everything in a certificate except its CA, its serial number and its time."""
    data = base64.b64decode(text)
    made = x509.load_pem_x509_certificate(data)
    content = next(der.one(pem.blocks(data, source=text)[0].der, "it").children())
    _, serial, algorithm, _, _, subject, key, extensions = content.children()
    raw = [one.whole.hex() for one in next(extensions.children()).children()]
    authority = [one for one in raw if one.startswith(_AUTHORITY_KEY, 4)]
    return {
        "subject": subject.whole.hex(),
        "extensions": [one for one in raw if one not in authority],
        "has authority key identifier": len(authority),
        "span": made.not_valid_after_utc - made.not_valid_before_utc,
        "key": key.whole.hex(),
        "signature": algorithm.whole.hex(),
        "serial bits": 80 < int.from_bytes(serial.content).bit_length() <= 128,
    }


def _outcome(found: dict[str, Any]) -> dict[str, Any]:
    told = found.get("status") or {}
    failed = [(one["status"], one["reason"], one["message"]) for one in told.get("conditions", ()) if one["type"] == "Failed"]
    return {"failed": failed, "certificate": _certificate(told["certificate"]) if "certificate" in told else None}


def _outcomes(client: KubeClient, cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Send all requests, approve them, and return their outcomes: the API server's reason, or what the signer did."""
    refused: dict[str, Any] = {}
    for case in cases:
        name = case["metadata"]["name"]
        try:
            approve(client, client.create(case))
        except StatusError as error:
            refused[name] = {"refused": error.code}
    sent = [case for case in cases if case["metadata"]["name"] not in refused]
    settled: dict[str, Any] = {}

    def all_settled() -> bool:
        found = {one["metadata"]["name"]: one for one in client.list(CERTIFICATE_SIGNING_REQUEST)}
        settled.update({case["metadata"]["name"]: _outcome(found[case["metadata"]["name"]]) for case in sent})
        return all(one["failed"] or one["certificate"] for one in settled.values())

    eventually(all_settled, "every request to be signed or to fail")
    for case in sent:
        client.delete(CERTIFICATE_SIGNING_REQUEST, case["metadata"]["name"])
    return refused | settled


def _blocks(case: dict[str, Any]) -> int:
    return base64.b64decode(case["spec"]["request"]).count(pem.MARK)


def test_every_request_ends_as_with_kube_controller_manager(kubewright_cluster: LocalCluster, api: KubeClient) -> None:
    cases = _cases()
    theirs = KubeClient(kubewright_cluster.access, timeout=600)
    expected, found = _outcomes(theirs, cases), _outcomes(api, cases)
    theirs.close()
    several = [found.pop(case["metadata"]["name"]) for case in cases if _blocks(case) > 1]
    assert {name: (expected[name], one) for name, one in found.items() if expected[name] != one} == {}
    assert len(several) > 3
    assert [one for one in several if "refused" not in one and not one["failed"]] == []
    kinds = [("refused" if "refused" in one else "signed" if one["certificate"] else "failed") for one in expected.values()]
    assert len(kinds) == COUNT
    assert min(kinds.count(kind) for kind in ("refused", "signed", "failed")) > 20


def test_requests_that_the_api_server_accepts_are_read_and_those_it_refuses_are_not_signed(api: KubeClient) -> None:
    """The API server reads requests with Go's X.509, as kube-controller-manager does."""
    taken = refused = 0
    for case in _cases():
        case["metadata"]["name"] = f"read-{case['metadata']['name']}"
        case["spec"]["signerName"] = "example.com/nobody"
        case["spec"]["usages"] = ["client auth"]
        text = base64.b64decode(case["spec"]["request"])
        try:
            api.create(case)
        except Invalid:
            refused += 1
            assert not _would_be_signed(text)
        else:
            taken += 1
            assert _would_be_signed(text) is (_blocks(case) == 1)
            api.delete(CERTIFICATE_SIGNING_REQUEST, case["metadata"]["name"])
    assert taken + refused == COUNT
    assert taken > 200
    assert refused > 10


def _would_be_signed(text: bytes) -> bool:
    try:
        return request_signing.signature_valid(request_details.read(text))
    except CertificateError:
        return False
