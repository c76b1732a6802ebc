"""The changes of `--serving-certificates strict` to a configuration. Pure.

Kubelets request certificates from the cluster in place of self-signed ones, and API servers verify them. Both settings
are in the cluster's own configuration, so machines that join and upgrades keep them, also those of kubeadm.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.kubeadm.types import Arg, ComponentConfig, Configuration
from kubewright.base.records import replace

SELF_SIGNED: Final = "self-signed"
STRICT: Final = "strict"
STOCK: Final = "stock"
"""Client certificates of nodes are approved by kube-controller-manager."""
_AUTHORITY: Final = "kubelet-certificate-authority"


def strict(configuration: Configuration, *, authority: PurePosixPath) -> Configuration:
    """Return the configuration with certificates of kubelets that the cluster signs. `authority` is the cluster's CA certificate."""
    cluster, kubelet = configuration.cluster, configuration.kubelet
    server = cluster.api_server
    if not any(one.name == _AUTHORITY for one in server.extra_args):
        server = replace(server, extra_args=(*server.extra_args, Arg(name=_AUTHORITY, value=str(authority))))
    # an upgrade replaces a document that nobody supplied with one of defaults
    document = {**kubelet.document, "serverTLSBootstrap": True}
    return replace(
        configuration, cluster=replace(cluster, api_server=server), kubelet=ComponentConfig(document=document, user_supplied=True)
    )
