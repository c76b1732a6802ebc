from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from fake_controllers import made_pair
from hypothesis import given
from hypothesis import strategies as st

from kubewright.agent import leases
from kubewright.agent.certificates.manager import rotation_point
from kubewright.agent.certificates.templates import CertificateTemplate
from kubewright.base.randomness import SeededRandom


def node():
    return {"metadata": {"name": "node-1", "uid": "uid-of-node"}}


MOMENT = "2026-01-02T03:04:05.000000Z"
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "uid-of-node"}


def test_a_new_lease_is_held_by_its_node_and_owned_by_it():
    assert leases.new_lease(node(), duration=40, now=MOMENT) == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "node-1", "namespace": "kube-node-lease", "ownerReferences": [OWNER]},
        "spec": {"holderIdentity": "node-1", "leaseDurationSeconds": 40, "renewTime": MOMENT},
    }


def test_renewing_changes_duration_and_time_only():
    old = leases.new_lease(node(), duration=40, now=MOMENT)
    old["metadata"]["resourceVersion"] = "7"
    old["spec"]["holderIdentity"] = "somebody else"
    later = "2026-01-02T03:04:15.200000Z"
    new = leases.renewed(old, node(), duration=50, now=later)
    assert new["spec"] == {"holderIdentity": "somebody else", "leaseDurationSeconds": 50, "renewTime": later}
    assert new["metadata"] == old["metadata"]
    assert old["spec"]["renewTime"] == MOMENT


def test_a_missing_owner_is_added():
    bare = {"metadata": {"name": "node-1"}, "spec": {}}
    assert not leases.has_owner(bare)
    assert leases.renewed(bare, node(), duration=40, now=MOMENT)["metadata"]["ownerReferences"] == [OWNER]
    assert "ownerReferences" not in leases.renewed(bare, None, duration=40, now=MOMENT)["metadata"]


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


@pytest.mark.parametrize(
    ("changes", "fits"), [({}, True), ({"name": "node-2"}, False), ({"group": "others"}, False)], ids=["ours", "another's", "no group"]
)
def test_a_certificate_has_to_be_for_this_node_and_its_group(changes: dict[str, str], fits: bool):
    assert (CertificateTemplate(node_name="node-1").missing(made_pair(**changes).leaf) == []) is fits
