"""From a request and the evidence about it to one of four outcomes: approve, deny, wait, nothing to do. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from kubewright.apis.node_approval import NodeApprovalPolicy
from kubewright.base.errors import CertificateError
from kubewright.base.records import dataclass
from kubewright.controllers.requests import APPROVED, DENIED, KUBELET_SERVING, Nothing, SigningRequest
from kubewright.controllers.serving.checks import CHECKS, Check, Verdict
from kubewright.controllers.serving.evidence import Evidence, Subject

STALE_AFTER: Final = timedelta(hours=24)
"""A request that has waited for so long is denied: the kubelet has made another one long ago."""
REASON: Final = "NodeJoinPolicy"
"""The reason of an approval's condition."""
_MALFORMED: Final = CHECKS[0]


@dataclass(frozen=True, kw_only=True)
class Approve:
    """Approve the request. `version` is the policy's."""

    version: str

    @property
    def condition(self) -> dict[str, str]:
        """The condition of the approval."""
        return {"type": APPROVED, "status": "True", "reason": REASON, "message": f"allowed by policy version {self.version}"}


@dataclass(frozen=True, kw_only=True)
class Deny:
    """Deny the request for good. `check` is the id of the check that failed."""

    check: str
    reason: str
    message: str

    @property
    def condition(self) -> dict[str, str]:
        """The condition of the denial."""
        return {"type": DENIED, "status": "True", "reason": self.reason, "message": f"{self.reason}: {self.message}"}


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Leave the request open and check it again. `check` is the id of the check that failed."""

    check: str
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one check found. `problem` is '' if nothing is wrong."""

    check: Check
    problem: str


Decision = Approve | Deny | Wait | Nothing


def decide(csr: SigningRequest, evidence: Evidence, policy: NodeApprovalPolicy, *, now: datetime) -> Decision:
    """Return what to do with a request: the first check that fails decides; a request that passes all is approved."""
    if csr.signer != KUBELET_SERVING:
        return Nothing(reason="it is not a request for a kubelet's serving certificate")
    if csr.certificate or csr.decided:
        return Nothing(reason="it has been decided")
    failed = next((one for one in results(csr, evidence, policy) if one.problem), None)
    if failed is None:
        return Approve(version=policy.version)
    check, age = failed.check, now - csr.created if csr.created is not None else timedelta()
    if check.verdict is Verdict.DENY or (check.patience and age >= timedelta(seconds=check.patience)):
        return Deny(check=check.id, reason=check.reason, message=failed.problem)
    if age >= STALE_AFTER:
        return Deny(check=check.id, reason="Stale", message=f"{failed.problem}, and it has waited for {STALE_AFTER}")
    return Wait(check=check.id, reason=check.reason, message=failed.problem)


def results(csr: SigningRequest, evidence: Evidence, policy: NodeApprovalPolicy) -> Iterator[Result]:
    """Yield what each check finds, in order. A request that cannot be read fails the first one, and no other is tried."""
    try:
        details = csr.details()
    except CertificateError as error:
        yield Result(check=_MALFORMED, problem=str(error).splitlines()[0])
        return
    subject = Subject(csr=csr, details=details, evidence=evidence, policy=policy)
    for check in CHECKS:
        yield Result(check=check, problem=check.failed(subject))
