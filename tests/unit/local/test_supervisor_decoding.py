"""Manifests as values: what is read, and what is refused by its field path because a process cannot do it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from supervisor_kit import pod

from kubewright.base.errors import ValidationError
from kubewright.local.supervisor.decoding import digest, read_pod
from kubewright.local.supervisor.pod import HttpTarget, Probe, TcpTarget


def read(document: object):
    return read_pod(document, source="etcd.yaml", node="node1")


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return a manifest with one field set; a number in the path is a list index."""
    document = copy.deepcopy(FULL)
    *parents, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    here: Any = document
    for step in parents:
        here = here[step]
    here[last] = value
    return document


FULL = pod(
    "etcd",
    "etcd",
    "--data-dir=/var/lib/etcd",
    container={
        "args": ["--name=node1"],
        "env": [{"name": "A", "value": "1"}, {"name": "IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}],
        "image": "registry.k8s.io/etcd:3.6.8-0",
        "ports": [{"name": "probe-port", "containerPort": 2381, "protocol": "TCP"}],
        "livenessProbe": {
            "httpGet": {"path": "livez", "port": "probe-port", "scheme": "HTTPS"},
            "failureThreshold": 8,
            "timeoutSeconds": 15,
        },
        "readinessProbe": {"tcpSocket": {"port": "2379"}, "periodSeconds": 1, "terminationGracePeriodSeconds": 5},
        "startupProbe": {
            "httpGet": {"host": "127.0.0.1", "port": 2381, "httpHeaders": [{"name": "X", "value": "y"}]},
            "initialDelaySeconds": 10,
        },
        "resources": {"requests": {"cpu": "100m"}},
        "volumeMounts": [{"mountPath": "/var/lib/etcd/", "name": "data"}],
    },
    spec={
        "volumes": [{"name": "data", "hostPath": {"path": "/srv//etcd", "type": "DirectoryOrCreate"}}, {"name": "unused", "emptyDir": {}}],
        "priorityClassName": "system-node-critical",
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [],
    },
)


def test_all_fields_that_concern_a_process_are_read() -> None:
    found = read(FULL)
    assert (found.name, found.namespace, found.grace, found.source) == ("etcd", "kube-system", 1.0, "etcd.yaml")
    assert len(found.containers) == 1
    container = found.containers[0]
    assert (container.command, container.args) == (("etcd", "--data-dir=/var/lib/etcd"), ("--name=node1",))
    assert [(one.name, one.value, one.field) for one in container.env] == [("A", "1", ""), ("IP", "", "status.podIP")]
    assert [(one.mount_path, one.host_path, one.type) for one in container.mounts] == [("/var/lib/etcd", "/srv/etcd", "DirectoryOrCreate")]
    assert container.liveness == Probe(target=HttpTarget(port=2381, path="/livez", secure=True), failure_threshold=8, timeout=15)
    assert container.readiness == Probe(target=TcpTarget(port=2379), period=1, grace=5)
    assert container.startup == Probe(target=HttpTarget(port=2381, host="127.0.0.1", headers=(("X", "y"),)), initial_delay=10)
    assert found.component(container) == "etcd"


@pytest.mark.parametrize(
    ("path", "value", "error"),
    [
        ("apiVersion", "v2", 'apiVersion: Invalid value: "v2": must be v1'),
        ("kind", None, "kind: Invalid value: null: must be Pod"),
        ("metadata", [], "metadata: Wrong type: []: must be an object"),
        ("metadata.name", "", "metadata.name: Required value"),
        ("metadata.name", "../etcd", 'metadata.name: Invalid value: "../etcd"'),
        ("metadata.name", "a_b", "metadata.name: Invalid value"),
        ("metadata.name", "a" * 254, "metadata.name: Invalid value"),
        ("spec.hostNetwork", False, "spec.hostNetwork: Invalid value: false"),
        ("spec.restartPolicy", "Never", "spec.restartPolicy: Invalid value"),
        ("spec.initContainers", [{"name": "x"}], "spec.initContainers: Forbidden"),
        ("spec.ephemeralContainers", [{"name": "x"}], "spec.ephemeralContainers: Forbidden"),
        ("spec.serviceAccountName", "default", "spec.serviceAccountName: Forbidden"),
        ("spec.resourceClaims", [{"name": "x"}], "spec.resourceClaims: Forbidden"),
        ("spec.terminationGracePeriodSeconds", -1, "spec.terminationGracePeriodSeconds: Invalid value: -1: must be at least 0"),
        ("spec.terminationGracePeriodSeconds", True, "spec.terminationGracePeriodSeconds: Wrong type"),
        ("spec.containers", [], "spec.containers: Required value"),
        ("spec.containers", ["x"], 'spec.containers[0]: Wrong type: "x"'),
        ("spec.containers.0.command", [], "spec.containers[0].command: Required value: a local machine has no image"),
        ("spec.containers.0.command", ["etcd", 1], "spec.containers[0].command[1]: Wrong type: 1"),
        ("spec.containers.0.envFrom", [{}], "spec.containers[0].envFrom: Forbidden"),
        ("spec.containers.0.lifecycle", {"preStop": {}}, "spec.containers[0].lifecycle: Forbidden"),
        ("spec.containers.0.volumeDevices", [{}], "spec.containers[0].volumeDevices: Forbidden"),
        ("spec.containers.0.env.0.name", "A=B", "spec.containers[0].env[0].name: Invalid value"),
        ("spec.containers.0.env.1.valueFrom", {"secretKeyRef": {}}, "spec.containers[0].env[1].valueFrom: Forbidden"),
        (
            "spec.containers.0.env.1.valueFrom.fieldRef.fieldPath",
            "metadata.labels",
            'spec.containers[0].env[1].valueFrom.fieldRef.fieldPath: Unsupported value: "metadata.labels"',
        ),
        ("spec.containers.0.volumeMounts.0.name", "other", "spec.containers[0].volumeMounts[0].name: Invalid value"),
        ("spec.containers.0.volumeMounts.0.name", "unused", "spec.volumes[1]: Forbidden: a process can have only hostPath"),
        ("spec.containers.0.volumeMounts.0.subPath", "x", "spec.containers[0].volumeMounts[0].subPath: Forbidden"),
        ("spec.containers.0.volumeMounts.0.subPathExpr", "x", "spec.containers[0].volumeMounts[0].subPathExpr: Forbidden"),
        ("spec.containers.0.volumeMounts.0.mountPath", "relative", "spec.containers[0].volumeMounts[0].mountPath: Invalid value"),
        ("spec.containers.0.volumeMounts.0.mountPath", "/", "spec.containers[0].volumeMounts[0].mountPath: Invalid value"),
        ("spec.volumes.0.hostPath.path", "/a/../b", "spec.volumes[0].hostPath.path: Invalid value"),
        ("spec.volumes.0.hostPath.type", "BlockDevice", "spec.volumes[0].hostPath.type: Unsupported value"),
        ("spec.containers.0.livenessProbe.httpGet.port", "other", "spec.containers[0].livenessProbe.httpGet.port: Invalid value"),
        ("spec.containers.0.livenessProbe.httpGet.port", 65536, "spec.containers[0].livenessProbe.httpGet.port: Invalid value"),
        ("spec.containers.0.livenessProbe.httpGet.port", float("inf"), "spec.containers[0].livenessProbe.httpGet.port: Invalid value"),
        ("spec.containers.0.livenessProbe.httpGet.scheme", "FTP", "spec.containers[0].livenessProbe.httpGet.scheme: Unsupported value"),
        ("spec.containers.0.livenessProbe.httpGet.path", "/a\r\nX: y", "spec.containers[0].livenessProbe.httpGet.path: Invalid value"),
        ("spec.containers.0.livenessProbe", {"exec": {}}, "spec.containers[0].livenessProbe: Unsupported value"),
        ("spec.containers.0.livenessProbe.periodSeconds", "10", "spec.containers[0].livenessProbe.periodSeconds: Wrong type"),
    ],
)
def test_impossible_values_are_refused_with_their_path(path: str, value: object, error: str) -> None:
    with pytest.raises(ValidationError) as caught:
        read(changed(path, value))
    assert len(caught.value.errors) >= 1
    assert any(str(one).startswith(f"etcd.yaml: {error}") for one in caught.value.errors), [str(one) for one in caught.value.errors]


def test_every_error_is_reported_at_once() -> None:
    document = changed("kind", "Job")
    document["spec"]["hostNetwork"] = False
    document["spec"]["containers"][0]["command"] = []
    with pytest.raises(ValidationError) as caught:
        read(document)
    assert [str(one.path) for one in caught.value.errors] == ["kind", "spec.hostNetwork", "spec.containers[0].command"]


def test_two_containers_of_one_name_are_refused() -> None:
    document = copy.deepcopy(FULL)
    document["spec"]["containers"] *= 2
    with pytest.raises(ValidationError) as caught:
        read(document)
    assert [str(one.path) for one in caught.value.errors] == ["spec.containers[1].name"]


def test_the_hash_covers_the_meaning_and_the_node() -> None:
    reordered = dict(reversed(FULL.items()))
    assert digest(FULL, node="node1") == digest(reordered, node="node1") == read(FULL).hash
    assert len({digest(FULL, node="node1"), digest(FULL, node="node2"), digest({}, node="node1")}) == 3
    assert len(read(FULL).hash) == 32


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
PATHS = st.sampled_from(
    [
        "metadata", "metadata.name", "spec", "spec.volumes", "spec.volumes.0", "spec.volumes.0.hostPath", "spec.containers", "spec.containers.0",
        "spec.containers.0.command", "spec.containers.0.args", "spec.containers.0.env", "spec.containers.0.env.1.valueFrom",
        "spec.containers.0.ports", "spec.containers.0.ports.0.containerPort", "spec.containers.0.volumeMounts", "spec.containers.0.volumeMounts.0",
        "spec.containers.0.livenessProbe", "spec.containers.0.livenessProbe.httpGet", "spec.containers.0.livenessProbe.httpGet.port",
        "spec.containers.0.startupProbe.httpGet.httpHeaders", "spec.containers.0.readinessProbe.tcpSocket", "spec.terminationGracePeriodSeconds",
    ]
)  # fmt: skip


@given(PATHS, JSON)
def test_any_value_anywhere_is_read_or_refused(path: str, value: object) -> None:
    try:
        assert read(changed(path, value)).containers
    except ValidationError as refused:
        assert len(refused.errors) > 0  # both ends are right


@given(JSON)
def test_any_document_is_read_or_refused(document: object) -> None:
    with pytest.raises(ValidationError):
        read(document)
