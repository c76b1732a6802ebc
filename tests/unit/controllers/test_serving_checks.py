"""Each check of a kubelet-serving request: what fails it, what passes it, and what becomes of the request."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from controllers_kit import NODES, NOW, condition, extension, request
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from serving_kit import DNS, IP, SANS, USER, evidence, policy, serving

from kubewright.apis import formats, node_approval
from kubewright.base.records import replace
from kubewright.controllers.requests import Nothing, SigningRequest
from kubewright.controllers.serving import checks, clients, deciding
from kubewright.controllers.serving.deciding import Approve, Ask, Deny, Wait, decide
from kubewright.controllers.serving.evidence import Answer, Evidence, Fetched, KnownNode, Membership
from kubewright.pki.requests import request_keys

LATER = NOW + timedelta(minutes=11)
P224 = ec.generate_private_key(ec.SECP224R1())
V6 = ("ip", formats.address("2001:db8::7").packed)
MAPPED = ("ip", b"\0" * 10 + b"\xff\xff" + IP[1])
REPORTS = KnownNode(name="a", reported=frozenset(SANS))


def names(*sans: tuple[str, Any], **fields: Any) -> SigningRequest:
    return serving(request(names=sans, **fields))


def owning(*sans: str, **fields: Any) -> Evidence:
    """Evidence with which these names are the node's own."""
    return evidence(owned=dict.fromkeys(sans, "file"), node=KnownNode(name="a", reported=frozenset(sans)), **fields)


def fetching(*answers: Answer, **fields: Any) -> Evidence:
    """Evidence together with the answers of sources."""
    return evidence(fetched=None, **fields).completed(Fetched(answers=answers))


def resolving(found: dict[str, frozenset[str] | None]) -> Evidence:
    return evidence(fetched=Fetched(resolved=found))


