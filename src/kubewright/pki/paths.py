"""Certification paths (RFC 5280, section 6): which CAs of a bundle may be trusted because a trusted CA has signed them.

A verifier treats such a CA as a trust anchor, and ignores the constraints of the CAs above it. So a CA vouches for
another only if no constraint is lost: a CA with its own constraints (names, purposes or policies) vouches for none, and
the other CA must not allow longer paths. A server whose chain needs more than this must send the chain, which OpenSSL
then validates completely.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from kubewright.pki.certificates import Certificate

_LONGEST: Final = 8
"""The number of signatures from an anchor to a CA."""


def vouched_for(anchors: Iterable[Certificate], others: Sequence[Certificate], *, now: datetime) -> list[Certificate]:
    """Return those of `others` that may be anchors themselves: CAs to which valid signatures lead from one of `anchors`, in their order."""
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


_SERVERS: Final = frozenset({"1.3.6.1.5.5.7.3.1", "2.5.29.37.0"})
"""Server authentication, and any purpose."""
