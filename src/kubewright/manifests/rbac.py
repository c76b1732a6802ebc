"""The RBAC objects of a new cluster, as tables (kubeadm v1.36: phases/bootstraptoken).

A row with rules is a role and its binding, a row without rules is a binding alone. `bootstrap_policy.jsonl` in this
directory contains the permissions of kube-controller-manager and kube-scheduler, as an API server creates them when it
starts with an empty etcd: one object per line, without the label and annotation that all of them have.
tests/controlplane/policy_collecting.py generates it from a real API server, and
tests/controlplane/test_bootstrap_policy_real.py compares it with one.
"""

from __future__ import annotations

import enum
import functools
import json
from pathlib import Path
from typing import Any, Final

from kubewright.apis import node_join_requests
from kubewright.base.level import KUBERNETES
from kubewright.base.records import dataclass

API: Final = "rbac.authorization.k8s.io"
API_VERSION: Final = f"{API}/v1"
KUBE_SYSTEM: Final = "kube-system"
KUBE_PUBLIC: Final = "kube-public"

_SIGNING: Final = "system:certificates.k8s.io:certificatesigningrequests"
BOOTSTRAP_POLICY: Final = Path(__file__).with_name("bootstrap_policy.jsonl")
BOOTSTRAP_USERS: Final = ("system:kube-controller-manager", "system:kube-scheduler")
BOOTSTRAP_VERSION: Final = KUBERNETES
"""The release of the table.

An API server never removes excess permissions from these roles, so the table is not used for other releases.
"""
BOOTSTRAP_LABEL: Final = ("kubernetes.io/bootstrapping", "rbac-defaults")
BOOTSTRAP_ANNOTATION: Final = ("rbac.authorization.kubernetes.io/autoupdate", "true")


class Purpose(enum.Enum):
    """The purpose of a row: the phase that creates it."""

    ADMINISTRATORS = enum.auto()
    KUBEADM_CONFIG = enum.auto()
    KUBELET_CONFIG = enum.auto()
    CERTIFICATES = enum.auto()
    JOINING = enum.auto()
    CLUSTER_INFO = enum.auto()
    COREDNS = enum.auto()
    KUBE_PROXY = enum.auto()
    CONTROLLERS = enum.auto()
    SERVING_APPROVER = enum.auto()
    ENROLLMENT = enum.auto()
    """Joining through a hub: oneinfra's rows, with oneinfra's names."""


@dataclass(frozen=True)
class Subject:
    """A subject of a binding. Only a service account has a namespace."""

    kind: str
    name: str
    namespace: str = ""

    def document(self) -> dict[str, Any]:
        """Return the subject as kubeadm sends it: without apiGroup, which the API server fills in."""
        return {"kind": self.kind, "name": self.name} | ({"namespace": self.namespace} if self.namespace else {})


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The verbs that are allowed for some resources; with `names`, only for those objects."""

    group: str = ""
    resources: tuple[str, ...]
    names: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ("get",)

    def document(self) -> dict[str, Any]:
        """Return the rule of a role."""
        names = {"resourceNames": list(self.names)} if self.names else {}
        return {"apiGroups": [self.group], **names, "resources": list(self.resources), "verbs": list(self.verbs)}


@dataclass(frozen=True, kw_only=True)
class Grant:
    """A binding, and with `rules` also the role of the same name. With a namespace, both are in that namespace."""

    purpose: Purpose
    name: str
    subjects: tuple[Subject, ...]
    rules: tuple[Rule, ...] = ()
    role: str = ""
    namespace: str = ""


_REQUESTER: Final = "oneinfra:node:join-requester"
_REQUESTERS: Final = (Subject("Group", node_join_requests.REQUESTERS),)
JOINING_NODES: Final = Subject("Group", "system:bootstrappers:kubeadm:default-node-token")
NODES: Final = Subject("Group", "system:nodes")


def _may_read(kind: str, name: str) -> tuple[Rule, ...]:
    return (Rule(resources=(kind,), names=(name,)),)


APPROVAL_BINDINGS: Final = ("kubeadm:node-autoapprove-bootstrap", "kubeadm:node-autoapprove-certificate-rotation")
"""The bindings that make the stock approver approve client certificates of nodes: the first ones, and their renewals."""
BY_POLICY: Final = "kubewright:node-client-by-policy"
BY_POLICY_SUBRESOURCE: Final = "nodeclientbypolicy"
"""A subresource that does not exist, like those of the stock approver.

