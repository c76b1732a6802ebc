"""Static pods as mirror Pods: what is created for a manifest, and what its status says."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from supervisor_kit import pod

from kubewright.local import pods
from kubewright.local.supervisor import ComponentPhase, ComponentState, LastExit, NodeFacts
from kubewright.local.supervisor.reading import read_pod

NODE = NodeFacts(name="Node1", ip="127.0.0.11")
SEEN = datetime(2026, 1, 2, 3, 4, 5, 678900, UTC)
STARTED = SEEN + timedelta(seconds=1)
ETCD = read_pod(pod("etcd", container={"image": "registry.k8s.io/etcd:3.6.8-0"}) | {"status": {}}, source="etcd.yaml", node=NODE.name)
READY = ComponentState(
    name="etcd",
    pod="etcd",
    container="etcd",
    phase=ComponentPhase.READY,
    pid=42,
    started_at=STARTED,
    changed_at=STARTED + timedelta(seconds=1),
)
EXIT = LastExit(code=1, signal=None, started_at=SEEN, finished_at=STARTED, reason="exit code 1", last_words=("bye",))


def test_a_mirror_pod_is_what_node_restriction_lets_a_node_create() -> None:
    found = pods.mirror_pod(ETCD, node=NODE, node_uid="uid-1", seen=SEEN)
    assert found == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "etcd-node1",
            "namespace": "kube-system",
            "labels": {"component": "etcd"},
            "annotations": {
                "kubernetes.io/config.hash": ETCD.hash,
                "kubernetes.io/config.mirror": ETCD.hash,
                "kubernetes.io/config.seen": "2026-01-02T03:04:05.6789Z",
                "kubernetes.io/config.source": "file",
            },
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "Node1", "uid": "uid-1", "controller": True}],
        },
        "spec": {**ETCD.body["spec"], "nodeName": "Node1", "tolerations": [{"operator": "Exists", "effect": "NoExecute"}]},
    }
    assert found["metadata"]["name"] == pods.mirror_name(ETCD, node=NODE.name)
    assert "tolerations" not in ETCD.body["spec"]


def test_annotations_and_tolerations_of_the_manifest_stay() -> None:
    document = pod("etcd", spec={"tolerations": [{"key": "a"}]})
    document["metadata"]["annotations"] = {"kubeadm.kubernetes.io/etcd.advertise-client-urls": "https://127.0.0.11:2379"}
    found = pods.mirror_pod(
        read_pod(document, source="etcd.yaml", node=NODE.name), node=NODE, node_uid="u", seen=SEEN.replace(microsecond=0)
    )
    assert len(found["metadata"]["annotations"]) == 5
    assert found["metadata"]["annotations"]["kubernetes.io/config.seen"] == "2026-01-02T03:04:05Z"
    assert found["spec"]["tolerations"] == [{"key": "a"}, {"operator": "Exists", "effect": "NoExecute"}]


@pytest.mark.parametrize(
    ("annotations", "deleted", "ours"),
    [
        ({"kubernetes.io/config.mirror": ETCD.hash}, None, True),
        ({"kubernetes.io/config.mirror": "other"}, None, False),
        ({}, None, False),
        ({"kubernetes.io/config.mirror": ETCD.hash}, "2026-01-02T03:04:05Z", False),
    ],
)
def test_a_mirror_of_another_manifest_is_not_ours(annotations: dict[str, str], deleted: str | None, ours: bool) -> None:
    found = {"metadata": {"annotations": annotations, **({"deletionTimestamp": deleted} if deleted else {})}}
    assert pods.is_mirror_of(found, ETCD) is ours


def test_the_status_of_a_ready_pod() -> None:
    found = pods.pod_status(ETCD, [READY, replace(READY, pod="other")], node=NODE, seen=SEEN)
    assert {name: found[name] for name in ("phase", "hostIP", "hostIPs", "podIP", "podIPs", "startTime")} == {
        "phase": "Running",
        "hostIP": "127.0.0.11",
        "hostIPs": [{"ip": "127.0.0.11"}],
        "podIP": "127.0.0.11",
        "podIPs": [{"ip": "127.0.0.11"}],
        "startTime": "2026-01-02T03:04:05Z",
    }
    assert {row["type"]: (row["status"], row["lastTransitionTime"]) for row in found["conditions"]} == {
        "PodReadyToStartContainers": ("True", "2026-01-02T03:04:05Z"),
        "Initialized": ("True", "2026-01-02T03:04:05Z"),
        "Ready": ("True", "2026-01-02T03:04:07Z"),
        "ContainersReady": ("True", "2026-01-02T03:04:07Z"),
        "PodScheduled": ("True", "2026-01-02T03:04:05Z"),
    }
    assert found["containerStatuses"] == [
        {
            "name": "etcd",
            "image": "registry.k8s.io/etcd:3.6.8-0",
            "imageID": "",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": "2026-01-02T03:04:06Z"}},
            "lastState": {},
            "containerID": f"process://42-{int(STARTED.timestamp())}",
        }
    ]


@pytest.mark.parametrize(
    ("state", "phase", "container"),
    [
        (None, "Pending", {"waiting": {"reason": "ContainerCreating"}}),
        (replace(READY, phase=ComponentPhase.RUNNING), "Running", {"running": {"startedAt": "2026-01-02T03:04:06Z"}}),
        (replace(READY, phase=ComponentPhase.UNHEALTHY), "Running", {"running": {"startedAt": "2026-01-02T03:04:06Z"}}),
        (
            replace(READY, phase=ComponentPhase.WAITING, started_at=None, pid=None, reason="etcd.yaml: no"),
            "Pending",
            {"waiting": {"reason": "ContainerCreating", "message": "etcd.yaml: no"}},
        ),
        (
            replace(READY, phase=ComponentPhase.CRASH_LOOP, started_at=None, pid=None, reason="exit code 1", last_exit=EXIT),
            "Running",
            {"waiting": {"reason": "CrashLoopBackOff", "message": "exit code 1"}},
        ),
    ],
)
def test_the_status_of_a_pod_that_is_not_ready(state: ComponentState | None, phase: str, container: dict) -> None:
    found = pods.pod_status(ETCD, [state] if state is not None else [], node=NODE, seen=SEEN)
    assert found["phase"] == phase
    assert found["containerStatuses"][0]["state"] == container
    ready = next(row for row in found["conditions"] if row["type"] == "Ready")
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "ContainersNotReady", "containers with unready status: [etcd]")


@pytest.mark.parametrize(
    ("last", "code", "reason"),
    [
        (EXIT, 1, "Error"),
        (replace(EXIT, code=0), 0, "Completed"),
        (replace(EXIT, code=None, signal=9), 137, "Error"),
        (replace(EXIT, code=None, signal=None), 137, "Error"),
    ],
)
def test_how_the_process_before_ended(last: LastExit, code: int, reason: str) -> None:
    found = pods.pod_status(ETCD, [replace(READY, restarts=2, last_exit=last)], node=NODE, seen=SEEN)["containerStatuses"][0]
    assert found["restartCount"] == 2
    ended = found["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (code, reason, "exit code 1\nbye")


def test_an_unchanged_pod_has_an_equal_status() -> None:
    assert pods.pod_status(ETCD, [READY], node=NODE, seen=SEEN) == pods.pod_status(
        ETCD, [replace(READY, rss_bytes=5)], node=NODE, seen=SEEN
    )
