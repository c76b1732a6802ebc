"""Sealing small values: AES-GCM, a random nonce of 12 bytes in front, the tag of 16 bytes at the end.

So are those of the kubeadm-certs Secret, the fields of a NodeJoinRequest, and what a hub keeps of keys.
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
"""Bytes of keys that AES takes."""
OVERHEAD: Final = 28
"""Bytes that a sealed value has more than what is in it."""
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


_REMEDY: Final = "generate one with `kubewright certs certificate-key`"


def seal(content: bytes, key: bytes, *, random: Random, about: bytes = b"") -> bytes:
    """Encrypt one value. `about` is not in it, and has to be the same when it is opened."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = random.token_bytes(_NONCE_SIZE)
    return nonce + AESGCM(key).encrypt(nonce, content, about or None)


def opened(sealed: bytes, key: bytes, *, what: str, about: bytes = b"", remedy: str = "") -> bytes:
    """Decrypt one value. Raises TrustError, naming `what` it is, where the key is another one, or the value or what it is `about` was altered."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(sealed[:_NONCE_SIZE], sealed[_NONCE_SIZE:], about or None)
    except (InvalidTag, ValueError) as error:
        detail = "the key is another one, or the value was altered"
        raise TrustError(f"{what} cannot be decrypted", detail=detail, remedy=remedy) from error


def unseal(sealed: bytes, key: bytes, *, name: str) -> bytes:
    """Decrypt the value of a name such as `ca.key`. Raises CertificateError where the key is another one or the value was altered."""
    try:
        return opened(sealed, key, what=name)
    except TrustError as error:
        raise CertificateError(
            f"{name} of the Secret kubeadm-certs cannot be decrypted",
            detail="the certificate key is not the one it was encrypted with, or the value was altered",
            remedy="upload the certificates again on a control-plane node (init phase upload-certs --upload-certs) and use the key it prints",
        ) from error
