"""Parts of private keys that tests search for in output: nothing that the public key also contains."""

from __future__ import annotations

import base64
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

SHORTEST: Final = 24
"""Characters in a form: 18 bytes, which no two texts have in common by chance."""


def forms(pem: str) -> tuple[str, str]:
    """Return part of a line of a private key's PEM, and the same part as kubeconfigs contain it (base64 of base64).

    The file of an EC key also contains its public key (RFC 5915), and that of an RSA key its modulus (RFC 8017);
    certificates contain both. The returned part encodes only bytes of the EC key's scalar or of the RSA key's first
    prime.
    """
    secret = _secret_number(pem)
    header, *body = pem.splitlines()
    text = "".join(body[:-1])
    begin = base64.b64decode(text).index(secret)
    width = len(body[0])
    first, end = -(-begin * 4 // 3), (begin + len(secret)) * 4 // 3  # the characters to which no other byte contributes
    place, line = max(
        ((max(first, start), text[max(first, start) : min(end, start + width)]) for start in range(0, len(text), width)),
        key=lambda found: len(found[1]),
    )
    at = len(header) + 1 + place + place // width  # in the file, with its line breaks
    return line, _encoded_twice(pem, at, at + len(line))


def _secret_number(pem: str) -> bytes:
    """Return the bytes of the number that only the private key has."""
    key = load_pem_private_key(pem.encode(), password=None)
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return key.private_numbers().private_value.to_bytes((key.curve.key_size + 7) // 8, "big")
    assert isinstance(key, rsa.RSAPrivateKey), f"an unknown kind of key: {key}"
    return key.private_numbers().p.to_bytes(key.key_size // 16, "big")


def _encoded_twice(pem: str, begin: int, end: int) -> str:
    """Return the part of a PEM's base64 that encodes only its characters from `begin` to `end`."""
    return base64.b64encode(pem.encode()).decode()[-(-begin * 4 // 3) : end * 4 // 3]
