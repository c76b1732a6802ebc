"""The cluster of a plan: reads see writes, nothing reaches the real one, and messages are kubeadm's."""

from __future__ import annotations

import pytest

from kubewright.base import errors
from kubewright.kube import recording, resources
from kubewright.kube.recording import RecordingKube

CM = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "ns", "labels": {"a": "1"}}, "data": {"k": "v"}}
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "ns"}, "data": {"k": "Y2FuYXJ5"}}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}


def names(found: list[dict]) -> list[str]:
    return sorted(item["metadata"]["name"] for item in found)


def test_reads_see_what_was_written() -> None:
    api = RecordingKube()
    api.create(CM)
    with pytest.raises(errors.AlreadyExists):
        api.create(CM)
    found = api.get(resources.CONFIG_MAP, "c", "ns")
    api.update({**found, "data": {"k": "w"}})
    with pytest.raises(errors.Conflict):
        api.update({**found, "data": {"k": "x"}})
    api.patch(resources.CONFIG_MAP, "c", {"data": {"j": "1"}}, "ns", type="merge")
    api.patch(resources.CONFIG_MAP, "c", [{"op": "add", "path": "/data/l", "value": "2"}], "ns", type="json")
    assert api.get(resources.CONFIG_MAP, "c", "ns")["data"] == {"k": "w", "j": "1", "l": "2"}
    assert api.delete(resources.CONFIG_MAP, "c", "ns")["status"] == "Success"
    for call in (
        lambda: api.get(resources.CONFIG_MAP, "c", "ns"),
        lambda: api.update(CM),
        lambda: api.delete(resources.CONFIG_MAP, "c", "ns"),
    ):
        with pytest.raises(errors.NotFound):
            call()
    assert [action.verb for action in api.writes] == ["create", "update", "patch", "patch", "delete"]


def test_a_real_cluster_is_read_and_never_written() -> None:
    real = RecordingKube()
    real.create(CM)
    real.create({**CM, "metadata": {"name": "d", "namespace": "ns"}})
    written = len(real.writes)
    plan = RecordingKube(real, stand_ins=[NODE, {**CM, "data": {"k": "stand-in"}}])
    assert plan.get(resources.CONFIG_MAP, "c", "ns")["data"] == {"k": "v"}
    assert plan.get(resources.NODE, "n1")["metadata"]["name"] == "n1"
    plan.delete(resources.CONFIG_MAP, "d", "ns")
    plan.create({**CM, "metadata": {"name": "e", "namespace": "ns"}})
    assert names(plan.list(resources.CONFIG_MAP, "ns")) == ["c", "e"]
    assert names(plan.list(resources.CONFIG_MAP, "other")) == []
    assert names(plan.list(resources.CONFIG_MAP, label_selector="a=1")) == ["c"]
    assert names(plan.list(resources.NODE, field_selector="metadata.name=n1")) == ["n1"]
    assert names(plan.list(resources.NODE, field_selector="metadata.name=n2")) == []
    assert len(real.writes) == written


def test_a_patch_that_does_not_fit_is_refused() -> None:
    api = RecordingKube(stand_ins=[CM])
    for body in ([{"op": "remove", "path": "/nothing"}], [{"op": "test", "path": "/data/k", "value": 1}], [{"op": "x"}], {"no": "list"}):
        with pytest.raises(errors.Invalid):
            api.patch(resources.CONFIG_MAP, "c", body, "ns", type="json")
    with pytest.raises(errors.NotFound):
        api.patch(resources.NODE, "n1", {})
    assert api.patch(resources.NODE, "n1", NODE, type="apply")["metadata"]["name"] == "n1"


def test_a_status_review_is_not_stored() -> None:
    api = RecordingKube()
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    api.create(review)
    api.create(review)
    assert len(api.writes) == 2


def test_messages_are_those_of_kubeadm() -> None:
    api = RecordingKube()
    api.create(CM)
    api.create(NODE)
    api.delete(resources.NODE, "n1")
    api.list(resources.CLUSTER_ROLE_BINDING)
    lines = [recording.dry_run_lines(action) for action in api.actions]
    assert lines[0] == [
        'Would perform action CREATE on resource "configmaps" in API group "core/v1"',
        'Attached object:\napiVersion: v1\ndata:\n  k: v\nkind: ConfigMap\nmetadata:\n  labels:\n    a: "1"\n  name: c\n  namespace: ns\n',
    ]
    assert lines[2] == [
        'Would perform action DELETE on resource "nodes" in API group "core/v1"',
        'Resource name "n1", namespace ""',
    ]
    assert lines[3] == ['Would perform action LIST on resource "clusterrolebindings" in API group "rbac.authorization.k8s.io/v1"']


def test_secrets_are_masked() -> None:
    api = RecordingKube()
    api.create(SECRET)
    text = "\n".join(recording.dry_run_lines(api.writes[0]))
    assert "Y2FuYXJ5" not in text
    assert "\n  k: <masked>" in text
