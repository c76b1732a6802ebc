"""Objects of a missing cluster for plans and dry runs: kubeadm's stand-ins (kubeadm v1.36: util/apiclient/dryrun.go).

These are objects or files that others create in a real run, based on what the phases did before; and the whole cluster
for `join --dry-run` and `upgrade --dry-run` if there is none. Values are kubeadm's, so that a command line with its pin
is valid for both tools.
"""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.apis.kubeadm.types import ClusterConfiguration, ComponentConfig, Configuration, InitConfiguration
from kubewright.apis.machine import Addresses, Layout
from kubewright.base import yaml
from kubewright.base.clock import Clock
from kubewright.base.randomness import Random
from kubewright.base.versions import OWN
from kubewright.host.desired import File
from kubewright.kube.credentials import Access, Anonymous, Identity
from kubewright.lifecycle import stored_configuration
from kubewright.lifecycle.steps.detected_cluster import API_SERVER
from kubewright.manifests import configmaps

KUBELET_FILES: Final[tuple[Callable[[Layout], PurePosixPath], ...]] = (lambda layout: layout.kubelet_client_current,)
"""Files that the kubelet creates once it runs. Their content is never read."""
SERVER: Final = "https://192.168.0.101:6443"
_NOBODY: Final = Anonymous()
_CA: Final = """
MIIDBTCCAe2gAwIBAgIINJftaB+OWwAwDQYJKoZIhvcNAQELBQAwFTETMBEGA1UEAxMKa3ViZXJuZXRlczAeFw0yNDA3MDgxMjQwMDRaFw0zNDA3MDYxMjQ1
MDRaMBUxEzARBgNVBAMTCmt1YmVybmV0ZXMwggEiMA0GCSqGSIb3DQEBAQUAA4IBDwAwggEKAoIBAQDaQDdigOyWim6W/48n3PHoVeVBSid6WcndEWuUq5gB
WXdlt996h+VnItlt8zChl/oR5WfRaRC805Z+oMn/Y8IGVQ3t1hnyImYn4w3vzRXouGeBeiu2SSVjgBwjXjybbMCmrAdIcbIeZmH66ev5z+5YKmZRUYc3hDaH
pXd0EEnZyJV5waZs0XMQUHM7eqOZAZJ9/mO3NUBplvrPnpOMK7kSEPPg75cU7WHoJHFkeYW593gsgCs2BtUu64cqbVX9bigrYddpZkoEKKxU8HIwHsI5V8Ro
n3mKFGlrE17b2l/8CqmAuOvyzLIeiQGXegIaR/nRHHID9ATi6tX8EaDDpev/AgMBAAGjWTBXMA4GA1UdDwEB/wQEAwICpDAPBgNVHRMBAf8EBTADAQH/MB0G
A1UdDgQWBBQYaCDe6yuVqSaWV73zLjWmGhiaTzAVBgNVHREEDjAMggprdWJlcm5ldGVzMA0GCSqGSIb3DQEBCwUAA4IBAQCceMnniPaqGREjGp6XRS7QEYmQ
rbEd+TV5JQ18o+mW6oGpZ8CA3JAHQDNNPEmPc0yuXDxO9BFXbg2XRH+KNJ3W2JfQ1TH3TXJEaxfHuX4mB59RClC114klWdHx1j7AmEkuy6tdjnaifhtSGnxA
03bp7b8go3IjW4NpWRN1WG59va0J8BHFh7CDieLn+DMuI63BgkY/y2s0L/dm9PfqgUK1A3/0dhCV6bECjzA3JBewmdH/+UBOyY2mC05YP33d0p9yykbkdXNq
DN5yAsvMP/OWCnB1eBQTojM82LSqwtvmmMR4tWauh9udVKGck4xBZWudrnKDUUXIQDMPRgJC/Nx4
"""
_KUBEADM: Final[dict[str, Any]] = {
    "apiVersion": "kubeadm.k8s.io/v1beta4",
    "kind": "ClusterConfiguration",
    "certificateValidityPeriod": "100h0m0s",
    "controlPlaneEndpoint": SERVER.removeprefix("https://"),
    "controllerManager": {"extraArgs": [{"name": "cluster-signing-duration", "value": "24h"}]},
    "kubernetesVersion": "1.35.0",
    "networking": {"podSubnet": "192.168.0.0/16"},
}
_KUBELET: Final[dict[str, Any]] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cgroupDriver": "systemd",
    "clusterDNS": ["10.96.0.10"],
    "healthzPort": 10248,
    "resolvConf": "/run/systemd/resolve/resolv.conf",
}
_KUBE_PROXY: Final[dict[str, Any]] = {
    "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
    "kind": "KubeProxyConfiguration",
    "bindAddress": "0.0.0.0",  # noqa: S104 - kubeadm's
    "clusterCIDR": "192.168.0.0/16",
}
_STORED: Final = (
    (stored_configuration.KUBEADM_CONFIG, _KUBEADM),
    (stored_configuration.KUBELET_CONFIG, _KUBELET),
    (stored_configuration.KUBE_PROXY, _KUBE_PROXY),
)


