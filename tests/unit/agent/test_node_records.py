from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.agent import certificates, lease
from kubewright.agent.certificates import rotation_point
from kubewright.base.errors import CertificateError
from kubewright.base.randomness import SeededRandom


def node():
    return {"metadata": {"name": "node-1", "uid": "uid-of-node"}}


MOMENT = "2026-01-02T03:04:05.000000Z"
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "uid-of-node"}


def test_a_new_lease_is_held_by_its_node_and_owned_by_it():
    assert lease.new_lease(node(), duration=40, now=MOMENT) == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "node-1", "namespace": "kube-node-lease", "ownerReferences": [OWNER]},
        "spec": {"holderIdentity": "node-1", "leaseDurationSeconds": 40, "renewTime": MOMENT},
    }


def test_renewing_changes_duration_and_time_only():
    old = lease.new_lease(node(), duration=40, now=MOMENT)
    old["metadata"]["resourceVersion"] = "7"
    old["spec"]["holderIdentity"] = "somebody else"
    later = "2026-01-02T03:04:15.200000Z"
    new = lease.renewed(old, node(), duration=50, now=later)
    assert new["spec"] == {"holderIdentity": "somebody else", "leaseDurationSeconds": 50, "renewTime": later}
    assert new["metadata"] == old["metadata"]
    assert old["spec"]["renewTime"] == MOMENT


def test_an_owner_is_added_where_there_is_none():
    bare = {"metadata": {"name": "node-1"}, "spec": {}}
    assert not lease.has_owner(bare)
    assert lease.renewed(bare, node(), duration=40, now=MOMENT)["metadata"]["ownerReferences"] == [OWNER]
    assert "ownerReferences" not in lease.renewed(bare, None, duration=40, now=MOMENT)["metadata"]


START = datetime(2026, 1, 1, tzinfo=UTC)


@given(st.integers(min_value=600, max_value=10 * 365 * 86400), st.integers())
def test_the_rotation_point_lies_between_70_and_90_per_cent(seconds, seed):
    end = START + timedelta(seconds=seconds)
    point = rotation_point(not_before=START, not_after=end, random=SeededRandom(seed))
    assert 0.7 * seconds <= (point - START).total_seconds() + 1e-3
    assert (point - START).total_seconds() < 0.9 * seconds + 1e-3


def test_a_certificate_of_one_year_rotates_between_day_255_and_day_328():
    end = START + timedelta(days=365)
    points = [rotation_point(not_before=START, not_after=end, random=SeededRandom(seed)) for seed in range(200)]
    days = [(point - START) / timedelta(days=1) for point in points]
    assert len(days) == 200
    assert min(days) >= 255.5
    assert max(days) < 328.5


def test_a_certificate_has_to_be_for_this_node_and_its_group():
    assert certificates.satisfies(common_name="system:node:node-1", organizations=("x", "system:nodes"), node_name="node-1")
    assert not certificates.satisfies(common_name="system:node:node-2", organizations=("system:nodes",), node_name="node-1")
    assert not certificates.satisfies(common_name="system:node:node-1", organizations=(), node_name="node-1")


def request(**changes: Any):
    return {"metadata": {"name": "csr-1", "uid": "u"}, "status": {}, **changes}


CONTENT = base64.b64encode(b"pem").decode()


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        ({}, None),
        ({"conditions": [{"type": "Approved", "status": "True"}]}, None),
        ({"certificate": CONTENT}, None),
        ({"conditions": [{"type": "Approved", "status": "True"}], "certificate": CONTENT}, b"pem"),
        ({"conditions": [{"type": "Approved", "status": "False"}], "certificate": CONTENT}, b"pem"),
    ],
)
def test_only_an_approved_request_with_a_certificate_ends_well(status, answer):
    assert certificates.issued(request(status=status), uid="u") == answer


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (request(status={"conditions": [{"type": "Denied", "reason": "No", "message": "not you"}]}), "denied: No: not you"),
        (request(status={"conditions": [{"type": "Failed", "status": "False"}]}), "failed"),
        (request(metadata={"name": "csr-1", "uid": "other"}), "deleted"),
        (request(status={"conditions": [{"type": "Approved"}], "certificate": "%"}), "not base64"),
    ],
)
def test_a_refused_or_replaced_request_ends_the_wait(found, words):
    with pytest.raises(CertificateError, match=words):
        certificates.issued(found, uid="u")


def test_the_request_object_is_the_kubelets():
    assert certificates.client_request(b"pem", ["digital signature", "client auth"]) == {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "csr-"},
        "spec": {
            "request": CONTENT,
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
        },
    }
