"""Configuration as v1beta4 documents: what kubeadm stores in the ConfigMap kubeadm-config and prints after a migration."""

from __future__ import annotations

from typing import Any

from kubewright.apis.kubeadm import documents, fields, node_fields
from kubewright.apis.kubeadm.node_types import JoinConfiguration, ResetConfiguration, UpgradeConfiguration
from kubewright.apis.kubeadm.types import ClusterConfiguration, InitConfiguration


def cluster_document(cluster: ClusterConfiguration) -> dict[str, Any]:
    """Return the ClusterConfiguration document, keys not yet sorted. A CI build is named with its `ci/` prefix, as kubeadm stores it."""
    body = fields.CLUSTER.encode(cluster)
    if cluster.ci_kubernetes_version:
        body["kubernetesVersion"] = cluster.ci_kubernetes_version
    return {"apiVersion": documents.API_VERSION, "kind": documents.CLUSTER, **body}


def init_document(init: InitConfiguration) -> dict[str, Any]:
    """Return the InitConfiguration document, keys not yet sorted. It holds tokens and perhaps the certificate key: never log it."""
    return {"apiVersion": documents.API_VERSION, "kind": documents.INIT, **fields.INIT.encode(init)}


def join_document(join: JoinConfiguration) -> dict[str, Any]:
    """Return the JoinConfiguration document, keys not yet sorted. It holds tokens and perhaps the certificate key: never log it."""
    return {"apiVersion": documents.API_VERSION, "kind": documents.JOIN, **node_fields.JOIN.encode(join)}


def reset_document(reset: ResetConfiguration) -> dict[str, Any]:
    """Return the ResetConfiguration document, keys not yet sorted."""
    return {"apiVersion": documents.API_VERSION, "kind": documents.RESET, **node_fields.RESET.encode(reset)}


def upgrade_document(upgrade: UpgradeConfiguration) -> dict[str, Any]:
    """Return the UpgradeConfiguration document, keys not yet sorted."""
    return {"apiVersion": documents.API_VERSION, "kind": documents.UPGRADE, **node_fields.UPGRADE.encode(upgrade)}
