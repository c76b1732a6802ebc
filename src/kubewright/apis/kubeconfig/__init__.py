"""Kubeconfig files: the documents that kubeadm writes, and reading anybody's (client-go v0.36: tools/clientcmd). Pure; works on parsed YAML."""

from __future__ import annotations

from kubewright.apis.kubeconfig.building import BearerToken, CertificateFiles, Credentials, EmbeddedCertificate, kubeconfig_document
from kubewright.apis.kubeconfig.reading import parse
from kubewright.apis.kubeconfig.rules import require_usable, resolve_discovery
from kubewright.apis.kubeconfig.values import Cluster, Context, Kubeconfig, Resolved, User

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
