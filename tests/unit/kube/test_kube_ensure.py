"""Desired objects: decisions as a table, and what is written and how often on a recording cluster."""

from __future__ import annotations

import base64

import pytest

from kubewright.base import errors
from kubewright.base.change import Action, Lifetime
from kubewright.base.records import replace
from kubewright.kube import resources
from kubewright.kube.objects import DesiredObject, NodeMarks, Write, contains, decide, ensure_node_marks, ensure_object, remove_object
from kubewright.kube.recording import RecordingKube

CM = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "ns"}, "data": {"a": "1"}}
STORED = {**CM, "metadata": {**CM["metadata"], "uid": "u", "resourceVersion": "7", "managedFields": [{}], "creationTimestamp": "t"}}


def stored(**changes: object) -> dict:
    return {**STORED, **changes}


def labelled(labels: dict) -> dict:
    return stored(metadata={**STORED["metadata"], "labels": labels})


@pytest.mark.parametrize(
    ("found", "desired", "action"),
    [
        (None, DesiredObject(CM), Action.CREATE),
        (STORED, DesiredObject(CM), Action.NONE),
        (stored(data={"a": "1", "jws-kubeconfig-abcdef": "x"}), DesiredObject(CM), Action.NONE),
        (stored(data={"a": "2"}), DesiredObject(CM), Action.UPDATE),
        (stored(data=None), DesiredObject(CM), Action.UPDATE),
        (stored(data={"a": "2"}), DesiredObject(CM, write=Write.CREATE_ONLY), Action.NONE),
        (None, DesiredObject(CM, write=Write.CREATE_ONLY), Action.CREATE),
        (stored(data={"a": "2", "b": "3"}), DesiredObject(CM, write=Write.MUTATE_DATA_KEYS), Action.UPDATE),
        (
            stored(data={"a": "1", "b": "3"}),
            DesiredObject({**CM, "data": {"a": "1", "b": "9"}}, write=Write.MUTATE_DATA_KEYS, keys=("a",)),
            Action.NONE,
        ),
        (labelled({"x": "y"}), DesiredObject(CM), Action.NONE),
        (labelled({"x": "y"}), DesiredObject({**CM, "metadata": {**CM["metadata"], "labels": {"x": "z"}}}), Action.UPDATE),
        (STORED, DesiredObject({**CM, "metadata": {**CM["metadata"], "creationTimestamp": None}, "status": {"x": 1}}), Action.NONE),
    ],
)
def test_changes_of_an_object_are_decided(found: dict | None, desired: DesiredObject, action: Action) -> None:
    change = decide(found, desired).change
    assert change.action is action
    assert bool(change.diff) is (action is not Action.NONE)
    assert change.target == "configmap ns/c"


def test_an_update_keeps_fields_of_others() -> None:
    found = {
        **stored(data={"a": "2", "sig": "x"}),
        "immutable": False,
        "metadata": {**STORED["metadata"], "labels": {"theirs": "1"}, "annotations": {"note": "n"}, "ownerReferences": [{"uid": "o"}]},
    }
    body = decide(found, DesiredObject({**CM, "metadata": {**CM["metadata"], "labels": {"ours": "2"}}})).body
    assert body["metadata"]["labels"] == {"theirs": "1", "ours": "2"}
    assert body["metadata"]["annotations"] == {"note": "n"}
    assert (body["metadata"]["resourceVersion"], body["metadata"]["ownerReferences"]) == ("7", [{"uid": "o"}])
    assert body["data"] == {"a": "1"}
    assert body["immutable"] is False


def test_only_the_named_data_key_is_set() -> None:
    decision = decide(stored(data={"a": "2", "b": "3"}), DesiredObject(CM, write=Write.MUTATE_DATA_KEYS))
    assert decision.body["data"] == {"a": "1", "b": "3"}
    assert '+  a: "1"' in decision.change.diff
    assert "b:" not in [line.strip() for line in decision.change.diff.splitlines() if line[:1] in "+-"]


@pytest.mark.parametrize(
    ("found", "desired", "same"),
    [
        ({"spec": {"a": 1, "defaulted": True}}, {"spec": {"a": 1}}, True),
        ({"list": [{"a": 1, "protocol": "TCP"}]}, {"list": [{"a": 1}]}, True),
        ({"list": [{"a": 1}, {"a": 2}]}, {"list": [{"a": 1}]}, False),
        ({"list": [1, 2]}, {"list": [2, 1]}, False),
        ({}, {"a": None, "b": {}, "c": [], "d": "", "e": 0, "f": False}, True),
        ({"a": "x"}, {"a": ""}, False),
        ({"a": True}, {"a": 1}, False),
        ({"a": "1"}, {"a": 1}, False),
        ({"emptyDir": {}}, {"emptyDir": {}}, True),
    ],
)
def test_values_are_compared_by_meaning(found: dict, desired: dict, same: bool) -> None:
    assert contains(found, desired) is same


