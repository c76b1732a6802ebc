"""The checks of a kubelet-serving request, as a table in the order of evaluation. Pure.

TLS clients compare the names in a certificate with the name or address that they dial. A node with a certificate for
another node's address can intercept the API server's connections to that node's kubelet. So every name and address must
come from a source that the node cannot write, and none may belong to another node.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from typing import Final

from kubewright.apis import formats, node_approval
from kubewright.base.messages import quoted, short
from kubewright.base.records import dataclass
from kubewright.controllers import requests
from kubewright.controllers.requests import SigningRequest
from kubewright.controllers.serving.evidence import FILE, JOIN_RECORDS, Membership, Subject
from kubewright.controllers.serving.evidence import NODES as NODES_REPORT
from kubewright.pki import node_names
from kubewright.pki.node_names import NamePolicy
from kubewright.pki.requests import request_keys
from kubewright.pki.requests.csr import NODES
from kubewright.pki.requests.request_details import COMMON_NAME, ORGANIZATION, SUBJECT_ALTERNATIVE_NAME, RequestDetails

LARGEST: Final = 8192
"""Bytes of the PEM text of a request. One with an RSA key of 4,096 bits and twenty names has 3 kB."""
MOST_DNS: Final = 4
MOST_IPS: Final = 16
MOST_AN_HOUR: Final = 12
"""Requests of one node. A kubelet whose requests are not answered sends one every 15 minutes."""
_BEGIN, _END = b"-----BEGIN CERTIFICATE REQUEST-----", b"-----END CERTIFICATE REQUEST-----"
_PURPOSE: Final = b"\x30\x0a\x06\x08\x2b\x06\x01\x05\x05\x07\x03"
"""The DER of an extended key usage with one purpose (RFC 5280 section 4.2.1.12), without the last number."""
_TOLERATED: Final = {
    "2.5.29.15": frozenset({b"\x03\x02\x07\x80", b"\x03\x02\x05\xa0"}),
    "2.5.29.19": frozenset({b"\x30\x00", b"\x30\x03\x01\x01\x00"}),
    "2.5.29.37": frozenset({_PURPOSE + b"\x01", _PURPOSE + b"\x02"}),
}
"""Requested extensions and their possible values: key usage, basic constraints, extended key usage. The signer copies none of them."""
_ENCIPHERMENT: Final = "key encipherment"


class Verdict(enum.Enum):
    """The consequence of a failed check: the request is denied permanently, or waits and is checked again."""

    DENY = "deny"
    WAIT = "wait"


@dataclass(frozen=True, kw_only=True)
class ServingCheck:
    """One check.

    `failed` returns what is wrong, '' if nothing is. `reason` is the reason of the condition, and a label of metrics. A
    request that waits for this check is denied after `patience` seconds; with 0, it may wait as long as any request.
    `fetched`: the check needs evidence from outside the cluster, and is made only after that has been requested.
    """

    id: str
    reason: str
    verdict: Verdict
    summary: str
    failed: Callable[[Subject], str]
    patience: float = 0.0
    fetched: bool = False


def _form(subject: Subject) -> str:
    text = subject.csr.request
    if len(text) > LARGEST:
        return f"the request has {len(text)} bytes, at most {LARGEST} are allowed"
    stripped = text.strip()
    if not stripped.startswith(_BEGIN) or not stripped.endswith(_END):
        return "there is text around the PEM block"
    return "" if requests.is_signed(subject.csr) else "the signature does not fit the key"


def _weak_key(subject: Subject) -> str:
    return request_keys.weakness(subject.details.public_key)


def _not_a_node(subject: Subject) -> str:
    if NODES not in subject.csr.groups:
        return f"the requester is not in the group {NODES}"
    problems = formats.subdomain_problems(subject.node)
    return f"the requester is not system:node: with a node's name: {problems[0]}" if problems else ""


def _subject_differs(subject: Subject) -> str:
    found = [(one.oid, one.text) for part in subject.details.subject for one in part]
    if sorted(found, key=str) == sorted([(ORGANIZATION, NODES), (COMMON_NAME, subject.csr.username)]):
        return ""
    return f"the subject must be exactly O={NODES}, CN={shown(subject.csr.username)}"


def usages_differ(csr: SigningRequest, details: RequestDetails, purpose: str) -> str:
    """Return what is wrong with the usages of a request for a certificate with this purpose, such as `server auth`; '' if nothing is."""
    optional = {_ENCIPHERMENT} if request_keys.is_rsa(details.public_key) else set()
    if len(csr.usages) == len(set(csr.usages)) and set(csr.usages) - optional == {"digital signature", purpose}:
        return ""
    return f"the usages must be digital signature and {purpose}, and key encipherment only for an RSA key"


def _extensions(subject: Subject) -> str:
    for one in subject.details.extensions:
        if one.oid == SUBJECT_ALTERNATIVE_NAME:
            continue
        if one.oid not in _TOLERATED:
            return f"the extension {shown(one.oid)} is not allowed"
        if one.value not in _TOLERATED[one.oid]:
            return f"the extension {shown(one.oid)} has a value that certificates of nodes do not have"
    return ""


def _san_form(subject: Subject) -> str:
    names = subject.details.names
    kinds = {"e-mail": names.emails, "URI": names.uris, "other": names.others}
    for kind, found in kinds.items():
        if found:
            return f"{kind} names are not allowed"
    if not names.ips:
        return "the request needs at least one IP address"
    if len(names.dns) > MOST_DNS or len(names.ips) > MOST_IPS:
        return f"at most {MOST_DNS} DNS names and {MOST_IPS} addresses are allowed, there are {len(names.dns)} and {len(names.ips)}"
    return "a name or address is given twice" if len(set(subject.sans)) < len(subject.sans) else ""


def _dns_form(subject: Subject) -> str:
    for name in subject.details.names.dns:
        if formats.address(name) is not None:
            return f"the DNS name {shown(name)} is an address"
        if problems := formats.subdomain_problems(name):
            return f"the DNS name {shown(name)} {problems[0]}"
    return ""


def _lifetime(subject: Subject) -> str:
    seconds, most = subject.csr.expiration_seconds, subject.policy.maximum_lifetime
    return "" if seconds is None or seconds <= most.seconds else f"expirationSeconds is {seconds}, the policy allows {most}"


def _node_missing(subject: Subject) -> str:
    node = subject.evidence.node
    if node is None:
        return f"there is no Node {subject.node}"
    return f"the Node {subject.node} is being deleted" if node.deleting else ""


def _reserved(subject: Subject) -> str:
    """Refuse reserved names, except addresses that the policy lists for the node one by one.

    A control plane needs such a row, because its address is also that of an API server, and so does a node of a local
    cluster, whose address is a loopback address. A network that contains the address is not sufficient.
    """
    policy, evidence = subject.policy, subject.evidence
    names = NamePolicy(
        reserved=policy.reserved_names | (evidence.api_servers - evidence.listed),
        networks=(*policy.reserved_networks, *evidence.networks),
        domain=policy.cluster_domain,
    )
    return _first_broken(subject, "ReservedName", names, skipped={one for one in evidence.listed if _is_own_loopback(one)})


def _is_own_loopback(address: str) -> bool:
    found = formats.address(address)
    return found is not None and found.is_loopback and address not in node_names.LOOPBACKS


def _pod_address(subject: Subject) -> str:
    """Refuse addresses in the pod range of a Node, unless the policy lists them one by one or an independent source has them.

    A network of the policy is not sufficient, because it may contain pods. Nodes may choose their pod ranges themselves.
    """
    evidence = subject.evidence
    for address in subject.details.names.addresses:
        given = address in evidence.listed or evidence.owned.get(address, FILE) not in {FILE, NODES_REPORT}
        if not given and node_approval.contains(evidence.pods, address):
            return f"{shown(address)} is in the pod range of a Node, and no source gives it to {subject.node} by itself"
    return ""


def _foreign(subject: Subject) -> str:
    return _first_broken(subject, "ForeignName", NamePolicy(foreign=subject.evidence.others))


def _first_broken(subject: Subject, rule: str, names: NamePolicy, skipped: Collection[str] = ()) -> str:
    broken = ((san, node_names.broken(rule, san, subject.node, names)) for san in subject.sans if san not in skipped)
    return next((f"{shown(san)} {problem}" for san, problem in broken if problem), "")


def _records_unavailable(subject: Subject) -> str:
    problems = [f"{one.source} ({one.problem})" for one in subject.fetched.answers if one.problem and one.source == JOIN_RECORDS]
    return f"no answer from {problems[0]}" if problems else ""


def _membership(*kinds: Membership) -> Callable[[Subject], str]:
    def failed(subject: Subject) -> str:
        found = next((one.membership for one in subject.fetched.answers if one.membership in kinds), None)
        return f"{subject.node}: {found.value}" if found is not None else ""

    return failed


def _unavailable(subject: Subject) -> str:
    """Let the request wait while a source that might contradict the Node's own report does not answer."""
    silent, doubtful = subject.evidence.unavailable, subject.evidence.doubtful(subject.sans)
    return f"no answer from {', '.join(silent)}" if silent and doubtful and not _is_renewal(subject) else ""


