"""The example configurations of `config print`: kubeadm's defaults with placeholders where a value belongs to one machine (spec/kubeadm.md 3.14)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kubewright.apis import kubelet, kubeproxy
from kubewright.apis.kubeadm import codec
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
from kubewright.apis.layout import CRI_SOCKET
from kubewright.base.versions import OWN

PLACEHOLDER_TOKEN: Final = "abcdef.0123456789abcdef"  # noqa: S105 - an example that everybody knows
ADDRESS: Final = "1.2.3.4"

_CLUSTER: Final = ClusterConfiguration(kubernetes_version=f"{OWN.line}.0", etcd=Etcd(local=LocalEtcd()))
_COMPONENTS: Final[Mapping[str, Callable[[], tuple[ComponentConfig, list[str]]]]] = {
    kubelet.KIND: lambda: kubelet.defaulted(None, _CLUSTER),
    kubeproxy.KIND: lambda: kubeproxy.defaulted(None, _CLUSTER, advertise_address=ADDRESS),
}
COMPONENTS: Final = tuple(sorted(_COMPONENTS))
"""Kinds of components that can be printed beside the defaults of init."""


def init_examples(components: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return InitConfiguration, ClusterConfiguration, and documents of components in the order asked for. Raises KeyError for other kinds."""
    init = InitConfiguration(
        bootstrap_tokens=(BootstrapToken(token=PLACEHOLDER_TOKEN, ttl=TOKEN_TTL),),
        local_api_endpoint=LocalAPIEndpoint(advertise_address=ADDRESS),
        node_registration=NodeRegistration(name="node", cri_socket=CRI_SOCKET),
    )
    documents = [codec.init_document(init), codec.cluster_document(_CLUSTER)]
    return [*documents, *(dict(_COMPONENTS[kind]()[0].document) for kind in components)]


def join_example(host_name: str) -> dict[str, Any]:
    """Return a JoinConfiguration for a machine of this name."""
    found = BootstrapTokenDiscovery(token=PLACEHOLDER_TOKEN, api_server_endpoint="kube-apiserver:6443", unsafe_skip_ca_verification=True)
    join = JoinConfiguration(
        discovery=Discovery(bootstrap_token=found, tls_bootstrap_token=PLACEHOLDER_TOKEN),
        node_registration=NodeRegistration(name=host_name.strip().lower(), cri_socket=CRI_SOCKET),
    )
    return codec.join_document(join)


def reset_example() -> dict[str, Any]:
    """Return a ResetConfiguration."""
    return codec.reset_document(ResetConfiguration(cri_socket=CRI_SOCKET))


def upgrade_example() -> dict[str, Any]:
    """Return an UpgradeConfiguration."""
    return codec.upgrade_document(UpgradeConfiguration())
