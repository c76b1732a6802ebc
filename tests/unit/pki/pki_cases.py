"""The configurations of the reference cases, as far as certificates and kubeconfigs depend on them, and where the data lies."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from kubewright.apis.addresses import Addresses
from kubewright.apis.kubeadm.types import (
    APIServer,
    ClusterConfiguration,
    ComponentConfig,
    Configuration,
    Etcd,
    ExternalEtcd,
    InitConfiguration,
    LocalAPIEndpoint,
    LocalEtcd,
    Networking,
    NodeRegistration,
)
from kubewright.base.durations import HOUR, Duration

REFERENCE = Path(__file__).parents[2] / "data" / "reference"
IPV4 = "10.98.0.11"
LOCAL = Etcd(local=LocalEtcd())


def configuration(*, node="node1", advertise=IPV4, port=6443, etcd=LOCAL, **cluster: object):
    return Configuration(
        init=InitConfiguration(
            node_registration=NodeRegistration(name=node), local_api_endpoint=LocalAPIEndpoint(advertise_address=advertise, bind_port=port)
        ),
        cluster=ClusterConfiguration(etcd=etcd, **cluster),
        kubelet=ComponentConfig(document={}),
        kube_proxy=ComponentConfig(document={}),
    )


CASES = {
    "ipv4-minimal": configuration(),
    "extra-everything": configuration(
        node="cp-a",
        control_plane_endpoint="lb.example.com:6443",
        networking=Networking(pod_subnet="10.244.0.0/16", service_subnet="10.100.0.0/16", dns_domain="my.domain"),
    ),
    "external-etcd": configuration(etcd=Etcd(external=ExternalEtcd(endpoints=("https://10.98.0.21:2379",)))),
    "dual-stack": configuration(
        control_plane_endpoint="cp.example.com:6443",
        networking=Networking(pod_subnet="10.244.0.0/16,fd00:10:244::/56", service_subnet="10.96.0.0/16,fd00:10:96::/112"),
    ),
    "ipv6-only": configuration(
        advertise="fd00:98::11", networking=Networking(pod_subnet="fd00:10:244::/56", service_subnet="fd00:10:96::/112")
    ),
    "ecdsa-p256": configuration(encryption_algorithm="ECDSA-P256"),
    "custom-paths-sans": configuration(
        port=8443,
        cluster_name="prod-eu",
        certificates_dir="/etc/kubernetes/custom-pki",
        control_plane_endpoint="10.98.0.100:443",
        encryption_algorithm="RSA-3072",
        certificate_validity_period=Duration(720 * HOUR),
        ca_certificate_validity_period=Duration(17520 * HOUR),
        networking=Networking(dns_domain="corp.local"),
        api_server=APIServer(cert_sans=("API.Example.COM", "*.api.example.com", "192.0.2.10", "fd00::10", "node1")),
        etcd=Etcd(local=LocalEtcd(server_cert_sans=("etcd.example.com", "192.0.2.20"), peer_cert_sans=("peer.example.com", "192.0.2.21"))),
    ),
}


def addresses_of(config):
    endpoint = config.init.local_api_endpoint
    return Addresses.of_machine(endpoint.advertise_address, bind_port=endpoint.bind_port)


@cache
def reference(name):
    """Read a file of the reference data below `tests/data/reference`."""
    return json.loads((REFERENCE / name).read_text())