Users who may create it learn from the API server that a policy decides about their requests.
"""
_OURS: Final = (Subject("User", "kubewright-controllers"),)
_REQUESTS: Final = "certificatesigningrequests"
_SIGNERS: Final = tuple(
    f"kubernetes.io/{name}" for name in ("kube-apiserver-client", "kube-apiserver-client-kubelet", "kubelet-serving", "legacy-unknown")
)

GRANTS: Final = (
    Grant(
        purpose=Purpose.ADMINISTRATORS,
        name="kubeadm:cluster-admins",
        role="cluster-admin",
        subjects=(Subject("Group", "kubeadm:cluster-admins"),),
    ),
    Grant(
        purpose=Purpose.KUBEADM_CONFIG,
        name="kubeadm:nodes-kubeadm-config",
        namespace=KUBE_SYSTEM,
        rules=_may_read("configmaps", "kubeadm-config"),
        subjects=(JOINING_NODES, NODES),
    ),
    Grant(
        purpose=Purpose.KUBELET_CONFIG,
        name="kubeadm:kubelet-config",
        namespace=KUBE_SYSTEM,
        rules=_may_read("configmaps", "kubelet-config"),
        subjects=(NODES, JOINING_NODES),
    ),
    Grant(
        purpose=Purpose.CERTIFICATES,
        name="kubeadm:kubeadm-certs",
        namespace=KUBE_SYSTEM,
        rules=_may_read("secrets", "kubeadm-certs"),
        subjects=(JOINING_NODES,),
    ),
    Grant(
        purpose=Purpose.JOINING,
        name="kubeadm:get-nodes",
        rules=(Rule(resources=("nodes",)),),
        subjects=(JOINING_NODES,),
    ),
    Grant(purpose=Purpose.JOINING, name="kubeadm:kubelet-bootstrap", role="system:node-bootstrapper", subjects=(JOINING_NODES,)),
    Grant(purpose=Purpose.JOINING, name=APPROVAL_BINDINGS[0], role=f"{_SIGNING}:nodeclient", subjects=(JOINING_NODES,)),
    Grant(
        purpose=Purpose.JOINING,
        name=APPROVAL_BINDINGS[1],
        role=f"{_SIGNING}:selfnodeclient",
        subjects=(NODES,),
    ),
    Grant(
        purpose=Purpose.JOINING,
        name="kubeadm:apiserver-kubelet-client",
        role="system:kubelet-api-admin",
        subjects=(Subject("User", "kube-apiserver-kubelet-client"),),
    ),
    Grant(
        purpose=Purpose.CLUSTER_INFO,
        name="kubeadm:bootstrap-signer-clusterinfo",
        namespace=KUBE_PUBLIC,
        rules=_may_read("configmaps", "cluster-info"),
        subjects=(Subject("User", "system:anonymous"),),
    ),
    Grant(
        purpose=Purpose.COREDNS,
        name="system:coredns",
        rules=(
            Rule(resources=("endpoints", "services", "pods", "namespaces"), verbs=("list", "watch")),
            Rule(group="discovery.k8s.io", resources=("endpointslices",), verbs=("list", "watch")),
        ),
        subjects=(Subject("ServiceAccount", "coredns", KUBE_SYSTEM),),
    ),
    Grant(
        purpose=Purpose.KUBE_PROXY,
        name="kubeadm:node-proxier",
        role="system:node-proxier",
        subjects=(Subject("ServiceAccount", "kube-proxy", KUBE_SYSTEM),),
    ),
    Grant(
        purpose=Purpose.KUBE_PROXY,
        name="kube-proxy",
        namespace=KUBE_SYSTEM,
        rules=_may_read("configmaps", "kube-proxy"),
        subjects=(JOINING_NODES,),
    ),
    Grant(
        purpose=Purpose.CONTROLLERS,
        name="kubewright:certificate-controllers",
        rules=(
            Rule(group="certificates.k8s.io", resources=(_REQUESTS,), verbs=("list", "watch", "delete")),
            Rule(group="certificates.k8s.io", resources=(f"{_REQUESTS}/approval", f"{_REQUESTS}/status"), verbs=("update",)),
            Rule(group="certificates.k8s.io", resources=("signers",), names=_SIGNERS[1:2], verbs=("approve",)),
            Rule(group="certificates.k8s.io", resources=("signers",), names=_SIGNERS, verbs=("sign",)),
            Rule(group="authorization.k8s.io", resources=("subjectaccessreviews",), verbs=("create",)),
            Rule(group="authentication.k8s.io", resources=("tokenreviews",), verbs=("create",)),
        ),
        subjects=_OURS,
    ),
    Grant(
        purpose=Purpose.CONTROLLERS,
        name="kubewright:certificate-events",
        namespace="default",
        rules=(Rule(resources=("events",), verbs=("create",)),),
        subjects=_OURS,
    ),
    Grant(
        purpose=Purpose.CONTROLLERS,
        name="kubewright:bootstrap-controllers",
        namespace=KUBE_SYSTEM,
        rules=(
            Rule(resources=("secrets",), verbs=("list", "watch", "delete")),
            Rule(resources=("configmaps",), names=("extension-apiserver-authentication",), verbs=("get",)),
            Rule(group="coordination.k8s.io", resources=("leases",), verbs=("create",)),
            Rule(group="coordination.k8s.io", resources=("leases",), names=("kubewright-controllers",), verbs=("get", "update")),
        ),
        subjects=_OURS,
    ),
    Grant(
        purpose=Purpose.CONTROLLERS,
        name="kubewright:cluster-info-signer",
        namespace=KUBE_PUBLIC,
        rules=(Rule(resources=("configmaps",), names=("cluster-info",), verbs=("list", "watch", "update")),),
        subjects=_OURS,
    ),
    Grant(
        purpose=Purpose.SERVING_APPROVER,
        name="kubewright:serving-approver",
        rules=(
            Rule(group="certificates.k8s.io", resources=(_REQUESTS,), verbs=("list", "watch")),
            Rule(group="certificates.k8s.io", resources=(f"{_REQUESTS}/approval",), verbs=("update",)),
            Rule(group="certificates.k8s.io", resources=("signers",), names=_SIGNERS[1:3], verbs=("approve",)),
            Rule(resources=("nodes",), verbs=("list", "watch")),
            Rule(group="networking.k8s.io", resources=("servicecidrs",), verbs=("list", "watch")),
            Rule(group="authorization.k8s.io", resources=("subjectaccessreviews",), verbs=("create",)),
            Rule(group="authentication.k8s.io", resources=("tokenreviews",), verbs=("create",)),
        ),
        subjects=_OURS,
    ),
    Grant(
        purpose=Purpose.SERVING_APPROVER,
        name="kubewright:serving-approver",
        namespace="default",
        rules=(
            Rule(resources=("endpoints",), names=("kubernetes",), verbs=("list", "watch")),
            Rule(resources=("events",), verbs=("create",)),
        ),
        subjects=_OURS,
    ),
    Grant(
        purpose=Purpose.SERVING_APPROVER,
        name="kubewright:serving-approver",
        namespace=KUBE_SYSTEM,
        rules=(
            Rule(resources=("configmaps",), names=("extension-apiserver-authentication",), verbs=("get",)),
            Rule(resources=("configmaps",), names=("kubewright-node-policy",), verbs=("list", "watch")),
            Rule(resources=("configmaps",), names=("kubewright-used-tokens",), verbs=("get", "update")),
            Rule(group="coordination.k8s.io", resources=("leases",), verbs=("create",)),
            Rule(group="coordination.k8s.io", resources=("leases",), names=("kubewright-controllers",), verbs=("get", "update")),
        ),
        subjects=_OURS,
    ),
    Grant(
        purpose=Purpose.SERVING_APPROVER,
        name=BY_POLICY,
        rules=(Rule(group="certificates.k8s.io", resources=(f"{_REQUESTS}/{BY_POLICY_SUBRESOURCE}",), verbs=("create",)),),
        subjects=(JOINING_NODES, NODES),
    ),
    Grant(
        purpose=Purpose.ENROLLMENT,
        name=_REQUESTER,
        rules=(Rule(group=node_join_requests.GROUP, resources=(node_join_requests.PLURAL,), verbs=("get", "create")),),
        subjects=_REQUESTERS,
    ),
    Grant(
        purpose=Purpose.ENROLLMENT,
        name=_REQUESTER,
        namespace=node_join_requests.NAMESPACE,
        rules=_may_read("configmaps", node_join_requests.CONFIG_MAP),
        subjects=_REQUESTERS,
    ),
    Grant(
        purpose=Purpose.ENROLLMENT,
        name="oneinfra:kubelet-proxier",
        role="system:kubelet-api-admin",
        subjects=(Subject("Group", "oneinfra:kubelet-proxier"),),
    ),
)
"""In the order in which kubeadm writes them."""


def grants(purpose: Purpose) -> list[dict[str, Any]]:
    """Return the roles and bindings of a purpose, in order, each role before its binding."""
    return [document for grant in GRANTS if grant.purpose is purpose for document in _documents(grant)]


def service_account(name: str) -> dict[str, Any]:
    """Return a service account of kube-system."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": KUBE_SYSTEM}}


