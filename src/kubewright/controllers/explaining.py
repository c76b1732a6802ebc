"""Explain what each controller would decide about a request, and why, without writing anything."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from kubewright.apis.node_approval import NodeApprovalPolicy
from kubewright.base.clock import rfc3339
from kubewright.base.errors import CertificateError
from kubewright.base.records import dataclass
from kubewright.controllers import approving, cleaning, signers, signing
from kubewright.controllers.approving import Approve, Ask
from kubewright.controllers.requests import Nothing, Retry, SigningRequest
from kubewright.controllers.serving import clients, deciding
from kubewright.controllers.serving.clients import ClientEvidence
from kubewright.controllers.serving.evidence import Evidence
from kubewright.controllers.signing import Fail, Sign
from kubewright.pki.requests import request_signing
from kubewright.pki.requests.request_details import RequestDetails

DEFAULT_LONGEST = timedelta(hours=8760)
_FOREVER = timedelta(days=36500)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The decision that one controller would make."""

    controller: str
    outcome: str
    reason: str = ""

    def as_map(self) -> dict[str, str]:
        """Return the machine-readable form."""
        return {"controller": self.controller, "outcome": self.outcome, "reason": self.reason}


def explain(csr: SigningRequest, *, answers: Mapping[str, bool], now: datetime) -> list[Prediction]:
    """Return what the approver, the signer and the cleaner would decide now. `answers` says which subresources the requester may create."""
    found = [_approver(csr, answers)]
    signer = signers.named(csr.signer)
    if signer is None:
        found.append(Prediction(controller="csrsigning", outcome="nothing", reason=f"{csr.signer} is not one of its signers"))
    else:
        decision = signing.decide(csr, signer, authority_ends=now + _FOREVER, longest=DEFAULT_LONGEST, now=now)
        found.append(_signer(signer.controller, decision, _rule(csr, signer)))
    gone = cleaning.decide(csr, now=now)
    found.append(Prediction(controller="csrcleaner", outcome="delete" if gone else "nothing", reason=gone or ""))
    return found


def _approver(csr: SigningRequest, answers: Mapping[str, bool]) -> Prediction:
    decision = approving.decide(csr, answers)
    match decision:
        case Approve(message=message):
            return Prediction(controller="csrapproving", outcome="approve", reason=message)
        case Ask(subresource=subresource):
            why = f"if its requester may create certificatesigningrequests/{subresource}"
            return Prediction(controller="csrapproving", outcome="approve", reason=why)
    outcome = "nothing" if isinstance(decision, Nothing) else "try again"
    return Prediction(controller="csrapproving", outcome=outcome, reason=decision.reason)


def _rule(csr: SigningRequest, signer: signers.Signer) -> str | None:
    """Return the signer's rule that the request breaks, even before it is approved."""
    try:
        return signer.verdict(signers.Asked(request=csr.details(), usages=csr.usages))
    except CertificateError:
        return None


def _signer(controller: str, decision: Sign | Fail | Retry | Nothing, rule: str | None) -> Prediction:
    match decision:
        case Sign(valid=valid):
            return Prediction(controller=controller, outcome="sign", reason=f"until {rfc3339(valid.not_after)} at most")
        case Fail(message=message):
            return Prediction(controller=controller, outcome="fail", reason=message)
    outcome = "nothing" if isinstance(decision, Nothing) else "try again"
    later = f"; once it is approved it fails: {rule}" if rule is not None and outcome == "nothing" and "approval" in decision.reason else ""
    return Prediction(controller=controller, outcome=outcome, reason=decision.reason + later)


def serving_approver(csr: SigningRequest, evidence: Evidence, policy: NodeApprovalPolicy, *, now: datetime) -> Prediction:
    """Return what the approver of serving certificates would decide now."""
    return _by_policy("servingapproving", deciding.decide(csr, evidence, policy, now=now))


def client_approver(csr: SigningRequest, evidence: ClientEvidence, policy: NodeApprovalPolicy, *, now: datetime) -> Prediction:
    """Return what the approver of nodes' client certificates would decide now. Policies with `clients: stock` leave them alone."""
    return _by_policy("clientapproving", clients.decide(csr, evidence, policy, now=now))


def _by_policy(controller: str, decision: deciding.Decision) -> Prediction:
    match decision:
        case deciding.Approve(version=version):
            outcome, reason = "approve", f"policy version {version} allows it"
        case deciding.Deny(reason=word, message=message):
            outcome, reason = "deny", f"{word}: {message}"
        case deciding.Wait(reason=word, message=message):
            outcome, reason = "wait", f"{word}: {message}"
        case Nothing(reason=reason):
            outcome = "nothing"
        case deciding.Ask():
            outcome, reason = "ask", "its sources have to be asked"
    return Prediction(controller=controller, outcome=outcome, reason=reason)


def serving_checks(csr: SigningRequest, evidence: Evidence, policy: NodeApprovalPolicy) -> list[dict[str, str]]:
    """Return what each check of the approver of serving certificates finds, in order."""
    return [_row(one) for one in deciding.results(csr, evidence, policy)]


def client_checks(csr: SigningRequest, evidence: ClientEvidence, policy: NodeApprovalPolicy) -> list[dict[str, str]]:
    """Return what each check of the approver of nodes' client certificates finds, in order."""
    return [_row(one) for one in clients.results(csr, evidence, policy)]


def _row(found: deciding.Result | clients.Result) -> dict[str, str]:
    check = found.check
    result = check.verdict.value if found.problem else "passed"
    return {"id": check.id, "result": result, "reason": check.reason, "summary": check.summary, "problem": found.problem}


def source_answers(evidence: Evidence) -> list[dict[str, str]]:
    """Return what each source has answered."""
    answers = evidence.fetched.answers if evidence.fetched is not None else ()
    return [
        {
            "source": one.source,
            "gives": ",".join(sorted(one.gives)),
            "others": ",".join(f"{san}={node}" for san, node in sorted(one.foreign.items())),
            "problem": one.problem or (one.membership.value if one.membership is not None else ""),
        }
        for one in answers
    ]


def contents(request: RequestDetails) -> dict[str, object]:
    """Return everything that a request asks for as plain data."""
    return {
        "subject": [[{"oid": one.oid, "value": one.text} for one in part] for part in request.subject],
        "commonName": request.common_name,
        "organizations": list(request.organizations),
        "dnsNames": list(request.names.dns),
        "ipAddresses": list(request.names.addresses),
        "emailAddresses": list(request.names.emails),
        "uris": list(request.names.uris),
        "otherNames": list(request.names.others),
        "extensions": [{"oid": one.oid, "critical": one.critical} for one in request.extensions],
        "signatureValid": request_signing.signature_valid(request),
    }
