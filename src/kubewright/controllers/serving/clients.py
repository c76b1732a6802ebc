"""The checks of a node's request for a client certificate, for clusters with `clients: strict`. Pure.

The stock approver gives every holder of a bootstrap token a certificate for any node name, even that of an existing
node. Here a token is valid only for the nodes that the policy names, for one key, and for names that are not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Final

from kubewright.apis.node_approval import HUMAN, NodeApprovalPolicy
from kubewright.base.errors import CertificateError
from kubewright.base.records import dataclass
from kubewright.controllers.requests import CLIENT_KUBELET, Nothing, SigningRequest
from kubewright.controllers.serving import checks
from kubewright.controllers.serving.checks import DENY, WAIT, Verdict
from kubewright.controllers.serving.deciding import Approve, Decision, Deny, Wait, deny_or_wait
from kubewright.controllers.serving.evidence import Answer, Evidence, Fetched, Subject, node_of
from kubewright.pki import node_names
from kubewright.pki.node_names import NamePolicy
from kubewright.pki.requests.csr import NODES
from kubewright.pki.requests.request_details import COMMON_NAME, ORGANIZATION, RequestDetails

BY_PERSON: Final = "C5"
"""The id of the check that a person's approval replaces."""
AWAITING: Final = "AwaitingApproval"
BOOTSTRAP_USER: Final = "system:bootstrap:"
_NEW_ROW: Final = 5.0
"""Seconds before a missing row leads to a denial, which is permanent: the row may have been written just before its token was used."""


@dataclass(frozen=True, kw_only=True)
class ClientEvidence:
    """Evidence about one request: who has its name, its token and its key, and earlier requests."""

    exists: bool = False
    """Whether there is a Node of this name."""
    name_key: bool = False
    """Whether a certificate for this name, but with another key, was approved."""
    token_key: str = ""
    """How the token was used with another key, as a sentence; '' if it was not."""
    key_holder: str = ""
    """Another user or purpose for which the same key was used before; '' if there is none."""
    used: bool = False
    """Whether an earlier request with the same key was approved."""
    newer: str = ""
    """A newer open request of the same node; '' if there is none."""
    recent: int = 0
    """How many requests the node has sent within the last hour."""
    records: Answer | None = None
    """The answer of the join records about the name; None if they were not asked."""


@dataclass(frozen=True, kw_only=True)
class ClientSubject:
    """The input of the checks."""

    csr: SigningRequest
    details: RequestDetails
    evidence: ClientEvidence
    policy: NodeApprovalPolicy

    @property
    def node(self) -> str:
        """The node that the certificate would be for."""
        return node_of(self.details.common_name)

    @property
    def is_renewal(self) -> bool:
        """Whether the requester is a node already."""
        return bool(node_of(self.csr.username))

    @property
    def token(self) -> str:
        """The id of the requester's bootstrap token, '' for another requester."""
        return token_of(self.csr)

    @property
    def shared(self) -> Subject:
        """The input of the checks that also apply to requests for serving certificates."""
        answers = (self.evidence.records,) if self.evidence.records is not None else ()
        own = self.evidence
        found = Evidence(key_holder=own.key_holder, newer=own.newer, recent=own.recent, fetched=Fetched(answers=answers))
        return Subject(csr=self.csr, details=self.details, evidence=found, policy=self.policy)


