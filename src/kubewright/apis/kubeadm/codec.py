"""Configuration as v1beta4 documents.

kubeadm stores them in the ConfigMap kubeadm-config and prints them after a migration. The examples of `config print`
are kubeadm's defaults with placeholders for values that are specific to a machine (kubeadm v1.36: cmd/config.go).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kubewright.apis import kubelet, kubeproxy
from kubewright.apis.kubeadm import documents, node_types, types
from kubewright.apis.kubeadm.defaults import TOKEN_TTL
from kubewright.apis.kubeadm.node_types import (
    BootstrapTokenDiscovery,
    Discovery,
    JoinConfiguration,
    ResetConfiguration,
    UpgradeConfiguration,
)
from kubewright.apis.kubeadm.types import (
    BootstrapToken,
    ClusterConfiguration,
    ComponentConfig,
    Etcd,
    InitConfiguration,
    LocalAPIEndpoint,
    LocalEtcd,
    NodeRegistration,
)
from kubewright.apis.machine import CRI_SOCKET
from kubewright.base.versions import OWN


def cluster_document(cluster: ClusterConfiguration) -> dict[str, Any]:
    """Return the ClusterConfiguration document, keys not yet sorted.

    A CI build has its `ci/` prefix, as kubeadm stores it.
    """
    body = types.CLUSTER.encode(cluster)
    if cluster.ci_kubernetes_version:
        body["kubernetesVersion"] = cluster.ci_kubernetes_version
    return {"apiVersion": documents.API_VERSION, "kind": documents.CLUSTER, **body}


def init_document(init: InitConfiguration) -> dict[str, Any]:
    """Return the InitConfiguration document, keys not yet sorted.

    It contains tokens and maybe the certificate key: never log it.
    """
    return {"apiVersion": documents.API_VERSION, "kind": documents.INIT, **types.INIT.encode(init)}


def join_document(join: JoinConfiguration) -> dict[str, Any]:
    """Return the JoinConfiguration document, keys not yet sorted.

    It contains tokens and maybe the certificate key: never log it.
    """
    return {"apiVersion": documents.API_VERSION, "kind": documents.JOIN, **node_types.JOIN.encode(join)}


def reset_document(reset: ResetConfiguration) -> dict[str, Any]:
    """Return the ResetConfiguration document, keys not yet sorted."""
    return {"apiVersion": documents.API_VERSION, "kind": documents.RESET, **node_types.RESET.encode(reset)}


def upgrade_document(upgrade: UpgradeConfiguration) -> dict[str, Any]:
    """Return the UpgradeConfiguration document, keys not yet sorted."""
    return {"apiVersion": documents.API_VERSION, "kind": documents.UPGRADE, **node_types.UPGRADE.encode(upgrade)}


PLACEHOLDER_TOKEN: Final = "abcdef.0123456789abcdef"  # noqa: S105 - an example that everybody knows
ADDRESS: Final = "1.2.3.4"

_CLUSTER: Final = ClusterConfiguration(kubernetes_version=f"{OWN.line}.0", etcd=Etcd(local=LocalEtcd()))
_COMPONENTS: Final[Mapping[str, Callable[[], tuple[ComponentConfig, list[str]]]]] = {
    kubelet.KIND: lambda: kubelet.defaulted(None, _CLUSTER),
    kubeproxy.KIND: lambda: kubeproxy.defaulted(None, _CLUSTER, advertise_address=ADDRESS),
}
COMPONENTS: Final = tuple(sorted(_COMPONENTS))
"""Kinds of components that can be printed with the defaults of init."""


def init_examples(components: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return InitConfiguration, ClusterConfiguration, and documents of the requested components.

    Raises KeyError for other kinds.
    """
    init = InitConfiguration(
        bootstrap_tokens=(BootstrapToken(token=PLACEHOLDER_TOKEN, ttl=TOKEN_TTL),),
        local_api_endpoint=LocalAPIEndpoint(advertise_address=ADDRESS),
        node_registration=NodeRegistration(name="node", cri_socket=CRI_SOCKET),
    )
    documents = [init_document(init), cluster_document(_CLUSTER)]
    return [*documents, *(dict(_COMPONENTS[kind]()[0].document) for kind in components)]


def join_example(host_name: str) -> dict[str, Any]:
    """Return a JoinConfiguration for a machine of this name."""
    found = BootstrapTokenDiscovery(token=PLACEHOLDER_TOKEN, api_server_endpoint="kube-apiserver:6443", unsafe_skip_ca_verification=True)
    join = JoinConfiguration(
        discovery=Discovery(bootstrap_token=found, tls_bootstrap_token=PLACEHOLDER_TOKEN),
        node_registration=NodeRegistration(name=host_name.strip().lower(), cri_socket=CRI_SOCKET),
    )
    return join_document(join)


def reset_example() -> dict[str, Any]:
    """Return a ResetConfiguration."""
    return reset_document(ResetConfiguration(cri_socket=CRI_SOCKET))


def upgrade_example() -> dict[str, Any]:
    """Return an UpgradeConfiguration."""
    return upgrade_document(UpgradeConfiguration())
