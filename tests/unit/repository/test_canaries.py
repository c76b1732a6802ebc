"""The canaries of private keys (tests/canaries.py): each is in the key's file and its kubeconfig, and never in a certificate."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

import canaries

KEYS = {
    "RSA-2048": lambda: rsa.generate_private_key(65537, 2048),
    "P-256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "P-384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "P-521": lambda: ec.generate_private_key(ec.SECP521R1()),
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("layout", [PrivateFormat.TraditionalOpenSSL, PrivateFormat.PKCS8], ids=["traditional", "PKCS8"])
def test_a_canary_contains_only_the_private_part(kind: str, layout: PrivateFormat) -> None:
    key: PrivateKeyTypes = KEYS[kind]()
    pem = key.private_bytes(Encoding.PEM, layout, NoEncryption()).decode()
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    line, twice = canaries.forms(pem)

    assert min(len(line), len(twice)) >= canaries.SHORTEST
    assert (pem.count(line), base64.b64encode(pem.encode()).decode().count(twice)) == (1, 1)
    assert bytes_in_both(decoded(line, "".join(pem.splitlines()[1:-1])), public) == set()
    in_pem = decoded(twice, base64.b64encode(pem.encode()).decode()).decode()
    assert in_pem in line, "the second form may be of characters of the first alone"


def decoded(part: str, text: str) -> bytes:
    """Return the bytes that part of a base64 text encodes, without incomplete ones at its ends."""
    begin = text.index(part)
    whole = part[-begin % 4 :]
    return base64.b64decode(whole[: len(whole) // 4 * 4])


def bytes_in_both(one: bytes, other: bytes, *, length: int = 8) -> set[bytes]:
    """Return the sequences of bytes that both have."""
    return {one[at : at + length] for at in range(len(one) - length + 1)} & {
        other[at : at + length] for at in range(len(other) - length + 1)
    }
