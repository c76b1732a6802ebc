"""Files with several certificates: authorities during a change of CA, leaves followed by their intermediates."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from kubewright.base.errors import CertificateError
from kubewright.pki import certificates, pem
from kubewright.pki.certificates import Certificate

_LONGEST_CHAIN = 8


def parse(text: bytes, *, source: str = "the bundle") -> list[Certificate]:
    """Read every certificate of PEM text, in order; blocks of other kinds are skipped.

    Raises CertificateError, naming `source`, for one that cannot be read, and where there is none.
    """
    found = [certificates.read(block.der, source=source) for block in pem.blocks(text, source=source) if block.label == pem.CERTIFICATE]
    if not found:
        raise CertificateError(f"{source} holds no certificate", remedy=f"restore {source} from a copy")
    return found


def chains_to(leaf: Certificate, *, roots: Sequence[Certificate], intermediates: Sequence[Certificate] = ()) -> bool:
    """Whether signatures lead from a certificate to one of the roots, directly or through intermediates that are authorities.

    Dates are not looked at: an expired certificate is expired, not foreign.
    """
    reached = [leaf]
    left = [certificate for certificate in intermediates if certificate.is_authority]
    for _ in range(_LONGEST_CHAIN):
        if any(certificate.issued_by(root) for certificate in reached for root in roots):
            return True
        reached = [issuer for issuer in left if any(certificate.issued_by(issuer) for certificate in reached)]
        left = [certificate for certificate in left if certificate not in reached]
        if not reached:
            return False
    return False


def expiry(certificate: Certificate, now: datetime) -> str:
    """Say when it expires, for reasons and warnings: `expires in 364 d`, `expired 3 h ago`, `not valid for another 5 min`."""
    if now < certificate.not_before:
        return f"not valid for another {span(certificate.not_before - now)}"
    if now > certificate.not_after:
        return f"expired {span(now - certificate.not_after)} ago"
    return f"expires in {span(certificate.not_after - now)}"


def span(length: timedelta) -> str:
    """Say a length of time in its largest whole unit: days, hours, minutes or seconds."""
    seconds = int(length.total_seconds())
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
