"""Mirror pods against a real API server with NodeRestriction: created, reported and replaced by the node's own identity."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from kubewright.base.errors import Forbidden
from kubewright.kube import resources
from kubewright.kube.client import KubeClient
from kubewright.local import pods
from kubewright.local.supervisor import ComponentPhase, ComponentState, LastExit, NodeFacts
from kubewright.local.supervisor.pod import StaticPod
from kubewright.local.supervisor.reading import read_pod

SEEN = datetime(2026, 1, 2, 3, 4, 5, 678900, UTC)


@pytest.fixture
def node() -> NodeFacts:
    return NodeFacts(name=f"node-{uuid.uuid4().hex[:8]}", ip="127.0.0.11")


@pytest.fixture
def kubelet(apiserver, node: NodeFacts) -> Iterator[KubeClient]:
    client = KubeClient(apiserver.access(f"system:node:{node.name}", "system:nodes"))
    client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name}})
    yield client
    client.close()


def static_pod(node: NodeFacts, flag: str = "--v=2") -> StaticPod:
    container = {
        "name": "kube-apiserver",
        "command": ["kube-apiserver", flag],
        "image": "registry.k8s.io/kube-apiserver:v1.36.3",
        "imagePullPolicy": "IfNotPresent",
        "ports": [{"name": "probe-port", "containerPort": 6443, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "250m"}},
        "volumeMounts": [{"name": "certs", "mountPath": "/etc/ssl/certs", "readOnly": True}],
    }
    spec = {
        "hostNetwork": True,
        "containers": [container],
        "priority": 2000001000,
        "priorityClassName": "system-node-critical",
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": "certs", "hostPath": {"path": "/etc/ssl/certs", "type": "DirectoryOrCreate"}}],
    }
    meta = {"name": "kube-apiserver", "namespace": "kube-system", "labels": {"component": "kube-apiserver", "tier": "control-plane"}}
    return read_pod({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {}}, source="x.yaml", node=node.name)


def uid_of(client: KubeClient, node: NodeFacts) -> str:
    return str(client.get(resources.NODE, node.name)["metadata"]["uid"])


def test_a_node_creates_reports_and_replaces_its_mirror_pod(kubelet: KubeClient, node: NodeFacts) -> None:
    static = static_pod(node)
    made = kubelet.create(pods.mirror_pod(static, node=node, node_uid=uid_of(kubelet, node), seen=SEEN))
    name = f"kube-apiserver-{node.name}"
    assert made["metadata"]["name"] == name
    assert pods.is_mirror_of(made, static)
    assert not pods.is_mirror_of(made, static_pod(node, "--v=4"))
    state = ComponentState(
        name="kube-apiserver",
        pod="kube-apiserver",
        container="kube-apiserver",
        phase=ComponentPhase.READY,
        pid=42,
        restarts=1,
        started_at=SEEN + timedelta(seconds=1),
        changed_at=SEEN + timedelta(seconds=3),
        last_exit=LastExit(code=1, signal=None, started_at=SEEN, finished_at=SEEN, reason="exit code 1", last_words=("bye",)),
    )
    waiting = replace(state, phase=ComponentPhase.CRASH_LOOP, pid=None, started_at=None, reason="exit code 1")
    for one, ready in ((state, "True"), (waiting, "False"), (state, "True")):
        status = pods.pod_status(static, [one], node=node, seen=SEEN)
        stored = kubelet.patch(resources.POD, name, {"status": status}, "kube-system", type="merge", subresource="status")["status"]
        conditions = {row["type"]: row["status"] for row in stored["conditions"]}
        assert {kind: conditions[kind] for kind in ("Ready", "ContainersReady", "Initialized", "PodScheduled")} == {
            "Ready": ready,
            "ContainersReady": ready,
            "Initialized": "True",
            "PodScheduled": "True",
        }
        assert [row.get("reason") for row in stored["conditions"] if row["type"] == "Ready"] == [
            None if ready == "True" else "ContainersNotReady"
        ]
        assert [len(row["state"]) for row in stored["containerStatuses"]] == [1]
        assert stored["phase"] == "Running"
        assert [row["restartCount"] for row in stored["containerStatuses"]] == [1]
    kubelet.delete(resources.POD, name, "kube-system", grace_seconds=0)
    again = kubelet.create(pods.mirror_pod(static_pod(node, "--v=4"), node=node, node_uid=uid_of(kubelet, node), seen=SEEN))
    assert again["metadata"]["uid"] != made["metadata"]["uid"]


def test_another_node_may_not(apiserver, kubelet: KubeClient, node: NodeFacts) -> None:
    stranger = KubeClient(apiserver.access("system:node:stranger", "system:nodes"))
    with pytest.raises(Forbidden):
        stranger.create(pods.mirror_pod(static_pod(node), node=node, node_uid=uid_of(kubelet, node), seen=SEEN))
    stranger.close()