def test_defaults_of_the_server_are_no_part_of_the_diff() -> None:
    desired = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s", "namespace": "ns"},
        "spec": {"clusterIP": "10.96.0.10", "ports": [{"port": 53}]},
    }
    found = {**desired, "spec": {"clusterIP": "10.96.0.10", "ports": [{"port": 54, "protocol": "TCP"}], "sessionAffinity": "None"}}
    diff = decide(found, DesiredObject(desired)).change.diff
    assert [line for line in diff.splitlines() if line[:1] in "+-" and line[:3] not in {"+++", "---"}] == ["-  - port: 54", "+  - port: 53"]


def test_a_secret_is_never_shown() -> None:
    canary = base64.b64encode(b"canary-value").decode()
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "ns"},
        "stringData": {"token": "canary-value"},
        "data": {"other": "b3RoZXI="},
    }
    old = {
        **secret,
        "data": {"token": base64.b64encode(b"canary-older").decode(), "other": "b3RoZXI="},
        "metadata": {**secret["metadata"], "resourceVersion": "1"},
    }
    del old["stringData"]
    made, changed = decide(None, DesiredObject(secret)), decide(old, DesiredObject(secret))
    assert made.body["data"]["token"] == canary
    assert changed.change.action is Action.UPDATE
    for diff in (made.change.diff, changed.change.diff):
        assert "token" in diff
        assert not any(text in diff for text in ("canary", canary, old["data"]["token"], "b3RoZXI="))
    assert "(changed)" in changed.change.diff


def test_a_second_ensure_writes_nothing() -> None:
    api = RecordingKube()
    desired = DesiredObject(CM, lifetime=Lifetime.EPHEMERAL)
    changes = [ensure_object(api, desired), ensure_object(api, desired)]
    assert [change.action for change in changes] == [Action.CREATE, Action.NONE]
    assert changes[0].lifetime is Lifetime.EPHEMERAL
    assert [action.verb for action in api.writes] == ["create"]


class Busy(RecordingKube):
    """Another client writes first this many times."""

    def __init__(self, times: int, error: type[errors.StatusError]) -> None:
        super().__init__(stand_ins=[stored(data={"a": "2"})])
        self.left, self.error = times, error

    def send(self, call, /):
        if call.verb == "update" and self.left:
            self.left -= 1
            raise self.error("busy", code=409)
        return super().send(call)


def test_a_conflict_is_retried_after_another_read() -> None:
    api = Busy(3, errors.Conflict)
    assert ensure_object(api, DesiredObject(CM)).action is Action.UPDATE
    assert [action.verb for action in api.actions] == ["get", "get", "get", "get", "update"]
    with pytest.raises(errors.Conflict):
        ensure_object(Busy(4, errors.Conflict), DesiredObject(CM))


def test_an_object_created_in_the_meantime_is_read() -> None:
    class Race(RecordingKube):
        def send(self, call, /):
            if call.verb == "create" and not self.writes:
                super().send(replace(call, body={**call.body, "data": {"a": "theirs"}}))
                raise errors.AlreadyExists("race", code=409)
            return super().send(call)

    api = Race()
    assert ensure_object(api, DesiredObject(CM)).action is Action.UPDATE
    assert api.get(resources.CONFIG_MAP, "c", "ns")["data"] == {"a": "1"}


def test_removing_a_missing_object_is_no_change() -> None:
    api = RecordingKube(stand_ins=[STORED])
    assert remove_object(api, resources.CONFIG_MAP, "c", "ns").action is Action.DELETE
    assert remove_object(api, resources.CONFIG_MAP, "c", "ns").action is Action.NONE


NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1"}, "annotations": {"kubeadm.alpha.kubernetes.io/cri-socket": "x"}},
    "spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]},
}
MARKS = NodeMarks(
    name="n1",
    labels={"node-role.kubernetes.io/control-plane": ""},
    annotations={"kubeadm.alpha.kubernetes.io/cri-socket": None},
    taints=({"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},),
)


def test_a_node_is_marked_once() -> None:
    api = RecordingKube(stand_ins=[NODE])
    change = ensure_node_marks(api, MARKS)
    assert change.action is Action.UPDATE
    assert api.writes[0].call.body == {
        "metadata": {
            "annotations": {"kubeadm.alpha.kubernetes.io/cri-socket": None},
            "labels": {"node-role.kubernetes.io/control-plane": ""},
        },
        "spec": {
            "taints": [
                {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
            ]
        },
    }
    assert ensure_node_marks(api, MARKS).action is Action.NONE
    assert [action.verb for action in api.writes] == ["patch"]


def test_a_missing_node_is_reported() -> None:
    with pytest.raises(errors.NotFound):
        ensure_node_marks(RecordingKube(), MARKS)
