"""The configuration that a cluster stores about itself, as documents.

Source: kubeadm v1.36: phases/uploadconfig, util/config/cluster.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubewright.base import yaml
from kubewright.base.errors import APIError, DocumentError, NotFound
from kubewright.base.yaml import Document
from kubewright.kube.api import KubeAPI
from kubewright.kube.resources import CONFIG_MAP

NAMESPACE: Final = "kube-system"
KUBEADM_CONFIG: Final = ("kubeadm-config", "ClusterConfiguration", "upload it with `init phase upload-config kubeadm`")
KUBELET_CONFIG: Final = ("kubelet-config", "kubelet", "upload it with `init phase upload-config kubelet`")
KUBE_PROXY: Final = ("kube-proxy", "config.conf", "write it again with `init phase addon kube-proxy`")
READING: Final = (
    f'Reading configuration from the "{KUBEADM_CONFIG[0]}" ConfigMap in namespace "{NAMESPACE}"...',
    "Use 'kubewright init phase upload-config kubeadm --config your-config-file' to re-upload it.",
)
"""The lines that every command of kubeadm's prints before it reads this ConfigMap, with its own topic."""

StoredDocument = tuple[str, str, str]
"""A ConfigMap, its key with a document, and how to restore it."""


def document(api: KubeAPI, row: StoredDocument) -> Document:
    """Read one document.

    Raises NotFound without the ConfigMap, APIError without its key, DocumentError for anything but a map.
    """
    name, key, remedy = row
    try:
        found = document_in(api.get(CONFIG_MAP, name, NAMESPACE), row)
    except NotFound as error:
        error.remedy = remedy
        raise
    if found is None:
        raise APIError(f"the ConfigMap {NAMESPACE}/{name} has no {key}", remedy=remedy)
    return found


def find(api: KubeAPI, row: StoredDocument) -> Document | None:
    """Read one document; None without the ConfigMap, or without its key.

    Raises DocumentError for anything but a map.
    """
    try:
        return document_in(api.get(CONFIG_MAP, row[0], NAMESPACE), row)
    except NotFound:
        return None


def document_in(body: Mapping[str, Any], row: StoredDocument) -> Document | None:
    """Return the document of a ConfigMap; None if it lacks the key. Raises DocumentError for anything but a map."""
    data = body.get("data")
    text = data.get(row[1]) if isinstance(data, Mapping) else None
    return _document(text, row) if isinstance(text, str) else None


def _document(text: str, row: StoredDocument) -> Document:
    name, key, remedy = row
    source = f"{NAMESPACE}/{name}"
    value = yaml.load(text, source=source)
    if not isinstance(value, dict):
        raise DocumentError(f"{key} of the ConfigMap {source} is not a map", remedy=remedy)
    return Document(value=value, source=source)
