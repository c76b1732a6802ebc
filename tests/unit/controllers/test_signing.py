"""csrsigning: the rules of each signer in order, lifetimes, retries (kube-controller-manager v1.36: pkg/controller/certificates/signer)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from controllers_kit import CLIENT_USAGES, NOW, SERVING_USAGES, condition, csr, request

from kubewright.controllers import requests, signers, signing
from kubewright.controllers.requests import Nothing, Retry
from kubewright.controllers.signing import Fail, Sign

CLIENT_KUBELET = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING = "kubernetes.io/kubelet-serving"
CLIENT = "kubernetes.io/kube-apiserver-client"
LEGACY = "kubernetes.io/legacy-unknown"
ORG, CN = "2.5.4.10", "2.5.4.3"
NODE = ((ORG, "system:nodes"), (CN, "system:node:a"))
OTHER_CN = ((ORG, "system:nodes"), (CN, "node:a"))
ORGANIZATION = "subject organization is not system:nodes"
COMMON_NAME = "subject common name does not begin with system:node:"
REQUIRED = "DNS or IP subjectAltName is required"
NO_DNS, NO_EMAIL, NO_IP, NO_URI = (f"{kind} subjectAltNames are not allowed" for kind in ("DNS", "Email", "IP", "URI"))
CLIENT_TEXT = "usages did not match [client auth digital signature key encipherment]"
SERVING_TEXT = "usages did not match [digital signature key encipherment server auth]"
IP, DNS, EMAIL, URI = ("ip", b"\x0a\0\0\1"), ("dns", "a"), ("email", "a@b"), ("uri", "urn:a")
APPROVED = (condition("Approved"),)
ENDS = NOW + timedelta(days=3650)


def decide(subject=NODE, names=(), *, signer=CLIENT_KUBELET, usages=CLIENT_USAGES, ends=ENDS, longest=8760, text=None, **fields: object):
    made = csr(
        request(subject=subject, names=names) if text is None else text,
        **{"signer": signer, "usages": usages, "conditions": APPROVED, **fields},
    )
    return signing.decide(requests.read(made), signers.named(signer), authority_ends=ends, longest=timedelta(hours=longest), now=NOW)


@pytest.mark.parametrize(
    ("signer", "subject", "names", "usages", "expected"),
    [
        (CLIENT_KUBELET, NODE, (), CLIENT_USAGES, None),
        (CLIENT_KUBELET, NODE, (), (*CLIENT_USAGES, "key encipherment"), None),
        (CLIENT_KUBELET, NODE, (), ("digital signature",), CLIENT_TEXT),
        (CLIENT_KUBELET, NODE, (), (*CLIENT_USAGES, "server auth"), CLIENT_TEXT),
        (CLIENT_KUBELET, ((ORG, "system:nodes"), (ORG, "x"), (CN, "system:node:a")), (), CLIENT_USAGES, ORGANIZATION),
        (CLIENT_KUBELET, ((CN, "system:node:a"),), (), CLIENT_USAGES, ORGANIZATION),
        (CLIENT_KUBELET, OTHER_CN, (), CLIENT_USAGES, COMMON_NAME),
        (CLIENT_KUBELET, ((ORG, "system:nodes"),), (), CLIENT_USAGES, COMMON_NAME),
        (CLIENT_KUBELET, NODE, (EMAIL, DNS), CLIENT_USAGES, NO_DNS),
        (CLIENT_KUBELET, NODE, (URI, IP, EMAIL), CLIENT_USAGES, NO_EMAIL),
        (CLIENT_KUBELET, NODE, (URI, IP), CLIENT_USAGES, NO_IP),
        (CLIENT_KUBELET, OTHER_CN, (URI,), CLIENT_USAGES, NO_URI),
        (CLIENT_KUBELET, OTHER_CN, (), ("digital signature",), COMMON_NAME),
        (CLIENT_KUBELET, ((ORG, "x"), (CN, "y")), (DNS,), (), ORGANIZATION),
        (SERVING, NODE, (IP,), SERVING_USAGES, None),
        (SERVING, NODE, (DNS,), (*SERVING_USAGES, "key encipherment"), None),
        (SERVING, NODE, (), SERVING_USAGES, REQUIRED),
        (SERVING, NODE, (URI,), SERVING_USAGES, REQUIRED),
        (SERVING, NODE, (DNS, URI), SERVING_USAGES, NO_URI),
        (SERVING, NODE, (DNS, URI, EMAIL), SERVING_USAGES, NO_EMAIL),
        (SERVING, OTHER_CN, (IP,), CLIENT_USAGES, SERVING_TEXT),
        (SERVING, OTHER_CN, (IP,), SERVING_USAGES, COMMON_NAME),
        (SERVING, ((ORG, "x"), (CN, "y")), (), (), ORGANIZATION),
        (CLIENT, ((CN, "anybody"),), (DNS, URI), ("client auth",), None),
        (CLIENT, ((CN, "anybody"),), (), ("digital signature", "key encipherment", "client auth"), None),
        (CLIENT, ((CN, "anybody"),), (), ("digital signature",), "missing required usage for client certificate: client auth"),
        (CLIENT, ((CN, "anybody"),), (), ("client auth", "code signing", "any"), "invalid usage for client certificate: code signing"),
        (LEGACY, ((CN, "anybody"),), (DNS, URI, EMAIL, IP), ("any", "cert sign"), None),
        (LEGACY, ((CN, "anybody"),), (), (), None),
    ],
)
def test_rules_of_each_signer_apply_in_order(signer, subject, names, usages, expected):
    found = decide(subject, names, signer=signer, usages=usages)
    assert isinstance(found, Sign) if expected is None else found == Fail(message=expected)


MINUTE, HOUR, YEAR = 60, 3600, 8760 * 3600


@pytest.mark.parametrize(
    ("seconds", "longest", "span", "ahead"),
    [
        (None, 8760, YEAR, YEAR - 5 * MINUTE),
        (600, 8760, 15 * MINUTE, 10 * MINUTE),
        (599, 8760, 15 * MINUTE, 10 * MINUTE),
        (28_799, 8760, 8 * HOUR + 5 * MINUTE - 1, 8 * HOUR - 1),
        (28_800, 8760, 8 * HOUR, 8 * HOUR - 5 * MINUTE),
        (10 * YEAR, 8760, YEAR, YEAR - 5 * MINUTE),
        (3600, 0.5, 35 * MINUTE, 30 * MINUTE),
        (600, 1 / 12, 10 * MINUTE, 5 * MINUTE),
    ],
)
def test_the_lifetime_of_a_certificate_follows_request_and_limit(seconds, longest, span, ahead):
    valid = decide(expiration=seconds, longest=longest).valid
    assert valid.not_before == NOW - timedelta(minutes=5)
    assert valid.not_after - valid.not_before == timedelta(seconds=span)
    assert valid.not_after - NOW == timedelta(seconds=ahead)


def test_a_certificate_expires_no_later_than_its_ca():
    assert decide(ends=NOW + timedelta(minutes=10)).valid.not_after == NOW + timedelta(minutes=10)


@pytest.mark.parametrize("left", [timedelta(0), timedelta(seconds=-1), timedelta(minutes=-5), timedelta(days=-1)])
def test_an_expired_ca_is_retried_and_signs_nothing(left):
    assert isinstance(decide(ends=NOW + left), Retry)


def test_a_request_that_breaks_a_rule_fails_even_without_a_ca():
    gone = Retry(reason="unreadable")
    assert decide(ends=gone) == gone
    assert decide(OTHER_CN, ends=gone) == Fail(message=COMMON_NAME)


def test_only_the_request_that_go_reads_is_signed():
    """Go skips a block with surplus padding: API server, `kubectl describe` and approvers see the second one."""
    masters, seen = (request(subject=((ORG, group), (CN, "dev"))) for group in ("system:masters", "developers"))
    for text in (masters.replace(b"\n-----END", b"=\n-----END") + seen, masters + seen, seen + masters):
        found = decide(text=text, signer=CLIENT, usages=("client auth",))
        assert isinstance(found, Fail)
        assert found.message.startswith("the request ")


@pytest.mark.parametrize(
    "fields",
    [
        {"text": request(good=False)},
        {"signer": LEGACY, "usages": ("client auth", "no such usage")},
    ],
)
def test_requests_that_cannot_be_signed_are_retried(fields):
    assert isinstance(decide(**fields), Retry)


@pytest.mark.parametrize(
    "conditions",
    [
        (),
        (condition("Denied"),),
        (condition("Approved"), condition("Denied")),
        (condition("Approved"), condition("Failed")),
        (condition("Approved"), {"type": "Failed"}),
    ],
)
def test_only_approved_requests_that_have_not_failed_are_signed(conditions):
    assert isinstance(decide(conditions=conditions), Nothing)


def test_a_false_failed_condition_does_not_count():
    assert isinstance(decide(conditions=(condition("Approved"), {"type": "Failed", "status": "False"})), Sign)


def test_each_signer_ignores_requests_for_others():
    made = requests.read(csr(conditions=APPROVED))
    found = [signing.decide(made, one, authority_ends=ENDS, longest=timedelta(1), now=NOW) for one in signers.SIGNERS]
    assert [type(one) for one in found].count(Sign) == 1
    assert [type(one) for one in found].count(Nothing) == 3


BREAKS_ONLY = {
    CLIENT_KUBELET: {
        "organization": (((ORG, "x"), NODE[1]), (), CLIENT_USAGES),
        "no DNS names": (NODE, (DNS,), CLIENT_USAGES),
        "no e-mail names": (NODE, (EMAIL,), CLIENT_USAGES),
        "no addresses": (NODE, (IP,), CLIENT_USAGES),
        "no URI names": (NODE, (URI,), CLIENT_USAGES),
        "common name": (OTHER_CN, (), CLIENT_USAGES),
        "usages": (NODE, (), ("digital signature",)),
    },
    SERVING: {
        "organization": (((ORG, "x"), NODE[1]), (IP,), SERVING_USAGES),
        "a name or address": (NODE, (), SERVING_USAGES),
        "no e-mail names": (NODE, (IP, EMAIL), SERVING_USAGES),
        "no URI names": (NODE, (IP, URI), SERVING_USAGES),
        "common name": (OTHER_CN, (IP,), SERVING_USAGES),
        "usages": (NODE, (IP,), CLIENT_USAGES),
    },
    CLIENT: {"usages": (((CN, "anybody"),), (DNS, URI), ("digital signature",))},
    LEGACY: {},
}
"""For each row of each signer a request that only this row refuses: subject, names, usages."""


@pytest.mark.parametrize("signer", signers.SIGNERS, ids=lambda signer: signer.flags)
def test_every_rule_is_needed(signer):
    """A rule exists only through its row: without the row, the refused request is signed."""
    cases = BREAKS_ONLY[signer.name]
    assert sorted(cases) == sorted(rule.name for rule in signer.rules)
    for index, rule in enumerate(signer.rules):
        subject, names, usages = cases[rule.name]
        text = request(subject=subject, names=names)
        without = signers.Signer(name=signer.name, controller="", flags="", rules=signer.rules[:index] + signer.rules[index + 1 :])
        seen = requests.read(csr(text, signer=signer.name, usages=usages, conditions=APPROVED))
        found = [signing.decide(seen, one, authority_ends=ENDS, longest=timedelta(1), now=NOW) for one in (signer, without)]
        assert [type(one) for one in found] == [Fail, Sign], rule.name


def test_the_failed_condition_has_reason_and_message():
    assert signing.condition("why", now=NOW) == {
        "type": "Failed",
        "status": "True",
        "reason": "SignerValidationFailure",
        "message": "why",
        "lastUpdateTime": "2026-01-02T03:04:05Z",
    }
