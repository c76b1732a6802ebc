"""Public key pins of CAs (RFC 7469, section 2.4): `sha256:` and the hex SHA-256 of the DER SubjectPublicKeyInfo."""

from __future__ import annotations

import binascii
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from kubewright.base.errors import TrustError, UsageError
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass
from kubewright.pki import certificates
from kubewright.pki.certificates import Certificate

_LONGEST: Final = 8
"""The number of signatures from an anchor to a CA."""
_SERVERS: Final = frozenset({"1.3.6.1.5.5.7.3.1", "2.5.29.37.0"})
"""Server authentication, and any purpose."""


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
    return b"".join(one.pem() for one in dict.fromkeys([*anchors, *vouched_for(anchors, found, now=now)]))


def _anchors(pinned: Sequence[Certificate]) -> list[Certificate]:
    """Leave out certificates that anyone can create for a pinned key if its owner has created one, which states the key's constraints."""
    own = {one.public_key for one in pinned if one.issued_by(one)}
    return [one for one in pinned if one.public_key not in own or one.issued_by(one)]


def vouched_for(anchors: Iterable[Certificate], others: Sequence[Certificate], *, now: datetime) -> list[Certificate]:
    """Return those of `others` that may be anchors themselves: CAs to which valid signatures lead from one of `anchors`, in their order.

    A verifier treats them as trust anchors (RFC 5280 section 6), and ignores the constraints of the CAs above them. So a
    CA vouches for another only if no constraint is lost: a CA with constraints of its own (names, purposes or policies)
    vouches for none, and the other CA must not allow longer paths. A server whose chain needs more than this must send
    the chain, which OpenSSL then validates completely.
    """
    reached: list[Certificate] = []
    issuers, left = list(anchors), [one for one in others if one.is_authority]
    for _ in range(_LONGEST):
        issuers = [one for one in left if any(_vouches(issuer, one, now) for issuer in issuers)]
        reached += issuers
        left = [one for one in left if one not in issuers]
    return [one for one in others if one in reached]


def _vouches(issuer: Certificate, subject: Certificate, now: datetime) -> bool:
    """Whether a CA may vouch for another one, and has signed it."""
    longest, below = issuer.path_length, subject.path_length
    return (
        issuer.is_authority
        and issuer.not_before <= now <= issuer.not_after
        and (longest is None or (below is not None and below < longest))
        and _is_unlimited(issuer)
        and subject.issued_by(issuer)
    )


def _is_unlimited(authority: Certificate) -> bool:
    """Whether a CA may sign certificates for any name and for servers. An unknown critical extension limits it."""
    from cryptography import x509

    known = (x509.BasicConstraints, x509.KeyUsage, x509.ExtendedKeyUsage)
    for extension in authority.native.extensions:
        value = extension.value
        if isinstance(value, x509.NameConstraints) or (extension.critical and not isinstance(value, known)):
            return False
        if isinstance(value, x509.KeyUsage) and not value.key_cert_sign:
            return False
        if isinstance(value, x509.ExtendedKeyUsage) and not _SERVERS.intersection(usage.dotted_string for usage in value):
            return False
    return True