@dataclass(frozen=True, kw_only=True)
class ClientCheck:
    """One check, as in `checks.ServingCheck`: a request that is younger than `patience` seconds waits instead of being denied."""

    id: str
    reason: str
    verdict: Verdict
    summary: str
    failed: Callable[[ClientSubject], str]
    patience: float = 0


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of one check. `problem` is '' if it passed."""

    check: ClientCheck
    problem: str


def _subject_differs(subject: ClientSubject) -> str:
    found = [(one.oid, one.text) for part in subject.details.subject for one in part]
    wanted = subject.csr.username if subject.is_renewal else f"system:node:{subject.node}"
    if subject.node and sorted(found, key=str) == sorted([(ORGANIZATION, NODES), (COMMON_NAME, wanted)]):
        return ""
    return f"the subject must be exactly O={NODES}, CN={'its own name' if subject.is_renewal else 'system:node:NAME'}"


def _has_names(subject: ClientSubject) -> str:
    names = subject.details.names
    return "alternative names are not allowed" if names.dns or names.emails or names.ips or names.uris or names.others else ""


def _not_renewable(subject: ClientSubject) -> str:
    if not subject.is_renewal:
        return ""
    if NODES not in subject.csr.groups:
        return f"the requester is not in the group {NODES}"
    return "the key was used for an earlier certificate" if subject.evidence.used else ""


def _token_unfit(subject: ClientSubject) -> str:
    if subject.is_renewal:
        return ""
    return subject.evidence.token_key if subject.token else "the requester is neither a node nor a bootstrap token"


def _token_unlisted(subject: ClientSubject) -> str:
    row = subject.policy.row(subject.node)
    if subject.is_renewal or (row is not None and subject.token in row.tokens):
        return ""
    return f"the policy gives this bootstrap token to no node {checks.shown(subject.node)}"


def _name_form(subject: ClientSubject) -> str:
    names = NamePolicy(reserved=subject.policy.reserved_names, domain=subject.policy.cluster_domain)
    refused = node_names.node_name_refused(subject.node, names)
    return f"the name {checks.shown(subject.node)} is reserved, or cannot be a node's" if refused is not None else ""


def _name_taken(subject: ClientSubject) -> str:
    if subject.is_renewal:
        return ""
    if subject.evidence.exists:
        return f"there is a Node {checks.shown(subject.node)}: delete it if its machine is gone"
    records = subject.evidence.records
    if records is not None and (subject.node in records.gives or subject.node in records.foreign):
        return f"a node with the name {checks.shown(subject.node)} has joined through the hub: let it leave if its machine is gone"
    if subject.evidence.name_key:
        return f"{checks.shown(subject.node)} has a certificate with another key: approve the request by hand if that key is lost"
    return ""


def _awaits_person(subject: ClientSubject) -> str:
    return "the policy wants a person to approve it" if subject.policy.approval == HUMAN and not subject.is_renewal else ""


def _shared(id_: str) -> Callable[[ClientSubject], str]:
    [check] = [one for one in checks.CHECKS if one.id == id_]
    return lambda subject: check.failed(subject.shared)


def _renewed(id_: str) -> Callable[[ClientSubject], str]:
    failed = _shared(id_)
    return lambda subject: failed(subject) if subject.is_renewal else ""


CHECKS: Final = (
    ClientCheck(
        id="C1a", reason="Malformed", verdict=DENY, summary="one PEM block of at most 8 KiB, signed by its own key", failed=_shared("S1")
    ),
    ClientCheck(id="C1b", reason="WeakKey", verdict=DENY, summary="a strong key", failed=_shared("S2")),
    ClientCheck(id="C1c", reason="SubjectMismatch", verdict=DENY, summary="the subject is exactly a node", failed=_subject_differs),
    ClientCheck(id="C1d", reason="Extensions", verdict=DENY, summary="no extension but usages", failed=_shared("S6")),
    ClientCheck(id="C1e", reason="SanForm", verdict=DENY, summary="no alternative names", failed=_has_names),
    ClientCheck(
        id="C1f",
        reason="Usages",
        verdict=DENY,
        summary="usages of a client certificate",
        failed=lambda subject: checks.usages_differ(subject.csr, subject.details, "client auth"),
    ),
    ClientCheck(id="C1g", reason="Lifetime", verdict=DENY, summary="no longer than the policy allows", failed=_shared("S9")),
    ClientCheck(id="C6", reason="ReservedName", verdict=DENY, summary="a name that nodes may have", failed=_name_form),
    ClientCheck(id="C2", reason="Renewal", verdict=DENY, summary="a renewal by the node itself, with a new key", failed=_not_renewable),
    ClientCheck(id="C2a", reason="Superseded", verdict=DENY, summary="the newest request of its node", failed=_renewed("R1")),
    ClientCheck(id="C2b", reason="TooManyRequests", verdict=WAIT, summary="not too many requests of its node", failed=_renewed("R2")),
    ClientCheck(id="C3", reason="TokenNotAllowed", verdict=DENY, summary="a token that no other key was used with", failed=_token_unfit),
    ClientCheck(
        id="C3a",
        reason="TokenNotAllowed",
        verdict=DENY,
        summary="a token that the policy gives to this node",
        failed=_token_unlisted,
        patience=_NEW_ROW,
    ),
    ClientCheck(id="C1h", reason="KeyReuse", verdict=DENY, summary="a key that no one else has used", failed=_shared("S18")),
    ClientCheck(id="C2c", reason="RecordUnavailable", verdict=WAIT, summary="the join records answered", failed=_shared("S11a")),
    ClientCheck(
        id="C2d",
        reason="NoRecord",
        verdict=WAIT,
        summary="a node that renews has a join record, if the policy requires one",
        failed=_renewed("S11b"),
    ),
    ClientCheck(id="C2e", reason="Revoked", verdict=DENY, summary="a node that renews has not left", failed=_renewed("S11")),
    ClientCheck(
        id="C2f",
        reason="UnknownCredential",
        verdict=DENY,
        summary="the certificate of a node that renews was issued to it",
        failed=_renewed("S11c"),
    ),
    ClientCheck(id="C4", reason="NameTaken", verdict=WAIT, summary="a name that is not taken", failed=_name_taken),
    ClientCheck(id=BY_PERSON, reason=AWAITING, verdict=WAIT, summary="approved by a person, if the policy wants it", failed=_awaits_person),
)
"""In this order; the first one that fails decides. A row without a test that fails without it is a mistake."""
_MALFORMED: Final = CHECKS[0]


def token_of(csr: SigningRequest) -> str:
    """Return the id of the requester's bootstrap token, '' for another requester."""
    return csr.username.removeprefix(BOOTSTRAP_USER) if csr.username.startswith(BOOTSTRAP_USER) else ""


