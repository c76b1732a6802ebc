"""The tree of join, as data: names and order are kubeadm's (spec/kubeadm.md 2.3)."""

from __future__ import annotations

from typing import Final

from kubewright.workflow.phases import Phase, Phases

JoinPhase = Phase[object]

_ALL: Final[JoinPhase] = Phase("all", "Run all of them", every=True)

JOIN: Final[Phases[object]] = Phases(
    Phase("preflight [api-server-endpoint]", "Run the checks before join"),
    Phase(
        "control-plane-prepare",
        "Prepare this machine for a control plane",
        children=(
            _ALL,
            Phase("download-certs [api-server-endpoint]", "Download the certificates that the control planes share"),
            Phase("certs [api-server-endpoint]", "Generate this machine's certificates"),
            Phase("kubeconfig [api-server-endpoint]", "Generate the kubeconfig files of a control plane"),
            Phase("control-plane", "Generate the static pods of the control plane"),
        ),
    ),
    Phase("check-etcd", "Check that etcd is healthy", hidden=True),
    Phase("kubelet-start [api-server-endpoint]", "Write the kubelet's files and start it"),
    Phase("etcd-join", "Add a member to the local etcd cluster"),
    Phase("kubelet-wait-bootstrap", "Wait for the kubelet to get its certificate"),
    Phase(
        "control-plane-join",
        "Make this machine a control plane",
        children=(_ALL, Phase("mark-control-plane", "Label and taint the Node as a control plane")),
    ),
    Phase("wait-control-plane", "Wait for the control plane"),
)
