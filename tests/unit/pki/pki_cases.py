"""The configurations of the reference cases, the paths of their data, and a short way to create others."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from kubewright.apis.kubeadm.loading import load_init
from kubewright.apis.kubeadm.types import (
    ClusterConfiguration,
    ComponentConfig,
    Configuration,
    Etcd,
    InitConfiguration,
    LocalAPIEndpoint,
    LocalEtcd,
    NodeRegistration,
)
from kubewright.apis.machine import Addresses, Detected
from kubewright.base import yaml
from kubewright.base.randomness import SeededRandom

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


NAMES = ("ipv4-minimal", "extra-everything", "external-etcd", "dual-stack", "ipv6-only", "ecdsa-p256", "custom-paths-sans")
MACHINE = Detected(host_name="node1", default_ipv4=IPV4, default_ipv6="fd00:98::11")


def load_case(name):
    text = (REFERENCE / "cases" / name / "kubeadm.yaml").read_text()
    return load_init(yaml.load_all(text), detected=MACHINE, random=SeededRandom()).configuration


CASES = {name: load_case(name) for name in NAMES}


def addresses_of(config):
    endpoint = config.init.local_api_endpoint
    return Addresses.of_machine(endpoint.advertise_address, bind_port=endpoint.bind_port)


@cache
def reference(name):
    """Read a file of the reference data below `tests/data/reference`."""
    return json.loads((REFERENCE / name).read_text())