PODS = tuple(formats.subnets("10.1.0.0/16"))
SILENT = Answer(source="webhook", problem="no answer within 5s")
DENIED = [
    ("S1", "Malformed", serving(b"junk"), evidence()),
    ("S1", "Malformed", serving(b"text\n" + request(names=(DNS, IP))), evidence()),
    ("S1", "Malformed", serving(request(names=(DNS, IP)) + b"text"), evidence()),
    ("S1", "Malformed", serving(2 * request(names=(DNS, IP))), evidence()),
    ("S1", "Malformed", serving(request(names=(DNS, IP), good=False)), evidence()),
    ("S1", "Malformed", names(*[("dns", f"{'x' * 60}{number}.a") for number in range(99)], IP), evidence()),
    ("S2", "WeakKey", names(DNS, IP, key=P224), evidence()),
    ("S3", "NotANode", serving(username="system:bootstrap:abcdef"), evidence()),
    ("S3", "NotANode", serving(groups=("system:authenticated",)), evidence()),
    ("S3", "NotANode", serving(username="system:node:A"), evidence()),
    ("S3", "NotANode", serving(username="system:node:"), evidence()),
    ("S4", "SubjectMismatch", serving(username="system:node:b"), evidence()),
    ("S4", "SubjectMismatch", names(DNS, IP, subject=(("2.5.4.3", USER),)), evidence()),
    ("S4", "SubjectMismatch", names(DNS, IP, subject=(("2.5.4.10", NODES), ("2.5.4.10", "x"), ("2.5.4.3", USER))), evidence()),
    ("S4", "SubjectMismatch", names(DNS, IP, subject=(("2.5.4.10", NODES), ("2.5.4.3", USER), ("2.5.4.5", "1"))), evidence()),
    ("S4", "SubjectMismatch", names(DNS, IP, subject=(("2.5.4.10", NODES), ("2.5.4.3", "x"), ("2.5.4.3", USER))), evidence()),
    ("S5", "Usages", serving(usages=("server auth",)), evidence()),
    ("S5", "Usages", serving(usages=("digital signature", "server auth", "client auth")), evidence()),
    ("S5", "Usages", serving(usages=("digital signature", "key encipherment", "server auth")), evidence()),
    ("S5", "Usages", serving(usages=("digital signature", "server auth", "server auth")), evidence()),
    ("S6", "Extensions", names(DNS, IP, extensions=[extension("1.2.3", b"\x05\x00")]), evidence()),
    ("S6", "Extensions", names(DNS, IP, extensions=[extension("2.5.29.19", b"\x30\x03\x01\x01\xff")]), evidence()),
    ("S6", "Extensions", names(DNS, IP, extensions=[extension("2.5.29.19", b"\x30\x06\x01\x01\xff\x02\x01\x00")]), evidence()),
    ("S6", "Extensions", names(DNS, IP, extensions=[extension("2.5.29.15", b"\x03\x02\x02\x84")]), evidence()),
    ("S6", "Extensions", names(DNS, IP, extensions=[extension("2.5.29.37", b"\x30\x06\x06\x04\x55\x1d\x25\x00")]), evidence()),
    ("S7", "SanForm", names(DNS, IP, ("email", "a@b")), evidence()),
    ("S7", "SanForm", names(DNS, IP, ("uri", "https://a")), evidence()),
    ("S7", "SanForm", names(DNS, IP, (0xA4, b"\x30\x00")), evidence()),
    ("S7", "SanForm", names(DNS), evidence()),
    ("S7", "SanForm", names(DNS, IP, MAPPED), evidence()),
    ("S7", "SanForm", names(*[("dns", f"a{number}") for number in range(5)], IP), evidence()),
    ("S7", "SanForm", names(*[("ip", bytes((10, 1, 1, number))) for number in range(17)]), evidence()),
    ("S8", "SanForm", names(("dns", "*.a"), IP), evidence()),
    ("S8", "SanForm", names(("dns", "A"), IP), evidence()),
    ("S8", "SanForm", names(("dns", "a."), IP), evidence()),
    ("S8", "SanForm", names(("dns", "a..b"), IP), evidence()),
    ("S8", "SanForm", names(("dns", "10.1.0.8"), IP), evidence()),
    ("S9", "Lifetime", serving(expiration=2160 * 3600 + 1), evidence()),
    ("S12", "ReservedName", names(("dns", "kubernetes.default.svc"), IP), owning("kubernetes.default.svc", "10.1.0.7")),
    ("S12", "ReservedName", names(("dns", "localhost"), IP), owning("localhost", "10.1.0.7")),
    ("S12", "ReservedName", names(("dns", "x.default.svc.cluster.local"), IP), owning("x.default.svc.cluster.local", "10.1.0.7")),
    ("S12", "ReservedName", names(("dns", "api.example.com"), IP), owning("api.example.com", "10.1.0.7")),
    ("S12", "ReservedName", names(("ip", b"\x0a\x01\x00\x09")), owning("10.1.0.9")),
    ("S12", "ReservedName", names(("ip", b"\x0a\x09\x01\x01")), owning("10.9.1.1")),
    ("S12", "ReservedName", names(("ip", b"\x7f\0\0\x01")), owning("127.0.0.1")),
    ("S12", "ReservedName", names(("ip", b"\xa9\xfe\0\x01")), owning("169.254.0.1")),
    ("S12", "ReservedName", names(("ip", b"\xe0\0\0\x01")), owning("224.0.0.1")),
    ("S12", "ReservedName", names(("ip", b"\0\0\0\0")), owning("0.0.0.0")),
    ("S12", "ReservedName", names(DNS, IP), evidence(api_servers=frozenset({"10.1.0.7"}))),
    ("S12", "ReservedName", names(DNS, IP), evidence(networks=tuple(formats.subnets("10.1.0.0/16")))),
    ("S12a", "ReservedName", names(DNS, IP), evidence(pods=PODS)),
    ("S12a", "ReservedName", names(DNS, IP), evidence(pods=PODS, owned=dict.fromkeys(SANS, "nodes"))),
    ("S13", "ForeignName", names(DNS, IP), evidence(foreign={"10.1.0.7": "b"})),
    ("S14a", "OutsidePolicy", names(DNS, V6), owning("a", "2001:db8::7")),
    ("S11", "Revoked", names(DNS, IP), fetching(Answer(source="joinRecords", membership=Membership.LEFT))),
    ("S11c", "UnknownCredential", names(DNS, IP), fetching(Answer(source="joinRecords", membership=Membership.OTHER_CREDENTIAL))),
    ("S13", "ForeignName", names(DNS, IP), fetching(Answer(source="machines", foreign={"10.1.0.7": "b"}))),
    ("S13", "ForeignName", names(DNS, IP), evidence(owned=dict.fromkeys(SANS, "nodes"), reported={"10.1.0.7": "b"})),
    ("S17", "AddressInUse", names(DNS, IP), evidence(fetched=Fetched(present={"10.1.0.7": "system:node:b"}))),
    ("S18", "KeyReuse", names(DNS, IP), evidence(key_holder="system:node:b for kubernetes.io/kubelet-serving")),
    ("R1", "Superseded", names(DNS, IP), evidence(newer="csr-2")),
]
WAITING = [
    ("S10", "NodeMissing", names(DNS, IP), evidence(node=None)),
    ("S10", "NodeMissing", names(DNS, IP), evidence(node=KnownNode(name="a", reported=frozenset(SANS), deleting=True))),
    ("S11a", "RecordUnavailable", names(DNS, IP), fetching(Answer(source="joinRecords", problem="locked"))),
    ("S11b", "NoRecord", names(DNS, IP), fetching(Answer(source="joinRecords", membership=Membership.NO_RECORD))),
    ("S14b", "SourceUnavailable", names(DNS, IP), fetching(SILENT, owned={"a": "file"})),
    ("S14b", "SourceUnavailable", names(DNS, IP), fetching(SILENT, owned={"a": "file", "10.1.0.7": "nodes"})),
    ("S14", "NotOwned", names(DNS, IP), evidence(owned={"a": "file"})),
    ("S15", "NotReported", names(DNS, IP), evidence(node=KnownNode(name="a", reported=frozenset({"a"})))),
    ("S16a", "DnsUnavailable", names(DNS, IP), resolving({"a": None})),
    ("S16", "DnsMismatch", names(DNS, IP), resolving({"a": frozenset()})),
    ("S16", "DnsMismatch", names(DNS, IP), resolving({"a": frozenset({"10.1.0.8"})})),
    ("S16", "DnsMismatch", names(DNS, IP), resolving({"a": frozenset({"10.1.0.7", "10.2.0.1"})})),
    ("R2", "TooManyRequests", names(DNS, IP), evidence(recent=13)),
]
INSIDE = replace(policy(), node_networks=tuple(formats.subnets("10.1.0.0/16")), dns_suffixes=("nodes.example.com",))
PASSING = [
    (serving(), evidence()),
    (names(IP), evidence()),
    (names(DNS, ("dns", "a.nodes.example.com"), IP), owning("a", "a.nodes.example.com", "10.1.0.7")),
    (serving(expiration=2160 * 3600), evidence()),
    (names(DNS, IP, extensions=[extension("2.5.29.19", b"\x30\x00"), extension("2.5.29.15", b"\x03\x02\x07\x80")]), evidence()),
    (names(DNS, IP, extensions=[extension("2.5.29.37", b"\x30\x0a\x06\x08\x2b\x06\x01\x05\x05\x07\x03\x01")]), evidence()),
    (serving(), fetching(SILENT)),
    (serving(), evidence(reported={"10.1.0.7": "b"})),
    (serving(), fetching(Answer(source="machines", gives=frozenset(SANS)), owned={}, reported={"10.1.0.7": "b"})),
    (serving(), evidence(pods=PODS, listed=frozenset({"10.1.0.7"}))),
    (serving(), fetching(Answer(source="machines", gives=frozenset(SANS)), owned={}, pods=PODS)),
    (serving(), resolving({"a": frozenset({"10.1.0.7", "10.1.0.99"})})),
    (serving(), evidence(fetched=Fetched(present={"10.1.0.7": USER}))),
    (serving(), evidence(recent=12)),
]


