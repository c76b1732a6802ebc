"""Public key pins of CAs (RFC 7469, section 2.4): `sha256:` and the hex SHA-256 of the DER SubjectPublicKeyInfo."""

from __future__ import annotations

import binascii
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from datetime import datetime

from kubewright.base.errors import TrustError, UsageError
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass
from kubewright.pki import certificates, paths
from kubewright.pki.certificates import Certificate


@dataclass(frozen=True)
class Pin:
    """The digest of one public key."""

    digest: bytes

    @classmethod
    def parse(cls, text: str) -> Pin:
        """Parse `sha256:HEX`, in any case.

        Raises UsageError for another type, another length, or text that is not hexadecimal.
        """
        kind, separator, value = text.partition(":")
        remedy = "write it as sha256: and 64 hexadecimal digits"
        if not separator or kind.lower() != "sha256":
            raise UsageError(f"{quoted(text)} is not a public key pin of a known type", remedy=remedy)
        try:
            digest = binascii.unhexlify(value)
        except ValueError as error:
            raise UsageError(f"{quoted(text)} is not a public key pin", detail="the digest is not hexadecimal", remedy=remedy) from error
        if len(digest) != hashlib.sha256().digest_size:
            raise UsageError(
                f"{quoted(text)} is not a public key pin", detail=f"the digest has {len(digest)} bytes instead of 32", remedy=remedy
            )
        return cls(digest)

    def __str__(self) -> str:
        return f"sha256:{self.digest.hex()}"


class PinMismatch(TrustError):
    """The pinned public key is missing from a bundle."""

    def __init__(self, *, server: str, found: Sequence[Pin], pinned: Sequence[Pin]) -> None:
        super().__init__(
            f"the CA of {server} is not the one you pinned",
            detail=f"its public keys are {_list(found)}; pinned: {_list(pinned)}",
            remedy="compare with the join command that a control-plane node prints (kubewright token create --print-join-command); "
            "if they differ there too, another server answers in its place",
        )


def _list(pins: Sequence[Pin]) -> str:
    return ", ".join(map(str, pins)) or "none"


def pin(text: bytes, *, source: str = "the certificate") -> str:
    """Return the pin of the first certificate of PEM text. Raises CertificateError, naming `source`."""
    return str(_pin_of(certificates.first(text, source=source)))


def of_bundle(text: bytes, *, source: str = "the bundle") -> list[Pin]:
    """Return the pins of every certificate of PEM text, in order. Raises CertificateError, naming `source`."""
    return [_pin_of(certificate) for certificate in certificates.parse(text, source=source)]


def of_public_key(der: bytes) -> Pin:
    """Return the pin of a DER SubjectPublicKeyInfo."""
    return Pin(hashlib.sha256(der).digest())


def _pin_of(certificate: Certificate) -> Pin:
    return of_public_key(certificate.public_key)


def matches(found: Iterable[Pin], pinned: Sequence[Pin]) -> bool:
    """Whether any key is pinned; each comparison takes the same time."""
    return any(hmac.compare_digest(one.digest, other.digest) for one in found for other in pinned)


def require(text: bytes, pinned: Sequence[Pin], *, server: str, now: datetime) -> bytes:
    """Return, as PEM, the pinned certificates in a bundle received from `server`, and the CAs for which pinned CAs vouch.

    The sender may have added anything else to the bundle. CAs signed by a pinned one would also be trusted in a
    handshake, but a server need not send them. Raises PinMismatch if nothing is pinned, or CertificateError for
    unreadable text.
    """
    source = f"the CA bundle of {server}"
    found = certificates.parse(text, source=source)
    pinned_ones = [one for one in found if matches([_pin_of(one)], pinned)]
    if not pinned_ones:
        raise PinMismatch(server=server, found=of_bundle(text, source=source), pinned=pinned)
    anchors = _anchors(pinned_ones)
    return b"".join(one.pem() for one in dict.fromkeys([*anchors, *paths.vouched_for(anchors, found, now=now)]))


def _anchors(pinned: Sequence[Certificate]) -> list[Certificate]:
    """Leave out certificates that anyone can create for a pinned key if its owner has created one, which states the key's constraints."""
    own = {one.public_key for one in pinned if one.issued_by(one)}
    return [one for one in pinned if one.public_key not in own or one.issued_by(one)]
