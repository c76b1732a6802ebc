"""csrsigning: sign approved requests, or fail them permanently if they break a rule of their signer.

Source: Kubernetes v1.36, pkg/controller/certificates/signer.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from kubewright.base.clock import rfc3339
from kubewright.base.errors import CertificateError
from kubewright.base.records import dataclass
from kubewright.controllers.requests import FAILED, Nothing, Retry, SigningRequest
from kubewright.controllers.signers import Asked, Signer
from kubewright.pki.requests import request_signing
from kubewright.pki.requests.request_details import RefusedRequest
from kubewright.pki.requests.request_signing import Period, VerifiedRequest

FAILURE = "SignerValidationFailure"
"""The reason of the condition, and of the event, of a request that breaks a rule."""


@dataclass(frozen=True, kw_only=True)
class Sign:
    """Sign this request with this validity."""

    request: VerifiedRequest
    usages: tuple[str, ...]
    valid: Period


@dataclass(frozen=True, kw_only=True)
class Fail:
    """Fail the request permanently; the message is the rule's."""

    message: str


def decide(
    csr: SigningRequest, signer: Signer, *, authority_ends: datetime | Retry, longest: timedelta, now: datetime
) -> Sign | Fail | Retry | Nothing:
    """Return what to do with a request.

    `authority_ends` is when the signer's CA expires, or why there is none now.
    """
    if csr.certificate or not csr.approved or csr.failed or csr.signer != signer.name:
        return Nothing(reason=_why_not(csr, signer))
    try:
        request = csr.details()
    except RefusedRequest as error:
        return Fail(message=str(error))
    except CertificateError as error:  # the API server accepts neither a certificate nor a condition for it
        return Retry(reason=str(error))
    broken = signer.verdict(Asked(request=request, usages=csr.usages))
    if broken is not None:
        return Fail(message=broken)
    if isinstance(authority_ends, Retry):
        return authority_ends
    unknown = request_signing.unknown_usages(csr.usages)
    if unknown:
        return Retry(reason=f"a certificate cannot express the usages {', '.join(unknown)}")
    length = request_signing.duration(csr.expiration_seconds, longest=longest)
    try:
        verified = request_signing.verified(request)
        valid = request_signing.period(length, now=now, authority_ends=authority_ends)
    except CertificateError as error:
        return Retry(reason=str(error))
    return Sign(request=verified, usages=csr.usages, valid=valid)


def _why_not(csr: SigningRequest, signer: Signer) -> str:
    if csr.signer != signer.name:
        return f"it is for {csr.signer}"
    if csr.certificate:
        return "it has its certificate"
    if csr.failed:
        return "it has failed"
    return "it was denied" if csr.decided else "it waits for an approval"


def condition(message: str, *, now: datetime) -> dict[str, str]:
    """Return the condition of a request that breaks a rule."""
    return {
        "type": FAILED,
        "status": "True",
        "reason": FAILURE,
        "message": message,
        "lastUpdateTime": rfc3339(now),
    }
