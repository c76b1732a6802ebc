"""Requests, CertificateSigningRequests and CAs for tests of the controllers."""

from __future__ import annotations

import base64
import functools
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from kubewright.pki.encoding import der, pem
from kubewright.pki.requests import request_signing

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
NODES = "system:nodes"
CLIENT_USAGES = ("digital signature", "client auth")
SERVING_USAGES = ("digital signature", "server auth")
SUBJECT = (("2.5.4.10", NODES), ("2.5.4.3", "system:node:a"))
KEY = ec.generate_private_key(ec.SECP256R1())
SAN_KINDS = {"email": 0x81, "dns": 0x82, "uri": 0x86, "ip": 0x87}


def rdn(*pairs: tuple[str, str | bytes]) -> bytes:
    """One set of attributes; values given as bytes are whole elements."""
    made = [
        der.encode(
            der.SEQUENCE,
            der.encode(der.OBJECT_IDENTIFIER, der.identifier_content(oid)),
            value if isinstance(value, bytes) else der.encode(der.UTF8_STRING, value.encode()),
        )
        for oid, value in pairs
    ]
    return der.encode(der.SET, *made)


def extension(oid: str, value: bytes, critical: bytes = b"") -> bytes:
    return der.encode(
        der.SEQUENCE, der.encode(der.OBJECT_IDENTIFIER, der.identifier_content(oid)), critical, der.encode(der.OCTET_STRING, value)
    )


def san(*names: tuple[str, str | bytes]) -> bytes:
    contents = ((SAN_KINDS.get(kind, kind), value if isinstance(value, bytes) else value.encode()) for kind, value in names)
    return extension("2.5.29.17", der.encode(der.SEQUENCE, *(der.encode(kind, value) for kind, value in contents)))


def request(*, sets=(), names=(), extensions=(), key=KEY, subject=SUBJECT, good=True) -> bytes:
    """Encode a request by hand, so that it may be odder than any library allows, as PEM."""
    wanted = [*([san(*names)] if names else []), *extensions]
    parts = sets or [rdn(pair) for pair in subject]
    asked = der.encode(der.OBJECT_IDENTIFIER, der.identifier_content("1.2.840.113549.1.9.14"))
    attribute = der.encode(der.SEQUENCE, asked, der.encode(der.SET, der.encode(der.SEQUENCE, *wanted))) if wanted else b""
    content = der.encode(
        der.SEQUENCE,
        b"\x02\x01\x00",
        der.encode(der.SEQUENCE, *parts),
        key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        der.encode(0xA0, attribute),
    )
    algorithm = der.encode(der.SEQUENCE, der.encode(der.OBJECT_IDENTIFIER, der.identifier_content("1.2.840.10045.4.3.2")))
    signature = key.sign(content if good else b"another", ec.ECDSA(hashes.SHA256()))
    whole = der.encode(der.SEQUENCE, content, algorithm, der.encode(der.BIT_STRING, b"\0", signature))
    return pem.encode(pem.REQUEST, whole)


def condition(kind: str, **fields: str | None) -> dict:
    return {"type": kind, "status": "True", **fields}


def csr(
    text: bytes | None = None,
    *,
    name="csr-1",
    signer="kubernetes.io/kube-apiserver-client-kubelet",
    usages=CLIENT_USAGES,
    username="system:bootstrap:abcdef",
    groups=("system:bootstrappers",),
    conditions=(),
    certificate=b"",
    created="2026-01-02T03:04:05Z",
    expiration=None,
) -> dict:
    spec = {
        "request": base64.b64encode(request() if text is None else text).decode(),
        "signerName": signer,
        "usages": list(usages),
        "username": username,
        "uid": "u-1",
        "groups": list(groups),
        "extra": {"authentication.kubernetes.io/credential-id": ["X509SHA256=00"]},
    }
    if expiration is not None:
        spec["expirationSeconds"] = expiration
    status = {"conditions": list(conditions)} if conditions else {}
    if certificate:
        status["certificate"] = base64.b64encode(certificate).decode()
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name, "resourceVersion": "7", "uid": "uid-1", "creationTimestamp": created},
        "spec": spec,
        "status": status,
    }


@functools.cache
def authority_files(*, ends: datetime = NOW + timedelta(days=3650), name="ca", curve="P256", identifier=True) -> tuple[bytes, bytes]:
    """Create a CA: its certificate and its key, as PEM."""
    key = ec.generate_private_key({"P256": ec.SECP256R1(), "P384": ec.SECP384R1()}[curve])
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), 1, NOW - timedelta(days=3650), ends)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    if identifier:
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    made = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    return made, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def authority(**options: object) -> request_signing.SigningAuthority:
    return request_signing.load_authority(*authority_files(**options), source="ca.crt")
