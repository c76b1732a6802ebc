"""The properties of this machine in its cluster: the name of its Node, its container runtime, its API endpoint.

kubeadm reads them from the cluster (kubeadm v1.36: util/config/cluster.go). They are read from files of the machine
here, which works without a cluster that answers.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from kubewright.apis.kubeadm.types import LocalAPIEndpoint
from kubewright.base.errors import KubewrightError
from kubewright.host.seam import Host
from kubewright.kube.credentials import ClientCertificate
from kubewright.kube.kubeconfigs import load_access
from kubewright.lifecycle.steps import own_runtime
from kubewright.lifecycle.steps.detected_cluster import API_SERVER
from kubewright.pki import certificates

_NODE: Final = "system:node:"


def is_control_plane(host: Host) -> bool:
    """Whether the machine has the manifest of an API server. kubeadm decides by the same file."""
    return host.state(host.layout.manifest(API_SERVER)) is not None


def node_name(host: Host) -> str:
    """Return the name of this machine's Node: that of the kubelet's certificate, otherwise the host name."""
    with suppress(KubewrightError):
        access = load_access(host.layout.kubeconfig("kubelet"), read=host.read)
        if isinstance(access.identity, ClientCertificate):
            found = certificates.first(access.identity.cert_pem, source="kubelet.conf").common_name
            if found.startswith(_NODE):
                return found.removeprefix(_NODE)
    return host.facts.detected.host_name.strip().lower()


def runtime_socket(host: Host) -> str:
    """Return the runtime's socket from the kubelet's files, otherwise a socket that exists; '' for none."""
    return next(filter(None, (own_runtime.configured(host), *host.facts.detected.cri_sockets)), "")


def endpoint(host: Host) -> LocalAPIEndpoint:
    """Return the endpoint of this machine's API server. Raises DocumentError if its manifest does not contain it."""
    from kubewright.lifecycle.upgrade.planning.diff import local_endpoint  # for control planes

    path = host.layout.manifest(API_SERVER)
    address, port = local_endpoint((host.read(path) or b"").decode(errors="replace"), source=str(path))
    return LocalAPIEndpoint(advertise_address=address, bind_port=port)
