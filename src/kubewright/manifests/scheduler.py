"""The static pod of kube-scheduler (spec/kubeadm.md 6.6)."""

from __future__ import annotations

from typing import Final

from kubewright.apis.addresses import Ports
from kubewright.manifests import volumes
from kubewright.manifests.flags import Flag, Inputs, Value, changed_port, const
from kubewright.manifests.pods import Component, Probes, probe_host


def _kubeconfig(inputs: Inputs) -> Value:
    return inputs.layout.kubeconfig("scheduler")


FLAGS: Final = (
    Flag("authentication-kubeconfig", _kubeconfig),
    Flag("authorization-kubeconfig", _kubeconfig),
    Flag("bind-address", lambda c: c.addresses.loopback),
    Flag("kubeconfig", _kubeconfig),
    Flag("leader-elect", const("true")),
    Flag("secure-port", lambda c: changed_port(c.addresses.ports.scheduler, Ports.scheduler)),
)


def _probes(inputs: Inputs) -> Probes:
    host = probe_host(inputs.bind_address(inputs.addresses.loopback))
    port = inputs.secure_port(inputs.addresses.ports.scheduler)
    return Probes(port=port, host=host, live="/livez", ready="/readyz", start="/livez")


SCHEDULER: Final = Component(
    name="kube-scheduler",
    flags=FLAGS,
    settings=lambda c: c.cluster.scheduler,
    probes=_probes,
    mounts=lambda c: [volumes.mounted("kubeconfig", c.layout.kubeconfig("scheduler"), volumes.FILE)],
    requests={"cpu": "100m"},
)
