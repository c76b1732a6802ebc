"""Encryption of small values: AES-GCM, with a random nonce of 12 bytes in front and the tag of 16 bytes at the end.

The kubeadm-certs Secret, the fields of a NodeJoinRequest, and a hub's stored keys use this format.
"""

from __future__ import annotations

import binascii
from typing import Final

from kubewright.base.errors import CertificateError, TrustError, UsageError
from kubewright.base.masking import remember
from kubewright.base.randomness import Random

KEY_SIZE: Final = 32
"""Bytes of a certificate key."""
KEY_SIZES: Final = (16, 24, 32)
"""The sizes of AES keys in bytes."""
OVERHEAD: Final = 28
"""How many bytes a sealed value is longer than its content."""
_NONCE_SIZE: Final = 12


def new_key(random: Random) -> str:
    """Generate a certificate key in its text form, 64 hexadecimal digits."""
    return remember(random.token_bytes(KEY_SIZE).hex())


def parse_key(text: str) -> bytes:
    """Parse a certificate key. Raises UsageError, which does not quote the key."""
    try:
        key = binascii.unhexlify(remember(text))
    except ValueError as error:
        raise UsageError("the certificate key is not hexadecimal", remedy=_REMEDY) from error
    if len(key) != KEY_SIZE:
        raise UsageError(f"the certificate key has {len(key)} bytes instead of {KEY_SIZE}", remedy=_REMEDY)
    return key


_REMEDY: Final = "generate one with `kubewright certs certificate-key`"


def seal(content: bytes, key: bytes, *, random: Random, about: bytes = b"") -> bytes:
    """Encrypt one value. `about` is authenticated but not included, and must be the same for decryption."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = random.token_bytes(_NONCE_SIZE)
    return nonce + AESGCM(key).encrypt(nonce, content, about or None)


def opened(sealed: bytes, key: bytes, *, what: str, about: bytes = b"", remedy: str = "") -> bytes:
    """Decrypt one value.

    Raises TrustError, naming `what` it is, for another key, or if the value or `about` was altered.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(sealed[:_NONCE_SIZE], sealed[_NONCE_SIZE:], about or None)
    except (InvalidTag, ValueError) as error:
        detail = "the key is wrong, or the value was altered"
        raise TrustError(f"{what} cannot be decrypted", detail=detail, remedy=remedy) from error


def unseal(sealed: bytes, key: bytes, *, name: str) -> bytes:
    """Decrypt the value of a name such as `ca.key`. Raises CertificateError for another key or an altered value."""
    try:
        return opened(sealed, key, what=name)
    except TrustError as error:
        raise CertificateError(
            f"{name} of the Secret kubeadm-certs cannot be decrypted",
            detail="the certificate key is not the one it was encrypted with, or the value was altered",
            remedy="upload the certificates again on a control-plane node (init phase upload-certs --upload-certs) and use the key it prints",
        ) from error
