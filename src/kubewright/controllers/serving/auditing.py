"""Compares a serving certificate that is in use with the policy, to find names that are not the node's own. Pure.

The same checks decide about requests. Those about keys, order and times of a request do not apply to a certificate, and
neither does the rule that the names of a present certificate need no source.
"""

from __future__ import annotations

import ipaddress
from typing import Final

from kubewright.apis.node_approval import NodeApprovalPolicy
from kubewright.base.records import dataclass, field, replace
from kubewright.controllers.requests import KUBELET_SERVING, SigningRequest
from kubewright.controllers.serving.checks import CHECKS
from kubewright.controllers.serving.evidence import Evidence, Subject
from kubewright.pki.certificates import Certificate
from kubewright.pki.encoding.distinguished_names import Attribute
from kubewright.pki.requests.csr import NODES
from kubewright.pki.requests.request_details import COMMON_NAME, ORGANIZATION, RequestDetails, RequestNames

AUDITED: Final = frozenset({"S4", "S7", "S8", "S11", "S12", "S12a", "S13", "S14a", "S14b", "S14"})
"""The checks of names and of the node."""
USER: Final = "system:node:"


@dataclass(frozen=True, kw_only=True)
class CertificateInForce(SigningRequest):
    """A certificate as if its node requested it now: the checks use its subject and names."""

    presented: RequestDetails = field(repr=False)

    def details(self) -> RequestDetails:
        """Return the contents of the certificate."""
        return self.presented


def in_force(node: str, found: Certificate) -> CertificateInForce:
    """Return a certificate for the checks. `node` is the node whose kubelet has it."""
    subject = [(ORGANIZATION, text) for text in found.organizations] + [(COMMON_NAME, found.common_name)]
    presented = RequestDetails(
        der=found.der,
        signed=b"",
        public_key=found.public_key,
        signature_algorithm="",
        signature=b"",
        subject=tuple((Attribute(oid=oid, text=text),) for oid, text in subject),
        extensions=(),
        names=RequestNames(dns=tuple(found.names.dns), ips=tuple(ipaddress.ip_address(ip).packed for ip in found.names.ips)),
    )
    return CertificateInForce(name="", signer=KUBELET_SERVING, request=b"", username=f"{USER}{node}", groups=(NODES,), presented=presented)


def problems(found: CertificateInForce, evidence: Evidence, policy: NodeApprovalPolicy) -> list[str]:
    """Return what is wrong with a certificate, each with the reason of the check."""
    fetched = replace(evidence.fetched, present_names=frozenset()) if evidence.fetched is not None else None
    subject = Subject(csr=found, details=found.presented, evidence=replace(evidence, certified=frozenset(), fetched=fetched), policy=policy)
    results = ((check.reason, check.failed(subject)) for check in CHECKS if check.id in AUDITED)
    return [f"{reason}: {problem}" for reason, problem in results if problem]
