"""How a hub decides about a request: a table of observations and outcomes. Which names nodes may have."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hub_kit import cluster
from old_peer import OldHub, OldNode

from kubewright.apis import formats
from kubewright.apis.join_records import JoinRecord, State
from kubewright.apis.node_join_requests import Condition
from kubewright.base.records import replace
from kubewright.enrollment.protocol import decisions, requests
from kubewright.enrollment.protocol.decisions import Approval, Forget, Issue, Open, Policy, Refuse, Seen, Wait
from kubewright.enrollment.protocol.fields import MalformedField, SymmetricKey
from kubewright.enrollment.protocol.requests import JoinRequest
from kubewright.pki import node_names
from kubewright.pki.node_names import NamePolicy
from odd_objects import variants

NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
KEY = SymmetricKey(b"k" * 32)
REQUEST = JoinRequest(endpoint="https://10.0.0.1:6443", sans=("10.0.0.5",), key=KEY)
SEEN = Seen(name="worker", uid="u1", created=NOW - timedelta(minutes=1), condition=None, digest="d", contents=REQUEST)
RECORD = JoinRecord(cluster="a", node="worker", state=State.ISSUED, protocol="p", request="u0", key=KEY.fingerprint)
HUMAN = Policy(approval=Approval.HUMAN)


def ended(status: str, minutes: float, reason: str = "") -> Condition:
    return Condition(status=status, reason=reason, since=(NOW - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ"))


def seen(**more: object) -> Seen:
    return replace(SEEN, **more)


def asks(**more: object) -> Seen:
    return seen(contents=replace(REQUEST, **more))


@pytest.mark.parametrize(
    ("found", "record", "policy", "outcome"),
    [
        (seen(contents=None), None, Policy(), Open()),
        (SEEN, None, Policy(), Issue(request=REQUEST)),
        (SEEN, RECORD, Policy(), Issue(request=REQUEST)),  # the same machine again: killed, or its request deleted
        (seen(condition=ended("True", 10)), RECORD, Policy(), Wait(after=3000.0)),
        (seen(condition=ended("True", 61), contents=None), RECORD, Policy(), Forget()),
        (seen(condition=ended("False", 10)), None, Policy(), Wait(after=3000.0)),
        (seen(condition=ended("False", 60)), None, Policy(), Forget()),
        (seen(condition=ended("False", 1)), None, Policy(crowded=True), Forget()),
        (seen(condition=ended("True", 10)), RECORD, Policy(crowded=True), Wait(after=3000.0)),
        (seen(condition=Condition(status="True", since="soon"), created=NOW - timedelta(hours=2)), None, Policy(), Forget()),
        (seen(condition=Condition(status="Unknown", reason="AwaitingApproval")), None, Policy(), Issue(request=REQUEST)),
        (seen(registered=True), RECORD, Policy(), Issue(request=REQUEST)),
        (seen(first="u1"), None, Policy(), Issue(request=REQUEST)),
        (SEEN, replace(RECORD, state=State.LEFT, key="other"), Policy(), Issue(request=REQUEST)),
        (seen(approved=True), None, HUMAN, Issue(request=REQUEST)),
        (seen(deleting=True), None, Policy(), Forget()),
        (seen(deleting=True, condition=ended("True", 1)), RECORD, Policy(), Forget()),
        (seen(approved=True), None, replace(HUMAN, crowded=True), Issue(request=REQUEST)),
        (
            seen(condition=Condition(status="Unknown", reason="AwaitingApproval")),
            None,
            replace(HUMAN, crowded=True),
            Wait(after=86400 - 60, reason="AwaitingApproval", message="it waits for approval: kubewright hub requests approve"),
        ),
    ],
)
def test_outcomes(found, record, policy, outcome):
    assert decisions.decide(found, record, policy, NOW) == outcome


@pytest.mark.parametrize(
    ("found", "record", "policy", "reason", "message"),
    [
        (seen(contents=MalformedField("symmetricKey", "is missing")), None, Policy(), "Malformed", "symmetricKey is missing"),
        (seen(name="Worker"), None, Policy(), "NameForm", "lower case"),
        (seen(name="kubernetes"), None, Policy(), "NameReserved", "the cluster's own"),
        (seen(name="localhost", contents=None), None, Policy(), "NameReserved", "every machine's own name"),
        (seen(name="10.0.0.1"), None, Policy(), "NameForm", "is an address"),
        (seen(), None, Policy(names=NamePolicy(node_names=("edge-*",))), "NameNotAllowed", "edge-*"),
        (seen(), None, Policy(names=NamePolicy(reserved=frozenset({"worker"}))), "NameReserved", "the control plane"),
        (seen(), None, Policy(names=NamePolicy(foreign={"worker": "other"})), "NameTaken", "belongs to the node other"),
        (seen(first="u0"), None, Policy(), "Replayed", "a copy"),
        (asks(endpoint="http://10.0.0.1"), None, Policy(), "EndpointNotAllowed", "https://HOST:PORT"),
        (asks(endpoint="https://10.0.0.1:6443\0"), None, Policy(), "EndpointNotAllowed", "is not a URL"),
        (asks(endpoint="https://user@10.0.0.1"), None, Policy(), "EndpointNotAllowed", "https://HOST:PORT"),
        (asks(endpoint="https://:6443"), None, Policy(), "EndpointNotAllowed", "has no host"),
        (asks(endpoint="https://10.0.0.1:x"), None, Policy(), "EndpointNotAllowed", "is not a URL"),
        (asks(sans=("",)), None, Policy(), "SanNotAllowed", "SanForm"),
        (SEEN, replace(RECORD, key="other"), Policy(), "NameTaken", "hub requests forget a worker"),
        (seen(registered=True), None, Policy(), "NameTaken", "did not join through this hub"),
        (seen(registered=True), replace(RECORD, state=State.LEFT), Policy(), "NameTaken", "kubectl delete node worker"),
        (seen(approved=False), None, HUMAN, "ApprovalDenied", "an administrator"),
        (SEEN, None, replace(HUMAN, crowded=True), "TooManyRequests", "try again later"),
        (seen(burden=32769, contents=None), None, Policy(), "TooLarge", "32769 characters of metadata"),
        (seen(created=NOW - timedelta(days=2)), None, HUMAN, "Expired", "in time"),
    ],
)
def test_refusals_have_a_reason_and_a_message(found, record, policy, reason, message):
    outcome = decisions.decide(found, record, policy, NOW)
    assert isinstance(outcome, Refuse)
    assert (outcome.reason, message in outcome.message) == (reason, True)


def test_requests_wait_for_approval_and_say_so():
    outcome = decisions.decide(SEEN, None, HUMAN, NOW)
    assert outcome == Wait(after=86400 - 60, reason="AwaitingApproval", message="it waits for approval: kubewright hub requests approve")


def test_observations_of_an_object_are_read():
    node = OldNode("worker", "https://10.0.0.1:6443")
    sent = node.request(OldHub().public_pem)
    sent["metadata"] |= {"uid": "u7", "creationTimestamp": "2026-01-02T03:04:05Z"}
    found = decisions.look(sent)
    assert (found.name, found.uid, found.created) == ("worker", "u7", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert (found.condition, found.contents, found.digest) == (None, None, requests.digest(sent))
    assert (found.deleting, found.burden) == (False, 0)
    laden = {
        "finalizers": ["a/b"],
        "labels": {"c": "de"},
        "annotations": {"f": ""},
        "ownerReferences": [{"kind": "g"}],
        "deletionTimestamp": "x",
    }
    assert (decisions.look({"metadata": laden}).deleting, decisions.look({"metadata": laden}).burden) == (True, 3 + 3 + 1 + 13)
    changed = decisions.look({**sent, "spec": {**sent["spec"], "imageServiceEndpoint": "x"}})
    assert (changed.digest, changed.subject == found.subject) == (found.digest, False)
    empty = Seen(name="", uid="", created=None, condition=None, digest=requests.digest({}), contents_digest=requests.contents_digest({}))
    assert decisions.look({}) == empty


def test_malformed_metadata_of_a_request_count_as_missing():
    laden = {"finalizers": ["a/b"], "labels": {"c": "de"}, "annotations": {"f": "gh"}, "ownerReferences": [{"kind": "g"}]}
    found = [decisions.look(request).burden for request in variants({"metadata": laden})]
    assert (len(found), min(found)) == (100, 0)
    assert decisions.look({"metadata": {**laden, "labels": ["c"], "finalizers": "a/b"}}).burden == 3 + 13
    assert decisions.look({"metadata": {"labels": {"c": {"d": "e"}}}}).burden == 1 + len("{'d': 'e'}")


STRICT = NamePolicy(
    reserved=frozenset({"10.0.0.1", "api.example.com"}),
    networks=tuple(formats.subnets("10.96.0.0/12,fd00:96::/112")),
    foreign={"10.0.0.7": "other", "other.example.com": "other", "10.0.0.5": "worker"},
    names=("*.nodes.example.com",),
    ranges=tuple(formats.subnets("10.0.0.0/24")),
    open_addresses=False,
)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("10.0.0.5", None),
        ("worker", None),
        ("w.nodes.example.com", None),
        ("Worker", "SanForm"),
        ("*.example.com", "SanForm"),
        ("a..b", "SanForm"),
        ("a.b.", "SanForm"),
        ("", "SanForm"),
        ("010.0.0.5", "SanForm"),
        ("a" * 254, "SanForm"),
        ("münchen.example.com", "SanForm"),
        ("::ffff:10.0.0.1", "ReservedName"),
        ("10.0.0.1", "ReservedName"),
        ("api.example.com", "ReservedName"),
        ("kubernetes", "ReservedName"),
        ("kubernetes.default.svc", "ReservedName"),
        ("x.y.svc", "ReservedName"),
        ("x.y.svc.cluster.local", "ReservedName"),
        ("localhost", "ReservedName"),
        ("10.96.0.1", "ReservedName"),
        ("fd00:96::1", "ReservedName"),
        ("127.0.0.2", "ReservedName"),
        ("169.254.1.1", "ReservedName"),
        ("224.0.0.1", "ReservedName"),
        ("0.0.0.0", "ReservedName"),
        ("fe80::1", "ReservedName"),
        ("10.0.0.7", "ForeignName"),
        ("other.example.com", "ForeignName"),
        ("10.1.0.5", "NotAllowed"),
        ("w.example.com", "NotAllowed"),
    ],
)
def test_names_of_serving_certificates(name, rule):
    found = node_names.names_refused([name], "worker", STRICT)
    assert (found.rule if found else None) == rule


@pytest.mark.parametrize("text", ["2001:db8::7", "2001:DB8:0:0::7", "2001:0db8::0007"])
def test_equal_addresses_in_different_forms_are_equal(text):
    asked = replace(REQUEST, sans=("localhost", text, "::ffff:10.0.0.5"))
    assert asked.names == ("2001:db8::7", "10.0.0.5")
    for policy, rule in (
        (NamePolicy(foreign={"2001:db8::7": "other"}), "ForeignName"),
        (cluster(reserved=(text,)).policy(foreign={}).names, "ReservedName"),
    ):
        assert node_names.names_refused(["2001:db8::7"], "worker", policy).rule == rule
        assert node_names.names_refused([text], "worker", policy).rule == rule


def test_loopback_names_are_only_for_joins_of_oneinfra_and_lists_are_limited():
    assert node_names.names_refused(node_names.LOOPBACKS, "worker", STRICT, loopback=True) is None
    assert [node_names.names_refused([name], "worker", STRICT).rule for name in node_names.LOOPBACKS] == ["ReservedName"] * 3
    assert node_names.names_refused(["10.0.0.5", "10.0.0.5"], "worker", STRICT).rule == "SanForm"
    assert node_names.names_refused([f"10.0.0.{n}" for n in range(20, 37)], "worker", STRICT).rule == "SanForm"
    assert node_names.names_refused([f"10.0.0.{n}" for n in range(20, 36)], "worker", STRICT) is None
