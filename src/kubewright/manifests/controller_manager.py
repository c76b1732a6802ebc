"""The static pod of kube-controller-manager (spec/kubeadm.md 6.5)."""

from __future__ import annotations

from typing import Final

from kubewright.apis.addresses import Ports
from kubewright.apis.kubeadm.types import HostPathMount
from kubewright.manifests import volumes
from kubewright.manifests.flags import Flag, Inputs, Value, changed_port, const
from kubewright.manifests.pods import Component, Probes, probe_host


def _kubeconfig(inputs: Inputs) -> Value:
    return inputs.layout.kubeconfig("controller-manager")


FLAGS: Final = (
    Flag("allocate-node-cidrs", lambda c: "true" if c.cluster.networking.pod_subnet else None),
    Flag("authentication-kubeconfig", _kubeconfig),
    Flag("authorization-kubeconfig", _kubeconfig),
    Flag("bind-address", lambda c: c.addresses.loopback),
    Flag("client-ca-file", lambda c: c.layout.certificate("ca")),
    Flag("cluster-cidr", lambda c: c.cluster.networking.pod_subnet or None),
    Flag("cluster-name", lambda c: c.cluster.cluster_name),
    Flag("cluster-signing-cert-file", lambda c: "" if c.external_ca else c.layout.certificate("ca")),
    Flag("cluster-signing-key-file", lambda c: "" if c.external_ca else c.layout.key("ca")),
    Flag("controllers", const("*,bootstrapsigner,tokencleaner")),
    Flag("kubeconfig", _kubeconfig),
    Flag("leader-elect", const("true")),
    Flag("requestheader-client-ca-file", lambda c: c.layout.certificate("front-proxy-ca")),
    Flag("root-ca-file", lambda c: c.layout.certificate("ca")),
    Flag("secure-port", lambda c: changed_port(c.addresses.ports.controller_manager, Ports.controller_manager)),
    Flag("service-account-private-key-file", lambda c: c.layout.key("sa")),
    Flag("service-cluster-ip-range", lambda c: c.cluster.networking.service_subnet if c.cluster.networking.pod_subnet else None),
    Flag("use-service-account-credentials", const("true")),
)


def _probes(inputs: Inputs) -> Probes:
    host = probe_host(inputs.bind_address(inputs.addresses.loopback))
    return Probes(port=inputs.secure_port(inputs.addresses.ports.controller_manager), host=host, live="/healthz", start="/healthz")


def _mounts(inputs: Inputs) -> list[HostPathMount]:
    kubeconfig = volumes.mounted("kubeconfig", inputs.layout.kubeconfig("controller-manager"), volumes.FILE)
    return [*volumes.certificates(inputs), kubeconfig]


CONTROLLER_MANAGER: Final = Component(
    name="kube-controller-manager",
    flags=FLAGS,
    settings=lambda c: c.cluster.controller_manager,
    probes=_probes,
    mounts=_mounts,
    requests={"cpu": "200m"},
)
