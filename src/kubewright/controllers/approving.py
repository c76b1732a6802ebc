"""csrapproving: approve client certificate requests of nodes whose requester is allowed to make them.

Source: Kubernetes v1.36, pkg/controller/certificates/approver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kubewright.base.errors import CertificateError
from kubewright.base.records import dataclass
from kubewright.controllers.requests import APPROVED, Nothing, Retry, SigningRequest
from kubewright.controllers.signers import KUBELET_CLIENT_SIGNER, Asked, Signer
from kubewright.kube.core import Object
from kubewright.kube.daemons.delegation import User, access_review
from kubewright.pki.requests.request_details import RefusedRequest, RequestDetails


@dataclass(frozen=True, kw_only=True)
class AccessReview:
    """Evidence: whether the requester may create this subresource of CertificateSigningRequests."""

    subresource: str


@dataclass(frozen=True, kw_only=True)
class Recognizer:
    """One kind of request that is approved.

    Its signer, further conditions, the evidence that it needs, and the condition's message. A request that breaks a
    rule of its signer is never recognized. Evidence is gathered before the decision, which is pure.
    """

    signer: Signer
    evidence: AccessReview
    message: str
    matches: Callable[[SigningRequest, RequestDetails], bool] = lambda _csr, _request: True

    def recognizes(self, csr: SigningRequest, request: RequestDetails) -> bool:
        """Whether the request is of this kind."""
        asked = Asked(request=request, usages=csr.usages)
        return csr.signer == self.signer.name and self.matches(csr, request) and self.signer.verdict(asked) is None


@dataclass(frozen=True, kw_only=True)
class Ask:
    """Find out first whether the requester may create this subresource."""

    subresource: str


@dataclass(frozen=True, kw_only=True)
class Approve:
    """Approve the request with this message."""

    message: str


RECOGNIZERS: Final = (
    Recognizer(
        signer=KUBELET_CLIENT_SIGNER,
        evidence=AccessReview(subresource="selfnodeclient"),
        message="Auto approving self kubelet client certificate after SubjectAccessReview.",
        matches=lambda csr, request: csr.username == request.common_name,
    ),
    Recognizer(
        signer=KUBELET_CLIENT_SIGNER,
        evidence=AccessReview(subresource="nodeclient"),
        message="Auto approving kubelet client certificate after SubjectAccessReview.",
    ),
)
"""Tried in this order: a renewal that the first recognizer may not approve may still be allowed by the second."""


def decide(csr: SigningRequest, answers: Mapping[str, bool]) -> Approve | Ask | Retry | Nothing:
    """Return what to do with a request.

    `answers` maps the subresources already asked about to whether they are allowed.
    """
    if csr.certificate or csr.decided:
        return Nothing(reason="it has been decided")
    try:
        request = csr.details()
    except RefusedRequest as error:
        return Nothing(reason=str(error))
    except CertificateError as error:
        return Retry(reason=str(error))
    recognized = [row for row in RECOGNIZERS if row.recognizes(csr, request)]
    for row in recognized:
        subresource = row.evidence.subresource
        if subresource not in answers:
            return Ask(subresource=subresource)
        if answers[subresource]:
            return Approve(message=row.message)
    if not recognized:
        return Nothing(reason="it is not a node's request for a client certificate, so it needs another approver")
    tried = " ".join(row.evidence.subresource for row in recognized)
    return Retry(reason=f"{csr.username} may not create certificatesigningrequests/[{tried}]", expected=True)


def condition(message: str) -> dict[str, str]:
    """Return the condition of an approval."""
    return {"type": APPROVED, "status": "True", "reason": "AutoApproved", "message": message}


def question(csr: SigningRequest, subresource: str) -> tuple[User, str]:
    """Return the key of a review: equal for two requests of the same requester."""
    extra = tuple(sorted((key, tuple(values)) for key, values in csr.extra.items()))
    return User(name=csr.username, uid=csr.uid, groups=csr.groups, extra=extra), subresource


def review(csr: SigningRequest, subresource: str) -> Object:
    """Return the SubjectAccessReview of the requester, with the identity that the API server recorded."""
    maker, _ = question(csr, subresource)
    attributes = {
        "group": "certificates.k8s.io",
        "resource": "certificatesigningrequests",
        "subresource": subresource,
        "verb": "create",
        "version": "*",
    }
    return access_review(maker, resourceAttributes=attributes)
