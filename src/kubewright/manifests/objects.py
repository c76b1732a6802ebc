"""The objects that `init` writes, phase by phase, in kubeadm's order (kubeadm v1.36: cmd/init.go), and the labels and taints of a control-plane Node.

Secrets of tokens are rendered by `tokens`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubewright.apis.kubeadm.types import CONTROL_PLANE_LABEL, Configuration
from kubewright.apis.machine import Addresses, Detected
from kubewright.manifests import configmaps, coredns, kube_proxy
from kubewright.manifests.rbac import Purpose, grants

Objects = list[dict[str, Any]]

LABELS: Final = (CONTROL_PLANE_LABEL, "node.kubernetes.io/exclude-from-external-load-balancers")
"""Set with an empty value."""


def cluster_admins() -> Objects:
    """Return the binding that gives the group of admin.conf administrators' permissions."""
    return grants(Purpose.ADMINISTRATORS)


def kubeadm_config(configuration: Configuration) -> Objects:
    """Return kubeadm-config and the permission to read it."""
    return [configmaps.kubeadm_config(configuration), *grants(Purpose.KUBEADM_CONFIG)]


def kubelet_config(configuration: Configuration) -> Objects:
    """Return kubelet-config and the permission to read it."""
    return [configmaps.kubelet_config(configuration), *grants(Purpose.KUBELET_CONFIG)]


def kubeadm_certs(sealed: Mapping[str, bytes], *, owner: str, owner_uid: str) -> Objects:
    """Return the Secret of `configmaps.kubeadm_certs` and the permission to read it."""
    return [configmaps.kubeadm_certs(sealed, owner=owner, owner_uid=owner_uid), *grants(Purpose.CERTIFICATES)]


def joining() -> Objects:
    """Return the permissions that machines need to join and to renew certificates, and the API server to access kubelets."""
    return grants(Purpose.JOINING)


def dns(configuration: Configuration, *, replicas: int = coredns.REPLICAS) -> Objects:
    """Return the CoreDNS add-on; nothing if it is disabled."""
    return [] if configuration.cluster.dns.disabled else coredns.objects(configuration.cluster, replicas=replicas)


def proxy(configuration: Configuration, addresses: Addresses, detected: Detected) -> Objects:
    """Return the kube-proxy add-on; nothing if it is disabled."""
    return [] if configuration.cluster.proxy.disabled else kube_proxy.objects(configuration, addresses, detected)
