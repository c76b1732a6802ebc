"""csrapproving: recognised requests, access reviews, writes (kube-controller-manager v1.36: pkg/controller/certificates/approver)."""

from __future__ import annotations

import pytest
from controllers_kit import CLIENT_USAGES, condition, csr, request

from kubewright.controllers import approving, requests
from kubewright.controllers.approving import Approve, Ask
from kubewright.controllers.requests import Nothing, Retry

SELF = "Auto approving self kubelet client certificate after SubjectAccessReview."
NODE = "Auto approving kubelet client certificate after SubjectAccessReview."
BOOTSTRAP, NODE_A, NODE_B = "system:bootstrap:abcdef", "system:node:a", "system:node:b"


def decide(answers=None, **fields: object):
    return approving.decide(requests.read(csr(**fields)), answers or {})


@pytest.mark.parametrize(
    ("username", "answers", "expected"),
    [
        (BOOTSTRAP, {}, Ask(subresource="nodeclient")),
        (BOOTSTRAP, {"nodeclient": True}, Approve(message=NODE)),
        (NODE_B, {}, Ask(subresource="nodeclient")),
        (NODE_B, {"nodeclient": True}, Approve(message=NODE)),
        (NODE_A, {}, Ask(subresource="selfnodeclient")),
        (NODE_A, {"selfnodeclient": True}, Approve(message=SELF)),
        (NODE_A, {"selfnodeclient": False}, Ask(subresource="nodeclient")),
        (NODE_A, {"selfnodeclient": False, "nodeclient": True}, Approve(message=NODE)),
        ("kubernetes-admin", {}, Ask(subresource="nodeclient")),
    ],
)
def test_a_request_of_a_node_is_approved_by_the_first_permission_of_its_user(username, answers, expected):
    assert decide(answers, username=username) == expected


@pytest.mark.parametrize(
    ("username", "answers", "tried"),
    [
        (BOOTSTRAP, {"nodeclient": False}, "[nodeclient]"),
        (NODE_A, {"selfnodeclient": False, "nodeclient": False}, "[selfnodeclient nodeclient]"),
    ],
)
def test_a_request_without_permission_is_retried_quietly(username, answers, tried):
    found = decide(answers, username=username)
    assert isinstance(found, Retry)
    assert found.expected
    assert tried in found.reason


@pytest.mark.parametrize(
    "fields",
    [
        {"conditions": [condition("Approved")]},
        {"conditions": [condition("Denied")]},
        {"certificate": b"anything"},
        {"signer": "kubernetes.io/kubelet-serving"},
        {"signer": "example.com/other"},
        {"usages": ("digital signature", "server auth")},
        {"usages": (*CLIENT_USAGES, "code signing")},
        {"text": request(names=[("dns", "a")])},
        {"text": request(subject=[("2.5.4.10", "system:nodes"), ("2.5.4.3", "node:a")])},
        {"text": request(subject=[("2.5.4.10", "system:masters"), ("2.5.4.3", "system:node:a")])},
    ],
)
def test_decided_requests_and_those_of_others_are_ignored(fields):
    assert isinstance(decide(**fields), Nothing)


def test_a_failed_condition_alone_does_not_stop_an_approval():
    assert decide(conditions=[condition("Failed")]) == Ask(subresource="nodeclient")


def test_an_unreadable_request_is_tried_again():
    found = decide(text=b"no PEM at all")
    assert isinstance(found, Retry)
    assert not found.expected


def test_key_encipherment_is_allowed():
    assert decide(usages=(*CLIENT_USAGES, "key encipherment")) == Ask(subresource="nodeclient")


def test_the_review_has_the_user_as_the_server_recorded_it():
    made = approving.review(requests.read(csr()), "nodeclient")
    assert made["spec"] == {
        "user": BOOTSTRAP,
        "uid": "u-1",
        "groups": ["system:bootstrappers"],
        "extra": {"authentication.kubernetes.io/credential-id": ["X509SHA256=00"]},
        "resourceAttributes": {
            "group": "certificates.k8s.io",
            "resource": "certificatesigningrequests",
            "subresource": "nodeclient",
            "verb": "create",
            "version": "*",
        },
    }