def _not_owned(subject: Subject) -> str:
    missing = _unowned(subject)
    return f"no source of the policy gives {shown(missing[0])} to {subject.node}" if missing else ""


def _unowned(subject: Subject) -> list[str]:
    """Return the names that no source gives to the node; none if its present certificate has all of them."""
    return [] if _is_renewal(subject) else [san for san in subject.sans if san not in subject.evidence.owned]


def _is_renewal(subject: Subject) -> bool:
    present = subject.evidence.certified | subject.fetched.present_names
    return subject.policy.renewal == node_approval.CERTIFICATE and present.issuperset(subject.sans)


def _name_unresolved(subject: Subject) -> str:
    unknown = [name for name, found in subject.fetched.resolved.items() if found is None]
    return f"{shown(unknown[0])} could not be looked up" if unknown and not _is_renewal(subject) else ""


def _dns_differs(subject: Subject) -> str:
    if _is_renewal(subject):
        return ""
    own, nodes = set(subject.details.names.addresses), subject.policy.node_networks
    for name, found in subject.fetched.resolved.items():
        if not own & (found or set()):
            return f"{shown(name)} resolves to none of the addresses of the request"
        for address in sorted(found or ()):
            if address not in own and not node_approval.contains(nodes, address):
                return f"{shown(name)} also resolves to {address}, which is neither in the request nor in nodeCIDRs"
    return ""


