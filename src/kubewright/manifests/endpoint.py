"""Where the API is reached by machines and pods that are told so."""

from __future__ import annotations

from kubewright.apis.addresses import Addresses
from kubewright.apis.kubeadm.types import ClusterConfiguration


def cluster_server(cluster: ClusterConfiguration, addresses: Addresses) -> str:
    """Return the URL of the control plane endpoint, or of this machine's API server where none is configured."""
    return f"https://{cluster.control_plane_endpoint}" if cluster.control_plane_endpoint else addresses.api_server
