"""`up --machines --kubernetes-version`: clusters of the other minor releases. `make soak-tests` runs it, because all their programs have to be built."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from machine_kit import eventually
from whole_kit import Cluster, clusters

from kubewright.base.level import KUBERNETES
from kubewright.base.versions import RELEASES
from kubewright.machines.parts import Parts

OTHERS = [release.newest for release in RELEASES.values() if release.newest != KUBERNETES]
VERSIONS = "-o=jsonpath={.items[*].status.nodeInfo.kubeletVersion}"
IMAGES = "-o=jsonpath={.items[*].spec.containers[*].image}"
BUSYBOX = "docker.io/library/busybox:test"
SERVICE = "kubernetes.default.svc.cluster.local"
COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler")


@pytest.fixture
def cluster(parts: Parts) -> Iterator[Cluster]:
    """A cluster that does not exist yet."""
    with clusters("v") as (found,):
        yield found


@pytest.mark.parametrize("version", OTHERS)
def test_pods_run_in_a_cluster_of_another_minor_release(cluster: Cluster, version: str) -> None:
    made = cluster.up("--machines", "--nodes", "1", "--kubernetes-version", version)
    assert (made["kubernetesVersion"], made["state"]) == (version, "Ready")
    assert cluster.kubectl("get", "nodes", VERSIONS).split() == [version, version]
    images = set(cluster.kubectl("get", "pods", "-n", "kube-system", IMAGES).split())
    assert {f"registry.k8s.io/{name}:{version}" for name in COMPONENTS} <= images

    cluster.kubectl("run", "pod", "--image", BUSYBOX, "--command", "--", "sleep", "100000")
    cluster.kubectl("wait", "--for=condition=Ready", "pod/pod", "--timeout", "10m")
    eventually(lambda: "10.96.0.1" in cluster.in_pod("pod", "nslookup", SERVICE), "the name of the API server in a pod")
    assert cluster.up()["changes"] == []

    cluster.down()
    assert cluster.traces() == []
