"""Encryption of a short secret to an RSA key: OAEP with SHA-256 for the hash and for MGF1, without a label (RFC 8017, section 7.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kubewright.base.errors import CertificateError, TrustError
from kubewright.pki import keys, pins
from kubewright.pki.encoding.pem import reading
from kubewright.pki.keys import PrivateKey
from kubewright.pki.pins import Pin

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import rsa

_HASHES: Final = 2 * 32 + 2
"""Bytes of a block that the padding uses."""
_LEAST_BITS: Final = 2048


class RecipientKey:
    """The public half of an RSA key as the recipient of an encrypted value."""

    def __init__(self, native: rsa.RSAPublicKey) -> None:
        self._native = native

    @property
    def pin(self) -> Pin:
        """The digest for comparing the key."""
        return pins.of_public_key(keys.public_der(self._native))

    def encrypt(self, content: bytes) -> bytes:
        """Encrypt. Raises CertificateError if the content is too large for the key."""
        room = self._native.key_size // 8 - _HASHES
        if len(content) > room:
            raise CertificateError(f"{len(content)} bytes are too large for this key", detail=f"it has room for {room}")
        return self._native.encrypt(content, _padding())


def load_recipient(text: bytes, *, source: str) -> RecipientKey:
    """Parse a `PUBLIC KEY`.

    Raises CertificateError, naming `source`, for anything but an RSA key of at least 2048 bits.
    """
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    [der, *_] = keys.load_public(text, source=source)
    with reading(f"the public key in {source}"):
        native = load_der_public_key(der)
    if not isinstance(native, rsa.RSAPublicKey) or native.key_size < _LEAST_BITS:
        raise CertificateError(
            f"the public key in {source} is {keys.kind_of(native)}", remedy=f"an RSA key of at least {_LEAST_BITS} bits is needed"
        )
    return RecipientKey(native)


def ciphertext_size(key: PrivateKey) -> int:
    """Return the size of values encrypted to a key: that of its modulus.

    Raises CertificateError for a key that is not RSA.
    """
    return (_rsa(key).key_size + 7) // 8


def decrypt(key: PrivateKey, ciphertext: bytes, *, what: str) -> bytes:
    """Decrypt. Raises TrustError, naming `what` it is; the error must not distinguish the reasons."""
    try:
        return bytes(_rsa(key).decrypt(ciphertext, _padding()))
    except ValueError as error:
        raise TrustError(
            f"{what} cannot be decrypted",
            detail="it was encrypted to another key, or not by RSA-OAEP with SHA-256 for both the hash and MGF1",
        ) from error


def _rsa(key: PrivateKey) -> rsa.RSAPrivateKey:
    from cryptography.hazmat.primitives.asymmetric import rsa

    if not isinstance(key.native, rsa.RSAPrivateKey):
        raise CertificateError(f"{key.kind} is not an RSA key", remedy="use an RSA key of at least 2048 bits")
    return key.native


def _padding() -> Any:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    return padding.OAEP(mgf=padding.MGF1(hashes.SHA256()), algorithm=hashes.SHA256(), label=None)