def _documents(grant: Grant) -> list[dict[str, Any]]:
    role = {**_head("Role", grant), "rules": [rule.document() for rule in grant.rules]}
    kind = "Role" if grant.namespace and grant.rules else "ClusterRole"
    binding = {
        **_head("RoleBinding", grant),
        "roleRef": {"apiGroup": API, "kind": kind, "name": grant.name if grant.rules else grant.role},
        "subjects": [subject.document() for subject in grant.subjects],
    }
    return [role, binding] if grant.rules else [binding]


def _head(kind: str, grant: Grant) -> dict[str, Any]:
    namespace = {"namespace": grant.namespace} if grant.namespace else {}
    return {
        "apiVersion": API_VERSION,
        "kind": kind if grant.namespace else f"Cluster{kind}",
        "metadata": {"name": grant.name, **namespace},
    }


@functools.cache
def bootstrap_policy_text() -> str:
    """Return the table. It is read once: `--rootfs` does so while the package is still reachable."""
    return BOOTSTRAP_POLICY.read_text(encoding="utf-8")


def bootstrap_policy() -> list[dict[str, Any]]:
    """Return the bindings that name one of `BOOTSTRAP_USERS` and the roles that they bind.

    A member of system:masters must create them.
    """
    return [_whole(json.loads(line)) for line in bootstrap_policy_text().splitlines()]


def _whole(row: dict[str, Any]) -> dict[str, Any]:
    metadata = {**row["metadata"], "labels": dict([BOOTSTRAP_LABEL]), "annotations": dict([BOOTSTRAP_ANNOTATION])}
    return {"apiVersion": API_VERSION, **row, "metadata": metadata}
