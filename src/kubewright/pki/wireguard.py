"""WireGuard's keys: 32 bytes of Curve25519 (RFC 7748) as 44 characters of base64, as `wg genkey` and `wg pubkey` print them."""

from __future__ import annotations

import base64
import binascii
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from kubewright.base.errors import CertificateError
from kubewright.base.masking import remember
from kubewright.base.randomness import Random

SIZE: Final = 32
_CHARACTERS: Final = 44


def new_private_key(random: Random) -> str:
    """Generate a private key, with the bits set that Curve25519 requires."""
    raw = bytearray(random.token_bytes(SIZE))
    raw[0] &= 248
    raw[31] = (raw[31] & 127) | 64
    return remember(base64.b64encode(bytes(raw)).decode())


def public_key(private: str) -> str:
    """Return the public half. Raises CertificateError for an invalid key."""
    raw = X25519PrivateKey.from_private_bytes(_bytes(private)).public_key()
    return base64.b64encode(raw.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)).decode()


def agreed(private: str, public: str) -> bytes:
    """Return the shared secret of two keys (X25519).

    Raises CertificateError for an invalid key, or one whose secret is the same for every other.
    """
    try:
        return X25519PrivateKey.from_private_bytes(_bytes(private)).exchange(X25519PublicKey.from_public_bytes(_bytes(public)))
    except ValueError as error:  # a point of small order (RFC 7748, 6.1)
        raise CertificateError(
            "this WireGuard key yields the same secret with every other key", remedy="generate another one with `wg genkey`"
        ) from error


def is_key(text: str) -> bool:
    """Whether a text is a key in its canonical form. Zeros, which mean no key to `wg`, are invalid."""
    try:
        return any(_bytes(text))
    except CertificateError:
        return False


def _bytes(text: str) -> bytes:
    try:
        raw = base64.b64decode(text.encode(), validate=True) if len(text) == _CHARACTERS else b""
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != SIZE or base64.b64encode(raw).decode() != text:
        raise CertificateError("this is not a WireGuard key", remedy="a key has 44 characters, as `wg genkey` prints them")
    return raw
