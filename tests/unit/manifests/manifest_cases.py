"""The reference cases of kubeadm v1.36.2, loaded by our own loader with the facts of their host."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from kubewright.apis.kubeadm.loading import load_init
from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.machine import Addresses, Detected, Layout
from kubewright.base.yaml import load_all

REFERENCE = Path(__file__).parents[2] / "data" / "reference"
CASES = ("ipv4-minimal", "extra-everything", "external-etcd", "dual-stack", "ipv6-only", "ecdsa-p256", "custom-paths-sans")
MORE_CASES = ("structured-authz", "proxy-env", "external-ca")
"""Cases whose manifests are compared as well, although nothing needs the rest of them yet."""

COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")
HOST = Detected(
    host_name="node1",
    default_ipv4="10.98.0.11",
    default_ipv6="fd00:98::11",
    cri_sockets=("unix:///var/run/containerd/containerd.sock",),
    ca_directories=("/etc/ca-certificates", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates"),
)
PROXIES = {
    "FOO_proxy": "x",
    "HTTPS_PROXY": "http://proxy.example.com:3128",
    "HTTP_PROXY": "http://proxy.example.com:3128",
    "no_proxy": "10.0.0.0/8,.svc",
}


@functools.cache
def load_file(name: str) -> Configuration:
    """Load a configuration file below the reference directory."""
    path = REFERENCE / name
    return load_init(load_all(path.read_bytes(), source=path.name), detected=HOST).configuration


def configuration_of(case: str) -> Configuration:
    return load_file(f"cases/{case}/kubeadm.yaml")


def detected_for(case: str) -> Detected:
    """The host of a case; one was recorded with proxy variables and on a host of another name."""
    if case != "proxy-env":
        return HOST
    return Detected(host_name="elsewhere", ca_directories=HOST.ca_directories, proxy_environment=PROXIES)


def places(configuration: Configuration) -> tuple[Layout, Addresses]:
    """kubeadm's paths for a configuration."""
    local = configuration.cluster.etcd.local
    layout = Layout().at(pki=configuration.cluster.certificates_dir, etcd_data=local.data_dir if local else None)
    endpoint = configuration.init.local_api_endpoint
    return layout, Addresses.of_machine(endpoint.advertise_address, bind_port=endpoint.bind_port)


def reference_json(name: str) -> Any:
    return json.loads((REFERENCE / name).read_text())
