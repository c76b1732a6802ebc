"""`reset --delete-node`: the Node is deleted while there are credentials for that."""

from __future__ import annotations

import pytest
from certs_kit import ControlPlane
from reset_kit import Box, names

from kubewright.base.errors import Forbidden, Unreachable
from kubewright.kube.recording import RecordingKube

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1", "uid": "uid-1"}}


@pytest.fixture
def box(tmp_path, monkeypatch, capsys):
    """A worker whose kubelet.conf is real: that of node1."""
    made = Box(tmp_path / "machine").install(monkeypatch).make_worker()
    other = ControlPlane(tmp_path / "other", capsys).fill()
    made.write("kubernetes/kubelet.conf", (other.kubernetes / "kubelet.conf").read_text())
    made.kube = RecordingKube(stand_ins=[NODE])
    return made


def actions(box):
    return [(action.verb, action.call.name) for action in box.kube.actions if action.verb != "get"]


def test_the_node_is_deleted_by_the_name_in_the_certificate_of_the_kubelet(box):
    outcome = box.reset(delete_node=True)
    outcome.require_complete()
    assert actions(box) == [("delete", "node1")]
    assert box.kube.actions[-1].call.body["preconditions"] == {"uid": "uid-1"}
    assert names(outcome.changes)[0] == "node node1"
    assert 'Deleting the Node "node1"' in box.lines()
    assert "--delete-node" not in box.lines("")[0]


def test_without_the_option_the_node_stays(box):
    box.reset()
    assert actions(box) == []
    assert "`reset --delete-node`" in box.lines("")[0]


def test_a_missing_node_is_accepted(box):
    box.kube = RecordingKube()
    outcome = box.reset(delete_node=True)
    outcome.require_complete()
    assert "node node1" not in names(outcome.changes)


def test_a_plan_deletes_nothing(box):
    plan = box.plan(delete_node=True)
    assert plan.changes[0].target == "node node1"
    assert actions(box) == []


@pytest.mark.parametrize("error", [Forbidden("nodes is forbidden", code=403), Unreachable("nobody answers")])
def test_a_node_that_cannot_be_deleted_is_reported_and_the_machine_is_reset(box, monkeypatch, error):
    def refuse(*_: object, **__: object):
        raise error

    monkeypatch.setattr(box.kube, "delete", refuse)
    outcome = box.reset(delete_node=True)
    assert outcome.failures == (error,)
    assert not box.services.running
    assert not (box.root / "kubernetes/kubelet.conf").exists()
    assert not (box.root / "state").exists()
    again = Box(box.root, services=box.services).reset(delete_node=True)
    again.require_complete()


def test_a_kubelet_conf_without_a_name_is_reported(box):
    box.write("kubernetes/kubelet.conf", "{}")
    (error,) = box.reset(delete_node=True).failures
    assert error.what == "the name of this machine's Node is not known"
    assert actions(box) == []
