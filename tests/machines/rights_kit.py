"""Permissions in a cluster: identities, the objects of a cluster as kubeadm makes it, and the API server's own answer for each cell."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from cluster_kit import TOKEN, Cluster, content, service_account_token

from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import Anonymous, BearerToken, ClientCertificate

VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete")
IDENTITIES: Final = ("bootstrap token", "node", "kube-proxy", "anonymous", "admin", "coredns", "API server to kubelet")


@dataclass(frozen=True)
class Target:
    """What a permission applies to; an empty name is a collection."""

    resource: str
    name: str = ""
    namespace: str = ""
    group: str = ""

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.resource} {self.name or '*'}{where}"

    def attributes(self, verb: str) -> dict[str, str]:
        """Return the attributes of a SubjectAccessReview."""
        resource, _, subresource = self.resource.partition("/")
        named = {"namespace": self.namespace, "name": self.name, "subresource": subresource}
        return {"verb": verb, "group": self.group, "resource": resource} | {key: value for key, value in named.items() if value}


def _rows(group: str, resource: str, namespace: str, *names: str) -> tuple[Target, ...]:
    return tuple(Target(resource, name, namespace, group) for name in names)


_RBAC, _CSR = "rbac.authorization.k8s.io", "certificates.k8s.io"
TARGETS: Final = (
    *_rows("", "configmaps", "kube-system", "kubeadm-config", "kubelet-config", "kube-proxy", "coredns", "kube-root-ca.crt", ""),
    *_rows("", "configmaps", "kube-public", "cluster-info", ""),
    *_rows("", "secrets", "kube-system", "kubeadm-certs", "bootstrap-token-abcdef", ""),
    *_rows("", "nodes", "", "one", "another", ""),
    *_rows("", "nodes/status", "", "one", "another"),
    *_rows("", "nodes/proxy", "", "one"),
    *_rows("", "pods", "kube-system", ""),
    *_rows("", "services", "", ""),
    *_rows("", "services", "kube-system", "kube-dns"),
    *_rows("", "serviceaccounts", "kube-system", "coredns", "kube-proxy"),
    *_rows("", "serviceaccounts/token", "kube-system", "kube-proxy"),
    *_rows("", "namespaces", "", "kube-system", ""),
    *_rows("discovery.k8s.io", "endpointslices", "", ""),
    *_rows("events.k8s.io", "events", "default", ""),
    *_rows("coordination.k8s.io", "leases", "kube-node-lease", "one", "another"),
    *_rows("apps", "deployments", "kube-system", "coredns"),
    *_rows("apps", "daemonsets", "kube-system", "kube-proxy"),
    *_rows(_CSR, "certificatesigningrequests", "", ""),
    *_rows(_CSR, "certificatesigningrequests/nodeclient", "", ""),
    *_rows(_CSR, "certificatesigningrequests/selfnodeclient", "", ""),
    *_rows(_CSR, "certificatesigningrequests/approval", "", ""),
    *_rows(_RBAC, "clusterroles", "", "kubeadm:get-nodes", "system:coredns"),
    *_rows(_RBAC, "clusterrolebindings", "", "kubeadm:cluster-admins", "kubeadm:kubelet-bootstrap", "kubeadm:node-proxier"),
    *_rows(_RBAC, "roles", "kube-system", "kubeadm:kubeadm-certs"),
    *_rows(_RBAC, "roles", "kube-public", "kubeadm:bootstrap-signer-clusterinfo"),
    *_rows(_RBAC, "rolebindings", "kube-system", "kubeadm:nodes-kubeadm-config"),
)

Cell = tuple[Target, str]


@contextmanager
def identities(cluster: Cluster) -> Iterator[Mapping[str, KubeClient]]:
    """Provide a client for each identity."""
    pki = "/etc/kubernetes/pki/apiserver-kubelet-client"
    known = {
        "bootstrap token": BearerToken(TOKEN),
        "kube-proxy": service_account_token(cluster, "kube-proxy"),
        "coredns": service_account_token(cluster, "coredns"),
        "anonymous": Anonymous(),
        "API server to kubelet": ClientCertificate(
            cert_pem=content(cluster.first, f"{pki}.crt"), key_pem=content(cluster.first, f"{pki}.key")
        ),
    }
    with ExitStack() as stack:
        clients = {name: stack.enter_context(cluster.client(identity)) for name, identity in known.items()}
        clients["node"] = stack.enter_context(cluster.client(path="/etc/kubernetes/kubelet.conf"))
        clients["admin"] = stack.enter_context(cluster.client())
        yield clients


def rights(clients: Mapping[str, KubeClient], name: str) -> Mapping[Cell, bool]:
    """Ask the API server for every cell of an identity. Anonymous may not ask for itself, so the administrator asks."""
    return {(target, verb): _may(clients, name, target.attributes(verb)) for target in TARGETS for verb in VERBS}


def _may(clients: Mapping[str, KubeClient], name: str, attributes: Mapping[str, str]) -> bool:
    kind, spec, asking = "SelfSubjectAccessReview", {}, name
    if name == "anonymous":
        kind, spec, asking = "SubjectAccessReview", {"user": "system:anonymous", "groups": ["system:unauthenticated"]}, "admin"
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": {**spec, "resourceAttributes": attributes}}
    path = f"/apis/authorization.k8s.io/v1/{kind.lower()}s"
    answer = clients[asking].raw("POST", path, body=json.dumps(body).encode(), headers={"Content-Type": "application/json"})
    assert answer.status == 201, (name, answer.body)
    return bool(json.loads(answer.body)["status"]["allowed"])


def status(client: KubeClient, method: str, path: str, body: Mapping[str, object] | None = None) -> int:
    """Send a request and return the kind of answer."""
    sent = None if body is None else json.dumps(body).encode()
    return client.raw(method, path, body=sent, headers={"Content-Type": "application/json"}).status


def differing(one: Mapping[Cell, bool], other: Mapping[Cell, bool]) -> Sequence[str]:
    """Name the cells that differ, with the answer of the first."""
    return [f"{verb} {target}: {allowed}" for (target, verb), allowed in one.items() if other[target, verb] != allowed]
