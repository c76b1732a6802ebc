"""The objects that `init` writes, phase by phase, in kubeadm's order (spec/kubeadm.md 7.1), and what marks a Node as a control plane (7.7).

Secrets of tokens are made by `tokens`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubewright.apis.kubeadm.types import CONTROL_PLANE_LABEL, CONTROL_PLANE_TAINT, Configuration
from kubewright.apis.machine import Addresses, Detected
from kubewright.manifests import configmaps, coredns, kube_proxy
from kubewright.manifests.rbac import Purpose, grants
from kubewright.pki import specs, table
from kubewright.tokens import cluster_info as info

Objects = list[dict[str, Any]]

LABELS: Final = (CONTROL_PLANE_LABEL, "node.kubernetes.io/exclude-from-external-load-balancers")
"""Set with an empty value."""


def cluster_admins() -> Objects:
    """Return the binding that makes administrators of the group of admin.conf."""
    return grants(Purpose.ADMINISTRATORS)


def kubeadm_config(configuration: Configuration) -> Objects:
    """Return kubeadm-config and the rights to read it."""
    return [configmaps.kubeadm_config(configuration), *grants(Purpose.KUBEADM_CONFIG)]


def kubelet_config(configuration: Configuration) -> Objects:
    """Return kubelet-config and the rights to read it."""
    return [configmaps.kubelet_config(configuration), *grants(Purpose.KUBELET_CONFIG)]


def kubeadm_certs(sealed: Mapping[str, bytes], *, owner: str, owner_uid: str) -> Objects:
    """Return the Secret of `configmaps.kubeadm_certs` and the rights to read it."""
    return [configmaps.kubeadm_certs(sealed, owner=owner, owner_uid=owner_uid), *grants(Purpose.CERTIFICATES)]


def joining() -> Objects:
    """Return the rights that machines need to join and to renew their certificates, and the API server to reach kubelets."""
    return grants(Purpose.JOINING)


def cluster_info(configuration: Configuration, addresses: Addresses, *, ca_pem: bytes) -> Objects:
    """Return cluster-info and the right of everybody to read it."""
    server = specs.server(table.Endpoint.CONTROL_PLANE, configuration, addresses)
    return [info.config_map(server=server, ca_pem=ca_pem), *grants(Purpose.CLUSTER_INFO)]


def dns(configuration: Configuration, *, replicas: int = coredns.REPLICAS) -> Objects:
    """Return the CoreDNS add-on; nothing if it is disabled."""
    return [] if configuration.cluster.dns.disabled else coredns.objects(configuration.cluster, replicas=replicas)


def proxy(configuration: Configuration, addresses: Addresses, detected: Detected) -> Objects:
    """Return the kube-proxy add-on; nothing if it is disabled."""
    return [] if configuration.cluster.proxy.disabled else kube_proxy.objects(configuration, addresses, detected)


def all_of_init(configuration: Configuration, addresses: Addresses, detected: Detected, *, ca_pem: bytes) -> Objects:
    """Return everything that an `init` without `--upload-certs` writes, but the Secrets of tokens and the patch of the Node."""
    return [
        *cluster_admins(),
        *kubeadm_config(configuration),
        *kubelet_config(configuration),
        *joining(),
        *cluster_info(configuration, addresses, ca_pem=ca_pem),
        *dns(configuration),
        *proxy(configuration, addresses, detected),
    ]


def control_plane_patch(found: Mapping[str, Any], configuration: Configuration) -> dict[str, Any]:
    """Return the strategic merge patch that marks a Node, empty if it is marked already.

    The configured taints come first, then all present ones that are not among them. Lists of taints are replaced as a whole.
    """
    labels = found.get("metadata", {}).get("labels") or {}
    missing = {label: "" for label in LABELS if labels.get(label) != ""}
    present = list(found.get("spec", {}).get("taints") or ())
    configured = configuration.init.node_registration.taints
    wanted = [dict(taint) for taint in (configured if configured is not None else (CONTROL_PLANE_TAINT,))]
    wanted += [dict(taint) for taint in present if taint not in wanted]
    metadata = {"metadata": {"labels": missing}} if missing else {}
    return metadata | ({"spec": {"taints": wanted}} if wanted != present else {})