def _in_use(subject: Subject) -> str:
    others = {address: name for address, name in subject.fetched.present.items() if name != subject.csr.username}
    return next((f"at {address} there is the kubelet of {shown(name)}" for address, name in others.items()), "")


def _not_reported(subject: Subject) -> str:
    node = subject.evidence.node
    missing = next((san for san in subject.sans if node is None or san not in node.reported), None)
    return "" if missing is None else f"the Node {subject.node} does not report {shown(missing)}"


def _key_reuse(subject: Subject) -> str:
    return f"the key was used before: {subject.evidence.key_holder}" if subject.evidence.key_holder else ""


def _superseded(subject: Subject) -> str:
    return f"{subject.csr.username} has sent {shown(subject.evidence.newer)} since" if subject.evidence.newer else ""


def _too_many(subject: Subject) -> str:
    found = subject.evidence.recent
    return f"{found} requests within an hour, at most {MOST_AN_HOUR} are checked" if found > MOST_AN_HOUR else ""


def _outside(subject: Subject) -> str:
    policy = subject.policy
    if policy.node_networks:
        for address in subject.details.names.addresses:
            if not node_approval.contains(policy.node_networks, address):
                return f"{shown(address)} is in none of the nodeCIDRs"
    if policy.dns_suffixes:
        for name in subject.details.names.dns:
            if name != subject.node and not any(name.endswith(f".{suffix}") for suffix in policy.dns_suffixes):
                return f"{shown(name)} is in none of the dnsSuffixes"
    return ""


def shown(text: str) -> str:
    """Return at most 64 characters of a requester's text, in quotes."""
    return quoted(short(text))


