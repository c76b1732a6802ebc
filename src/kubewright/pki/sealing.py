"""Sealing the values of the kubeadm-certs Secret: AES-256-GCM, a random nonce of 12 bytes in front, the tag of 16 bytes at the end."""

from __future__ import annotations

import binascii
from typing import Final

from kubewright.base.errors import CertificateError, UsageError
from kubewright.base.masking import remember
from kubewright.base.randomness import Random

KEY_SIZE: Final = 32
_NONCE_SIZE: Final = 12


def new_key(random: Random) -> str:
    """Make a certificate key in its text form, 64 hexadecimal digits."""
    return remember(random.token_bytes(KEY_SIZE).hex())


def parse_key(text: str) -> bytes:
    """Read a certificate key. Raises UsageError, which does not quote the key."""
    try:
        key = binascii.unhexlify(remember(text))
    except ValueError as error:
        raise UsageError("the certificate key is not hexadecimal", remedy=_REMEDY) from error
    if len(key) != KEY_SIZE:
        raise UsageError(f"the certificate key has {len(key)} bytes instead of {KEY_SIZE}", remedy=_REMEDY)
    return key


_REMEDY: Final = "make one with `kubewright certs certificate-key`"


def seal(content: bytes, key: bytes, *, random: Random) -> bytes:
    """Encrypt one value."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = random.token_bytes(_NONCE_SIZE)
    return nonce + AESGCM(key).encrypt(nonce, content, None)


def unseal(sealed: bytes, key: bytes, *, name: str) -> bytes:
    """Decrypt the value of a name such as `ca.key`. Raises CertificateError where the key is another one or the value was altered."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(sealed[:_NONCE_SIZE], sealed[_NONCE_SIZE:], None)
    except (InvalidTag, ValueError) as error:
        raise CertificateError(
            f"{name} of the Secret kubeadm-certs cannot be decrypted",
            detail="the certificate key is not the one it was encrypted with, or the value was altered",
            remedy="upload the certificates again on a control-plane node (init phase upload-certs --upload-certs) and use the key it prints",
        ) from error
