"""Kubeconfig files: the documents that kubeadm writes, and reading any kubeconfig (client-go v0.36: tools/clientcmd).

Pure; works on parsed YAML.
"""

from __future__ import annotations

from kubewright.apis.kubeconfig.documents import BearerToken, CertificateFiles, Credentials, EmbeddedCertificate, kubeconfig_document
from kubewright.apis.kubeconfig.types import Cluster, Context, Kubeconfig, Resolved, User, parse
from kubewright.apis.kubeconfig.validation import require_usable, resolve_discovery

__all__ = [
    "BearerToken",
    "CertificateFiles",
    "Cluster",
    "Context",
    "Credentials",
    "EmbeddedCertificate",
    "Kubeconfig",
    "Resolved",
    "User",
    "kubeconfig_document",
    "parse",
    "require_usable",
    "resolve_discovery",
]