def decide(csr: SigningRequest, evidence: ClientEvidence, policy: NodeApprovalPolicy, *, now: datetime) -> Approve | Deny | Wait | Nothing:
    """Return what to do with a request: the first check that fails decides; a request that passes all is approved."""
    if csr.signer != CLIENT_KUBELET:
        return Nothing(reason="it is not a request for a node's client certificate")
    if csr.certificate or csr.decided:
        return Nothing(reason="it has been decided")
    failed = next((one for one in results(csr, evidence, policy) if one.problem), None)
    if failed is None:
        return Approve(version=policy.version)
    age = now - csr.created if csr.created is not None else timedelta()
    may_change = csr.created is not None and age < timedelta(seconds=failed.check.patience)
    return deny_or_wait(
        failed.check.id, failed.check.reason, failed.problem, age=age, denies=failed.check.verdict is DENY and not may_change
    )


def depends_on_records(decision: Decision) -> bool:
    """Whether join records, if they were not asked, may change a decision."""
    return isinstance(decision, Approve) or (isinstance(decision, Wait) and decision.check == BY_PERSON)


def results(csr: SigningRequest, evidence: ClientEvidence, policy: NodeApprovalPolicy) -> Iterator[Result]:
    """Yield what each check finds, in order. A request that cannot be read fails the first one, and no other is tried."""
    try:
        details = csr.details()
    except CertificateError as error:
        yield Result(check=_MALFORMED, problem=str(error).splitlines()[0])
        return
    subject = ClientSubject(csr=csr, details=details, evidence=evidence, policy=policy)
    for check in CHECKS:
        yield Result(check=check, problem=check.failed(subject))
