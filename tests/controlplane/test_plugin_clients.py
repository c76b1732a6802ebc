"""Common clients with the plugin's cluster: kubectl, lightkube, the official Python client."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator

import kubernetes
import lightkube
import pytest
from lightkube.core.exceptions import ApiError
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node, Pod
from local_kit import eventually, program

from kubewright.local.cluster.cluster import LocalCluster

Kubectl = Callable[..., str]


def deployment(replicas: int) -> str:
    """Input of `kubectl apply`."""
    labels = {"app": "web"}
    container = {"name": "web", "image": "registry.example/web:1", "ports": [{"containerPort": 80}]}
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
    return json.dumps(body)


@pytest.fixture
def kubectl(kubewright_cluster: LocalCluster, kubewright_namespace: str) -> Kubectl:
    base = [program("kubectl"), f"--kubeconfig={kubewright_cluster.kubeconfig}", f"--namespace={kubewright_namespace}"]

    def run(*arguments: str, stdin: str = "") -> str:
        done = subprocess.run([*base, *arguments], input=stdin, capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    return run


def test_kubectl_applies_waits_scales_and_deletes(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=deployment(10))
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/web", "--timeout=600s")
    kubectl("wait", "--for=condition=Available", "deployment/web", "--timeout=600s")
    pods = json.loads(kubectl("get", "pods", "-o", "json"))["items"]
    assert len(pods) == 10
    assert len({pod["status"]["podIP"] for pod in pods}) == 10
    assert "configured" in kubectl("apply", "-f", "-", stdin=deployment(2))
    kubectl("rollout", "status", "deployment/web", "--timeout=600s")
    kubectl("delete", "deployment", "web", "--wait")
    kubectl("wait", "--for=delete", "pod", "--selector=app=web", "--timeout=600s")
    eventually(lambda: kubectl("get", "pods") == "", "pods that were created meanwhile to go too")


def test_kubectl_reads_the_logs_of_the_control_plane(kubectl: Kubectl, kubewright_cluster: LocalCluster) -> None:
    name = f"kube-apiserver-{kubewright_cluster.name}-control-plane"
    kubectl("wait", "--namespace=kube-system", "--for=create", f"pod/{name}", "--timeout=600s")  # the mirror pod comes after the Node
    lines = kubectl("logs", "--namespace=kube-system", name, "--tail=3").splitlines()
    assert len(lines) == 3
    eventually(lambda: kubectl("get", "nodes", "--no-headers").count(" Ready ") == 2, "both nodes to be ready")


@pytest.fixture
def client(kubewright_cluster: LocalCluster, kubewright_namespace: str) -> Iterator[lightkube.Client]:
    config = lightkube.KubeConfig.from_file(str(kubewright_cluster.kubeconfig))
    made = lightkube.Client(config=config, namespace=kubewright_namespace)
    yield made
    made.close()


def test_lightkube_creates_waits_and_deletes(client: lightkube.Client) -> None:
    assert len(list(client.list(Node))) == 2
    spec = PodSpec(containers=[Container(name="one", image="registry.example/one:1")])
    client.create(Pod(metadata=ObjectMeta(name="one"), spec=spec))
    found = client.wait(Pod, "one", for_conditions=["Ready"])
    assert found.status.phase == "Running"
    client.delete(Pod, "one", grace_period=0)
    with pytest.raises(ApiError) as gone:
        client.get(Pod, "one")
    assert gone.value.status.code == 404


@pytest.fixture
def official(kubewright_cluster: LocalCluster) -> Iterator[kubernetes.client.ApiClient]:
    api = kubernetes.config.new_client_from_config(str(kubewright_cluster.kubeconfig))
    yield api
    api.close()


def test_the_official_client_creates_and_watches(official: kubernetes.client.ApiClient, kubewright_namespace: str) -> None:
    core = kubernetes.client.CoreV1Api(official)
    assert len(core.list_node().items) == 2
    spec = {"containers": [{"name": "one", "image": "registry.example/one:1"}]}
    core.create_namespaced_pod(kubewright_namespace, {"metadata": {"name": "one"}, "spec": spec})
    phases = []
    for event in kubernetes.watch.Watch().stream(core.list_namespaced_pod, kubewright_namespace, timeout_seconds=600):
        phases.append(event["object"].status.phase)
        if phases[-1] == "Running":
            break
    assert phases[-1] == "Running"
    with pytest.raises(kubernetes.client.ApiException) as refused:
        core.read_namespaced_pod_log("one", kubewright_namespace)
    assert "is simulated by kubewright" in refused.value.body