@pytest.mark.parametrize(("check", "reason", "csr", "found"), DENIED, ids=[f"{row[0]}-{index}" for index, row in enumerate(DENIED)])
def test_a_request_that_fails_a_check_is_denied_with_the_reason(check, reason, csr, found):
    decision = decide(csr, found, INSIDE, now=NOW)
    assert isinstance(decision, Deny), decision
    assert (decision.check, decision.reason) == (check, reason)


@pytest.mark.parametrize(("check", "reason", "csr", "found"), WAITING, ids=[f"{row[0]}-{index}" for index, row in enumerate(WAITING)])
def test_temporary_failures_are_waited_for(check, reason, csr, found):
    decision = decide(csr, found, INSIDE, now=NOW)
    assert isinstance(decision, Wait), decision
    assert (decision.check, decision.reason) == (check, reason)


@pytest.mark.parametrize(("csr", "found"), PASSING)
def test_a_request_for_the_nodes_own_names_is_approved(csr, found):
    decision = decide(csr, found, INSIDE, now=NOW)
    assert isinstance(decision, Approve), decision
    assert decision.version == INSIDE.version


RENEWING = replace(INSIDE, renewal=node_approval.CERTIFICATE)


@pytest.mark.parametrize(
    "fields",
    [
        {"certified": frozenset(SANS), "fetched": Fetched(answers=(SILENT,), resolved={"a": None})},
        {"certified": frozenset(SANS), "fetched": Fetched(resolved={"a": frozenset({"10.2.0.1"})})},
        {"fetched": Fetched(present={"10.1.0.7": USER}, present_names=frozenset((*SANS, "a.nodes.example.com")))},
    ],
)
def test_names_in_the_present_certificate_need_no_source_if_the_policy_says_so(fields):
    found = evidence(owned={}, **fields)
    assert decide(serving(), found, RENEWING, now=NOW) == Approve(version=INSIDE.version, sources=("present certificate",))
    assert isinstance(decide(serving(), found, INSIDE, now=NOW), Wait)
    wider = names(DNS, IP, V6)
    assert isinstance(decide(wider, found, replace(RENEWING, node_networks=()), now=NOW), Wait)