DENY, WAIT = Verdict.DENY, Verdict.WAIT
CHECKS: Final = (
    ServingCheck(id="S1", reason="Malformed", verdict=DENY, summary="one PEM block of at most 8 KiB, signed by its own key", failed=_form),
    ServingCheck(id="S2", reason="WeakKey", verdict=DENY, summary="a strong key", failed=_weak_key),
    ServingCheck(id="S3", reason="NotANode", verdict=DENY, summary="the requester is a node", failed=_not_a_node),
    ServingCheck(id="S4", reason="SubjectMismatch", verdict=DENY, summary="the subject is exactly the requester", failed=_subject_differs),
    ServingCheck(
        id="S5",
        reason="Usages",
        verdict=DENY,
        summary="usages of a server certificate",
        failed=lambda subject: usages_differ(subject.csr, subject.details, "server auth"),
    ),
    ServingCheck(id="S6", reason="Extensions", verdict=DENY, summary="no extension but names and usages", failed=_extensions),
    ServingCheck(id="S7", reason="SanForm", verdict=DENY, summary="only DNS names and addresses, no more than needed", failed=_san_form),
    ServingCheck(id="S8", reason="SanForm", verdict=DENY, summary="DNS names in lower case without wildcards", failed=_dns_form),
    ServingCheck(id="R1", reason="Superseded", verdict=DENY, summary="the newest request of its node", failed=_superseded),
    ServingCheck(id="R2", reason="TooManyRequests", verdict=WAIT, summary="not too many requests of its node", failed=_too_many),
    ServingCheck(id="S9", reason="Lifetime", verdict=DENY, summary="no longer than the policy allows", failed=_lifetime),
    ServingCheck(id="S10", reason="NodeMissing", verdict=WAIT, summary="the Node exists", failed=_node_missing),
    ServingCheck(
        id="S11a", reason="RecordUnavailable", verdict=WAIT, summary="the join records answered", failed=_records_unavailable, fetched=True
    ),
    ServingCheck(
        id="S11b",
        reason="NoRecord",
        verdict=WAIT,
        summary="the node has a join record, if the policy requires one",
        failed=_membership(Membership.NO_RECORD),
        fetched=True,
    ),
    ServingCheck(
        id="S11", reason="Revoked", verdict=DENY, summary="the node has not left", failed=_membership(Membership.LEFT), fetched=True
    ),
    ServingCheck(
        id="S11c",
        reason="UnknownCredential",
        verdict=DENY,
        summary="the requester's certificate was issued to it",
        failed=_membership(Membership.OTHER_CREDENTIAL),
        fetched=True,
    ),
    ServingCheck(id="S12", reason="ReservedName", verdict=DENY, summary="no name of the control plane or of Services", failed=_reserved),
    ServingCheck(
        id="S12a", reason="ReservedName", verdict=DENY, summary="no address of pods, as far as Nodes say", failed=_pod_address, fetched=True
    ),
    ServingCheck(id="S13", reason="ForeignName", verdict=DENY, summary="no name of another node", failed=_foreign, fetched=True),
    ServingCheck(id="S14a", reason="OutsidePolicy", verdict=DENY, summary="within nodeCIDRs and dnsSuffixes", failed=_outside),
    ServingCheck(id="S14b", reason="SourceUnavailable", verdict=WAIT, summary="every source answered", failed=_unavailable, fetched=True),
    ServingCheck(
        id="S14",
        reason="NotOwned",
        verdict=WAIT,
        summary="a source gives every name to the node",
        failed=_not_owned,
        patience=600.0,
        fetched=True,
    ),
    ServingCheck(id="S15", reason="NotReported", verdict=WAIT, summary="the Node reports every name", failed=_not_reported),
    ServingCheck(
        id="S16a", reason="DnsUnavailable", verdict=WAIT, summary="every name could be looked up", failed=_name_unresolved, fetched=True
    ),
    ServingCheck(
        id="S16", reason="DnsMismatch", verdict=WAIT, summary="every name resolves to the node alone", failed=_dns_differs, fetched=True
    ),
    ServingCheck(id="S17", reason="AddressInUse", verdict=DENY, summary="no kubelet of another node answers", failed=_in_use, fetched=True),
    ServingCheck(id="S18", reason="KeyReuse", verdict=DENY, summary="a key that was not used before", failed=_key_reuse),
)
"""In this order; the first one that fails decides. A row without a test that fails without it is a mistake."""
