"""A cluster of kubewright compared with one of kubeadm: the same objects, and the same permissions for all identities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from cluster_kit import KUBEADM, KUBEWRIGHT, Cluster, at_once, both
from machine_kit import eventually, kubectl, ready
from objects_kit import objects
from rights_kit import IDENTITIES, TARGETS, VERBS, differing, identities, rights, status

from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import BearerToken
from kubewright.machines.parts import Parts
from kubewright.manifests import rbac
from matrices import Matrix

Clients = Mapping[str, Mapping[str, KubeClient]]


@pytest.fixture(scope="module")
def clusters(parts: Parts) -> Iterator[Mapping[str, Cluster]]:
    """Two clusters with pods that are ready, on a node that has reported them: what it may read depends on its pods."""

    def settled(cluster: Cluster) -> bool:
        pods = kubectl(cluster.first, "-n", "kube-system", "get", "pods").get("items", [])
        placed = len(pods) == 7 and all(pod["spec"].get("nodeName") and "startTime" in pod["status"] for pod in pods)
        return placed and ready(cluster.first, "daemonset", "kube-proxy") and ready(cluster.first, "deployment", "coredns")

    with both(parts, topic="rights") as made:
        for cluster in made.values():
            eventually(lambda cluster=cluster: settled(cluster), "all pods to have a node")
        yield made


@pytest.fixture(scope="module")
def clients(clusters: Mapping[str, Cluster]) -> Iterator[Clients]:
    with identities(clusters[KUBEADM]) as theirs, identities(clusters[KUBEWRIGHT]) as ours:
        yield {KUBEADM: theirs, KUBEWRIGHT: ours}


def test_both_clusters_have_the_same_objects(clusters: Mapping[str, Cluster]) -> None:
    theirs: dict[str, Any] = {}
    ours: dict[str, Any] = {}

    def listed() -> bool:
        """Whether both have the same objects: kube-controller-manager makes some of them when a controller begins."""
        for found, tool in ((theirs, KUBEADM), (ours, KUBEWRIGHT)):
            found.clear()
            found.update(objects(clusters[tool].first))
        return ours.keys() == theirs.keys()

    eventually(listed, "the same objects")
    assert len(theirs) > 150
    managers = {name: (theirs[name]["metadata"].pop("managedFields"), ours[name]["metadata"].pop("managedFields")) for name in theirs}
    assert {name: found for name, found in managers.items() if found[0] != found[1] and name not in RACED} == WRITERS
    assert {name: managers[name] for name in RACED if managers[name] not in (RACED[name], (RACED[name][0],) * 2)} == {}
    assert [name for name in theirs if ours[name] != theirs[name]] == []


OURS, CONTROLLERS, SERVER = ("kubeadm", "Update", ""), ("kube-controller-manager", "Update", ""), ("kube-apiserver", "Update", "")
WRITERS = {
    # init signs it itself, so that joining machines need not wait for the controller manager
    "ConfigMap kube-public/cluster-info": ([CONTROLLERS, OURS], [OURS]),
}
"""Objects that other components write with kubeadm: their writers there, and in our clusters."""
RACED = {
    # objects that the controller manager needs exist before it starts
    **{
        f"ConfigMap {name}/kube-root-ca.crt": ([CONTROLLERS], [OURS])
        for name in ("default", "kube-node-lease", "kube-public", "kube-system")
    },
    # and the permissions of the controller manager and the scheduler
    **{
        f"{one['kind']} {one['metadata'].get('namespace', '-')}/{one['metadata']['name']}": ([SERVER], [OURS])
        for one in rbac.bootstrap_policy()
    },
}
"""Objects that init creates only if they are missing, as the API server and the controller manager do: whichever comes first writes them.
"""


@pytest.mark.parametrize("identity", IDENTITIES)
def test_all_identities_have_the_same_permissions(clients: Clients, identity: str, matrix: Callable[[str], Matrix]) -> None:
    theirs, ours = at_once(*(lambda tool=tool: rights(clients[tool], identity) for tool in (KUBEADM, KUBEWRIGHT)))
    told, cells = matrix("rights"), list(ours.values())
    told.record(identity, "allowed", str(sum(cells)))
    told.record(identity, "refused", str(len(cells) - sum(cells)))
    told.record(identity, "equal to kubeadm's", f"{len(cells) - len(differing(theirs, ours))} of {len(cells)}")
    assert len(ours) == len(TARGETS) * len(VERBS)
    assert differing(theirs, ours) == []
    assert sum(ours.values()) == ALLOWED[identity]


ALLOWED = {
    "bootstrap token": 12,
    "node": 52,
    "kube-proxy": 18,
    "anonymous": 1,
    "admin": len(TARGETS) * len(VERBS),
    "coredns": 12,
    "API server to kubelet": 16,
}
"""The number of allowed cells."""

CSR = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"generateName": "x-"}, "spec": {}}
HEALTH, UNHEALTHY = "/livez", 500
REQUESTS = {
    # identity: method, path, kind of answer
    "anonymous": (
        ("GET", "/api/v1/namespaces/kube-public/configmaps/cluster-info", 200),
        ("GET", "/api/v1/namespaces/kube-public/configmaps", 403),
        ("GET", "/api/v1/namespaces/kube-system/configmaps/kubeadm-config", 403),
        ("GET", "/api/v1/namespaces/kube-system/secrets/kubeadm-certs", 403),
        ("GET", "/api/v1/nodes/one", 403),
        ("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests", 403),
        ("GET", HEALTH, 200),
        ("GET", "/metrics", 403),
    ),
    "bootstrap token": (
        ("GET", "/api/v1/namespaces/kube-system/configmaps/kubeadm-config", 200),
        ("GET", "/api/v1/namespaces/kube-system/configmaps/kubelet-config", 200),
        ("GET", "/api/v1/namespaces/kube-system/configmaps/kube-proxy", 200),
        ("GET", "/api/v1/namespaces/kube-system/configmaps/coredns", 403),
        ("GET", "/api/v1/namespaces/kube-system/secrets/kubeadm-certs", 200),
        ("GET", "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef", 403),
        ("GET", "/api/v1/namespaces/kube-system/secrets", 403),
        ("GET", "/api/v1/nodes/one", 200),
        ("GET", "/api/v1/nodes", 403),
        ("DELETE", "/api/v1/nodes/one", 403),
        # allowed, and then refused because of its content
        ("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests", 422),
    ),
    "node": (
        ("GET", "/api/v1/nodes/one", 200),
        ("GET", "/api/v1/nodes/another", 403),
        ("GET", "/api/v1/namespaces/kube-system/secrets/kubeadm-certs", 403),
        ("GET", "/api/v1/namespaces/kube-system/configmaps/kubeadm-config", 200),
        # another node's lease: refused by the node restriction
        ("DELETE", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/another", 403),
    ),
}


@pytest.mark.parametrize("tool", [KUBEADM, KUBEWRIGHT])
@pytest.mark.parametrize("identity", REQUESTS)
def test_requests_are_answered_according_to_permissions(
    clients: Clients, tool: str, identity: str, matrix: Callable[[str], Matrix]
) -> None:
    client = clients[tool][identity]
    with matrix("rights").cell(identity, "requests"):
        rows = [(method, path, _answered(client, method, path)) for method, path, _ in REQUESTS[identity]]
        assert rows == list(REQUESTS[identity])


def _answered(client: KubeClient, method: str, path: str) -> int:
    """Return the kind of answer to a request.

    Health is requested until it is good: a busy etcd makes it 500 for a moment, which says nothing about permissions.
    """
    found: list[int] = []

    def told() -> bool:
        found.append(status(client, method, path, CSR if method == "POST" else None))
        return path != HEALTH or found[-1] != UNHEALTHY

    eventually(told, f"{path} to be well")
    return found[-1]


@pytest.mark.parametrize("tool", [KUBEADM, KUBEWRIGHT])
def test_an_unknown_token_is_unauthorized(clusters: Mapping[str, Cluster], tool: str) -> None:
    for token in ("abcdef.fedcba9876543210", "fedcba.0123456789abcdef"):
        with clusters[tool].client(BearerToken(token)) as client:
            assert status(client, "GET", "/api/v1/namespaces/kube-public/configmaps/cluster-info") == 401
