"""The ConfigMaps and the Secret in which kubeadm keeps configuration and certificates for machines that join (kubeadm v1.36: phases/uploadconfig, phases/copycerts)."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any, Final

from kubewright.apis.kubeadm.codec import cluster_document
from kubewright.apis.kubeadm.types import ComponentConfig, Configuration
from kubewright.base import yaml

NAMESPACE: Final = "kube-system"
HASH: Final = "kubeadm.kubernetes.io/component-config.hash"
"""The annotation of a generated component configuration.

One that the user wrote has none, and it does not match one that was edited.
"""

KUBEADM_CERTS: Final = "kubeadm-certs"


def config_map(name: str, data: Mapping[str, str], **metadata: object) -> dict[str, Any]:
    """Return a ConfigMap of kube-system."""
    return {
        "apiVersion": "v1",
        "data": dict(data),
        "kind": "ConfigMap",
        "metadata": {**metadata, "name": name, "namespace": NAMESPACE},
    }


def kubeadm_config(configuration: Configuration) -> dict[str, Any]:
    """Return kubeadm-config: the ClusterConfiguration with all defaults."""
    return config_map("kubeadm-config", {"ClusterConfiguration": yaml.dump(cluster_document(configuration.cluster))})


def kubelet_config(configuration: Configuration) -> dict[str, Any]:
    """Return kubelet-config: the kubelet's configuration for all machines."""
    data = {"kubelet": yaml.dump(configuration.kubelet.document)}
    return config_map("kubelet-config", data, **signed(configuration.kubelet, data))


def signed(component: ComponentConfig, data: Mapping[str, str]) -> dict[str, Any]:
    """Return the metadata that marks a generated configuration; nothing for one that the user wrote."""
    return {} if component.user_supplied else {"annotations": {HASH: content_hash(data)}}


def content_hash(data: Mapping[str, str]) -> str:
    """Return `sha256:HEX` over all values by sorted key."""
    digest = hashlib.sha256()
    for key in sorted(data):
        digest.update(data[key].encode())
    return f"sha256:{digest.hexdigest()}"


def kubeadm_certs(sealed: Mapping[str, bytes], *, owner: str, owner_uid: str) -> dict[str, Any]:
    """Return the Secret with sealed certificates and keys by their names (`ca.crt`, `etcd-ca.key`), empty if a file is missing.

    It is deleted with its owner, the Secret of a bootstrap token that lives two hours.
    """
    reference = {
        "apiVersion": "v1",
        "blockOwnerDeletion": True,
        "controller": True,
        "kind": "Secret",
        "name": owner,
        "uid": owner_uid,
    }
    return {
        "apiVersion": "v1",
        "data": {name: base64.b64encode(sealed[name]).decode() for name in sorted(sealed)},
        "kind": "Secret",
        "metadata": {"name": KUBEADM_CERTS, "namespace": NAMESPACE, "ownerReferences": [reference]},
    }
