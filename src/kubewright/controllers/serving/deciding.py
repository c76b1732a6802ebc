"""From a request and the evidence about it to one of five outcomes: approve, deny, wait, nothing to do, ask the sources. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from kubewright.apis.node_approval import NodeApprovalPolicy
from kubewright.base.errors import CertificateError
from kubewright.base.records import dataclass
from kubewright.controllers.requests import APPROVED, DENIED, KUBELET_SERVING, Nothing, SigningRequest
from kubewright.controllers.serving.checks import CHECKS, ServingCheck, Verdict
from kubewright.controllers.serving.evidence import NODES, Evidence, Subject

STALE_AFTER: Final = timedelta(hours=24)
"""A request that has waited for so long is denied: the kubelet has made another one long ago."""
REASON: Final = "NodeJoinPolicy"
"""The reason of an approval's condition."""
_MALFORMED: Final = CHECKS[0]
_LATE: Final = CHECKS[next(index for index, check in enumerate(CHECKS) if check.fetched) :]
"""The checks from the first one that needs fetched evidence. A request that waits for an earlier one costs no look-up."""


@dataclass(frozen=True, kw_only=True)
class Approve:
    """Approve the request. `version` is the policy's, `sources` are those that give the names to the node."""

    version: str
    sources: tuple[str, ...] = ()

    @property
    def condition(self) -> dict[str, str]:
        """The condition of the approval."""
        by = f" ({', '.join(self.sources)})" if self.sources else ""
        return {"type": APPROVED, "status": "True", "reason": REASON, "message": f"allowed by policy version {self.version}{by}"}


@dataclass(frozen=True, kw_only=True)
class Deny:
    """Deny the request permanently. `check` is the id of the check that failed."""

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
class Ask:
    """The evidence so far is not sufficient for a decision: ask the sources, then decide again."""


class Result(NamedTuple):
    """The result of one check. `problem` is '' if it passed."""

    check: ServingCheck
    problem: str


Decision = Approve | Deny | Wait | Nothing | Ask
_RENEWAL: Final = "present certificate"
_REPORTED: Final = "nodes: addresses that the node reports itself"
"""Approvals name weak evidence, because it is not checked again."""


def decide(csr: SigningRequest, evidence: Evidence, policy: NodeApprovalPolicy, *, now: datetime) -> Decision:
    """Return what to do with a request: the first check that fails decides; a request that passes all is approved.

    Without fetched evidence the other checks come first, so that sources are not asked about requests that are denied anyway.
    """
    if csr.signer != KUBELET_SERVING:
        return Nothing(reason="it is not a request for a kubelet's serving certificate")
    if csr.certificate or csr.decided:
        return Nothing(reason="it has been decided")
    failed = next((one for one in results(csr, evidence, policy) if one.problem), None)
    if evidence.fetched is None and (failed is None or (failed.check.verdict is Verdict.WAIT and failed.check in _LATE)):
        return Ask()
    if failed is None:
        return Approve(version=policy.version, sources=_sources(csr, evidence))
    check, age = failed.check, now - csr.created if csr.created is not None else timedelta()
    denies = check.verdict is Verdict.DENY or 0 < check.patience <= age.total_seconds()
    return deny_or_wait(check.id, check.reason, failed.problem, age=age, denies=denies)


def deny_or_wait(check: str, reason: str, problem: str, *, age: timedelta, denies: bool) -> Deny | Wait:
    """Return the decision after the failure of a check with this id: deny the request now, or let it wait until it is `STALE_AFTER` old."""
    if denies:
        return Deny(check=check, reason=reason, message=problem)
    if age >= STALE_AFTER:
        return Deny(check=check, reason="Stale", message=f"{problem}, and it has waited for {STALE_AFTER}")
    return Wait(check=check, reason=reason, message=problem)


def results(csr: SigningRequest, evidence: Evidence, policy: NodeApprovalPolicy) -> Iterator[Result]:
    """Yield what each check finds, in order; without fetched evidence only those that need none.

    A request that cannot be read fails the first one, and no other is tried.
    """
    try:
        details = csr.details()
    except CertificateError as error:
        yield Result(check=_MALFORMED, problem=str(error).splitlines()[0])
        return
    subject = Subject(csr=csr, details=details, evidence=evidence, policy=policy)
    for check in CHECKS:
        if evidence.fetched is not None or not check.fetched:
            yield Result(check=check, problem=check.failed(subject))


def _sources(csr: SigningRequest, evidence: Evidence) -> tuple[str, ...]:
    names = csr.details().names
    found = {evidence.owned.get(san, _RENEWAL) for san in (*names.dns, *names.addresses)}
    return tuple(sorted(_REPORTED if one == NODES else one for one in found))
