"""What a machine says of itself as a part of its cluster: the name of its Node, its container runtime, and where its API server answers.

kubeadm asks the cluster for the same (kubeadm v1.36: util/config/cluster.go); the files of the machine tell it without one.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.kubeadm.types import LocalAPIEndpoint
from kubewright.base import yaml
from kubewright.base.errors import KubewrightError
from kubewright.base.patterns import Pattern
from kubewright.host.seam import Host
from kubewright.kube.credentials import ClientCertificate
from kubewright.kube.kubeconfigs import load_access
from kubewright.lifecycle.steps.detected_cluster import API_SERVER
from kubewright.lifecycle.upgrade.planning.diff import local_endpoint
from kubewright.pki import certificates

_NODE: Final = "system:node:"
_SOCKET: Final = Pattern(r"--container-runtime-endpoint=(?P<socket>[^\s\"]+)")


def is_control_plane(host: Host) -> bool:
    """Whether the machine has the manifest of an API server, by which kubeadm tells as well."""
    return host.state(host.layout.manifest(API_SERVER)) is not None


def node_name(host: Host) -> str:
    """Return the name of this machine's Node: the kubelet's certificate has it, else it is that of the host."""
    with suppress(KubewrightError):
        access = load_access(host.layout.kubeconfig("kubelet"), read=host.read)
        if isinstance(access.identity, ClientCertificate):
            found = certificates.first(access.identity.cert_pem, source="kubelet.conf").common_name
            if found.startswith(_NODE):
                return found.removeprefix(_NODE)
    return host.facts.detected.host_name.strip().lower()


def runtime_socket(host: Host) -> str:
    """Return where the container runtime answers, as the files of the kubelet say; else the socket that is there, '' for none."""
    layout, name = host.layout, "containerRuntimeEndpoint"
    flag = _SOCKET.search((host.read(layout.kubelet_flags) or b"").decode(errors="replace"))
    told = (_field(host, layout.kubelet_instance_config, name), flag["socket"] if flag else "", _field(host, layout.kubelet_config, name))
    return next(filter(None, (*told, *host.facts.detected.cri_sockets)), "")


def endpoint(host: Host) -> LocalAPIEndpoint:
    """Return where the API server of this machine answers. Raises DocumentError where its manifest does not tell."""
    path = host.layout.manifest(API_SERVER)
    address, port = local_endpoint((host.read(path) or b"").decode(errors="replace"), source=str(path))
    return LocalAPIEndpoint(advertise_address=address, bind_port=port)


def _field(host: Host, path: PurePosixPath, name: str) -> str:
    """Return the text of a field of a YAML file, '' where there is none."""
    with suppress(KubewrightError):
        content = host.read(path)
        found = yaml.load(content, source=str(path)) if content else None
        value = found.get(name) if isinstance(found, dict) else None
        return value if isinstance(value, str) else ""
    return ""