def node(name: str) -> dict[str, Any]:
    """Return the Node that the kubelet registers; mark-control-plane waits for its label."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"labels": {"kubernetes.io/hostname": name}, "name": name}, "spec": {}}


def _own_node(configuration: Configuration) -> dict[str, Any]:
    return node(configuration.init.node_registration.name)


OBJECTS: Final[tuple[Callable[[Configuration], dict[str, Any]], ...]] = (_own_node,)
"""Objects that others create in the cluster."""


def objects(configuration: Configuration) -> list[dict[str, Any]]:
    """Return the objects for a configuration."""
    return [row(configuration) for row in OBJECTS]


def kubelet_files(layout: Layout) -> tuple[File, ...]:
    """Return the kubelet's files for a layout."""
    return tuple(File(path=row(layout), content=b"") for row in KUBELET_FILES)


def cluster_authority() -> bytes:
    """Return the certificate of the CA, as PEM. Its key does not exist."""
    content = base64.b64encode(base64.b64decode(_CA)).decode()
    return ("-----BEGIN CERTIFICATE-----\n" + "\n".join(textwrap.wrap(content, 64)) + "\n-----END CERTIFICATE-----\n").encode()


def cluster_objects() -> list[dict[str, Any]]:
    """Return the objects that a joining machine reads."""
    return [configmaps.config_map(name, {key: yaml.dump(document)}) for (name, key, _), document in _STORED]


def objects_of_upgrade(node_name: str) -> list[dict[str, Any]]:
    """Return the objects that a machine reads for its upgrade: this Node and its API server are all that the cluster has.

    Their version is the first one of our minor release, as kubeadm's for the server.
    """
    version = f"v{OWN.line}.0"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{API_SERVER}-{node_name}",
            "namespace": stored_configuration.NAMESPACE,
            "labels": {"component": API_SERVER, "tier": "control-plane"},
        },
        "spec": {"nodeName": node_name, "containers": [{"name": API_SERVER, "image": f"registry.k8s.io/{API_SERVER}:{version}"}]},
    }
    return [*cluster_objects(), {**node(node_name), "status": {"nodeInfo": {"kubeletVersion": version}}}, pod]


def access(identity: Identity = _NOBODY) -> Access:
    """Return the access to the cluster, with which nothing connects."""
    return Access(server=SERVER, ca_pem=cluster_authority(), identity=identity)


def shared_certificates(certificate_key: str, *, clock: Clock, random: Random) -> dict[str, Any]:
    """Return the Secret with the files that control planes share, sealed with a key.

    They are all new, and nothing trusts them.
    """
    from kubewright.pki import ensure, specs, table
    from kubewright.pki.encryption import sealing
    from kubewright.pki.store import MemoryStore

    component = ComponentConfig(document={})
    nowhere = Configuration(init=InitConfiguration(), cluster=ClusterConfiguration(), kubelet=component, kube_proxy=component)
    store, key = MemoryStore(), sealing.parse_key(certificate_key)
    for row in table.CERTIFICATES:
        if isinstance(row, table.Authority | table.KeyPair):
            ensure.ensure(store, specs.of(row, nowhere, Addresses.of_machine("127.0.0.1")), ensure.IssuingSources(clock, random))
    sealed = {name.replace("/", "-"): sealing.seal(store[name], key, random=random) for name in store}
    return configmaps.kubeadm_certs(sealed, owner="", owner_uid="")
