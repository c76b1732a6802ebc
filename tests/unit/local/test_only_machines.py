"""Clusters of machines that have become one machine: pods run on it, unless the user's documents say otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from kubewright.base import yaml
from kubewright.base.records import replace
from kubewright.kube.recording import RecordingKube
from kubewright.kube.resources import NODE
from kubewright.local import record
from kubewright.local.record import ClusterRecord, LocalMachineRecord
from kubewright.local.whole import documents, scheduling
from kubewright.local.whole.documents import Credentials

TAINT = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
OTHER = {"key": "reserved", "effect": "NoSchedule"}
FIRST = LocalMachineRecord(name="dev-control-plane", address="172.30.4.11")
ALONE = ClusterRecord(name="dev", id="0" * 32, machines=(FIRST,), nodes=0, kind=record.MACHINES, made=True)
LEAVING = replace(ALONE, machines=(FIRST, LocalMachineRecord(name="dev-control-plane-2", address="172.30.4.12", leaving=True)))
GIVEN = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nnodeRegistration: {taints: [{key: reserved, effect: NoSchedule}]}\n"


def cluster(*taints: dict[str, str]) -> RecordingKube:
    kube = RecordingKube()
    kube.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": FIRST.name}, "spec": {"taints": list(taints)}})
    return kube


@pytest.mark.parametrize(
    ("wanted", "taints", "left"),
    [
        (ALONE, [TAINT], []),
        (LEAVING, [OTHER, TAINT], [OTHER]),
        (ALONE, [OTHER], [OTHER]),
        (replace(ALONE, nodes=1), [TAINT], [TAINT]),
        (replace(LEAVING, machines=(FIRST, replace(LEAVING.machines[1], leaving=False))), [TAINT], [TAINT]),
        (replace(ALONE, config=GIVEN), [TAINT, OTHER], [TAINT, OTHER]),
    ],
)
def test_the_only_machine_loses_the_taint_of_control_planes(wanted: ClusterRecord, taints: list[Any], left: list[Any]) -> None:
    kube = cluster(*taints)
    changes = [change.target for change in scheduling.ensure(kube, wanted)]
    assert (kube.get(NODE, FIRST.name)["spec"].get("taints") or [], len(changes)) == (left, int(left != taints))
    assert scheduling.ensure(kube, wanted) == []


def test_a_node_that_has_not_registered_yet_has_no_taint() -> None:
    assert scheduling.ensure(RecordingKube(), ALONE) == []


@pytest.mark.parametrize(
    ("first", "untainted", "skipped"),
    [
        (replace(ALONE, nodes=1), True, ["mark-control-plane"]),
        (replace(ALONE, nodes=1), False, None),
        (ALONE, True, None),  # it never had the taint
        (replace(ALONE, nodes=1, config=GIVEN), True, None),
    ],
)
def test_init_does_not_taint_the_only_machine_again(first: ClusterRecord, untainted: bool, skipped: list[str] | None) -> None:
    made = documents.of_init(first, FIRST, within=300, unverified=False)
    credentials = Credentials(token="abcdef.0123456789abcdef", certificate_key="0" * 64)
    text = documents.for_run(made, credentials=credentials, within=300, untainted=untainted)
    found = [document.value.get("skipPhases") for document in yaml.load_all(text) if document.value["kind"] == "InitConfiguration"]
    assert found == [skipped]
