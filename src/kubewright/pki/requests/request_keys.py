"""The kind of a public key in a certificate request, and whether it is strong enough for a node."""

from __future__ import annotations

import functools
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import load_der_public_key

SMALLEST_RSA: Final = 2048
LARGEST_RSA: Final = 4096
"""In bits. Verifying a larger key is more expensive for every client of the node."""
LEAST_EXPONENT: Final = 65537
_CURVES: Final = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)


@functools.lru_cache(maxsize=1000)
def load(public_key: bytes) -> PublicKeyTypes:
    """Parse a key (DER SubjectPublicKeyInfo). Several checks of a request look at its key, and OpenSSL takes 0.04 ms to parse it.

    Raises ValueError or UnsupportedAlgorithm.
    """
    return load_der_public_key(public_key)


def weakness(public_key: bytes) -> str:
    """Return why a key (DER SubjectPublicKeyInfo) is too weak; '' for ECDSA P-256 to P-521, Ed25519, and RSA 2048 to 4096."""
    try:
        key = load(public_key)
    except (ValueError, UnsupportedAlgorithm):
        return "the key cannot be read"
    if isinstance(key, rsa.RSAPublicKey):
        return _rsa_weakness(key)
    if isinstance(key, ec.EllipticCurvePublicKey):
        return "" if isinstance(key.curve, _CURVES) else "the curve is not P-256, P-384 or P-521"
    return "" if isinstance(key, ed25519.Ed25519PublicKey) else "the key is not an ECDSA, Ed25519 or RSA key"


def is_rsa(public_key: bytes) -> bool:
    """Return whether a key is an RSA key. False for an unreadable one."""
    try:
        return isinstance(load(public_key), rsa.RSAPublicKey)
    except (ValueError, UnsupportedAlgorithm):
        return False


def _rsa_weakness(key: rsa.RSAPublicKey) -> str:
    if not SMALLEST_RSA <= key.key_size <= LARGEST_RSA:
        return f"an RSA key needs {SMALLEST_RSA} to {LARGEST_RSA} bits and has {key.key_size}"
    exponent = key.public_numbers().e
    return "" if exponent >= LEAST_EXPONENT and exponent % 2 else f"the RSA exponent is not an odd number of at least {LEAST_EXPONENT}"