@pytest.mark.parametrize(
    ("check", "fields"),
    [
        ("S11", {"fetched": Fetched(answers=(Answer(source="joinRecords", membership=Membership.LEFT),))}),
        ("S12", {"api_servers": frozenset({"10.1.0.7"})}),
        ("S13", {"foreign": {"10.1.0.7": "b"}}),
        ("S17", {"fetched": Fetched(present={"10.1.0.7": "system:node:b"})}),
        ("S18", {"key_holder": "system:node:b for kubernetes.io/kubelet-serving"}),
    ],
)
def test_a_renewal_is_checked_for_everything_but_its_sources(check, fields):
    decision = decide(serving(), evidence(owned={}, certified=frozenset(SANS), **fields), RENEWING, now=NOW)
    assert isinstance(decision, Deny), decision
    assert decision.check == check


def test_sources_are_asked_only_about_requests_that_nothing_else_decides():
    assert decide(serving(), evidence(owned={}, fetched=None), INSIDE, now=NOW) == Ask()
    assert decide(serving(), evidence(fetched=None, node=KnownNode(name="a")), INSIDE, now=NOW) == Ask()
    for csr, fields in (
        (serving(b"junk"), {}),
        (serving(), {"key_holder": "system:node:b for kubernetes.io/kubelet-serving"}),
        (serving(), {"node": None}),
        (serving(), {"recent": 13}),
        (names(("dns", "localhost"), IP), {}),
    ):
        assert isinstance(decide(csr, evidence(fetched=None, **fields), INSIDE, now=NOW), Deny | Wait)


def test_an_approval_names_the_sources_and_weak_ones_in_words():
    found = evidence(owned={"a": "nodes", "10.1.0.7": "machines"})
    decision = decide(serving(), found, INSIDE, now=NOW)
    assert isinstance(decision, Approve)
    assert decision.condition["message"] == (
        f"allowed by policy version {INSIDE.version} (machines, nodes: addresses that the node reports itself)"
    )


def test_every_check_has_a_request_that_fails_it_first():
    rows = {check: (csr, found) for check, _, csr, found in (*DENIED, *WAITING)}
    assert set(rows) == {check.id for check in checks.CHECKS}
    for check, (csr, found) in rows.items():
        failed = [one.check.id for one in deciding.results(csr, found, INSIDE) if one.problem]
        assert failed[0] == check


@pytest.mark.parametrize("name", ["S2", "S5"])
def test_rsa_keys_need_2048_bits_and_may_be_used_for_key_encipherment(name):
    weak, strong = (rsa.generate_private_key(65537, bits) for bits in (1024, 2048))
    assert "2048 to 4096 bits" in request_keys.weakness(_public(weak))
    assert request_keys.weakness(_public(strong)) == ""
    assert request_keys.is_rsa(_public(strong))
    assert not request_keys.is_rsa(b"junk")


def test_names_that_no_source_gives_are_denied_after_ten_minutes():
    decision = decide(serving(), evidence(owned={}), INSIDE, now=LATER)
    assert isinstance(decision, Deny)
    assert (decision.check, decision.reason) == ("S14", "NotOwned")


def test_requests_pending_for_a_day_are_stale():
    csr = serving(created="2026-01-01T03:04:05Z")
    decision = decide(csr, evidence(node=None), INSIDE, now=NOW)
    assert isinstance(decision, Deny)
    assert (decision.check, decision.reason) == ("S10", "Stale")


@pytest.mark.parametrize("kind", ["Approved", "Denied"])
def test_a_decided_request_is_left_alone(kind):
    assert decide(serving(conditions=[condition(kind)]), evidence(), INSIDE, now=NOW) == Nothing(reason="it has been decided")


def test_requests_of_other_signers_are_left_alone():
    decision = decide(serving(signer="kubernetes.io/kube-apiserver-client-kubelet"), evidence(), INSIDE, now=NOW)
    assert isinstance(decision, Nothing)


def test_messages_show_at_most_64_characters_of_a_request_on_one_line():
    long = "x" * 63 + "." + "y" * 63 + "\n.a"
    decision = decide(names(("dns", long), IP), evidence(), INSIDE, now=NOW)
    assert isinstance(decision, Deny)
    assert len(decision.message) < 200
    assert "\n" not in decision.message
    assert "y" * 10 not in decision.message


def test_the_guide_explains_every_reason():
    guide = Path(__file__).parents[3] / "docs" / "guide" / "approve-serving-certificates.md"
    explained = guide.read_text(encoding="utf-8")
    reasons = {check.reason for check in (*checks.CHECKS, *clients.CHECKS)} | {"Stale"}
    assert len(reasons) == 30
    assert [reason for reason in sorted(reasons) if f"`{reason}`" not in explained] == []


def _public(key):
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
