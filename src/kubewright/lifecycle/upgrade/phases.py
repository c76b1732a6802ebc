"""The trees of `upgrade apply` and `upgrade node`, as data: names and order are kubeadm's (spec/kubeadm.md 2.4)."""

from __future__ import annotations

from typing import Final

from kubewright.workflow.phases import Phase, Phases

UpgradePhase = Phase[object]

_ALL: Final[UpgradePhase] = Phase("all", "Run all of them", every=True)
_PREFLIGHT: Final[UpgradePhase] = Phase("preflight", "Run the checks before an upgrade")
_CONTROL_PLANE: Final[UpgradePhase] = Phase("control-plane", "Upgrade the control plane of this machine")
_KUBECONFIG: Final[UpgradePhase] = Phase("kubeconfig", "Point the kubelet to the API server of this machine", hidden=True)
_KUBELET_CONFIG: Final[UpgradePhase] = Phase("kubelet-config", "Write the kubelet's configuration of this machine")
_ADDON: Final[UpgradePhase] = Phase(
    "addon", "Upgrade add-ons", children=(_ALL, Phase("coredns", "Upgrade CoreDNS"), Phase("kube-proxy", "Upgrade kube-proxy"))
)
_POST_UPGRADE: Final[UpgradePhase] = Phase("post-upgrade", "Do what is left after an upgrade")

APPLY: Final[Phases[object]] = Phases(
    _PREFLIGHT,
    _CONTROL_PLANE,
    Phase(
        "upload-config",
        "Store the configuration in the cluster",
        aliases=("uploadconfig",),
        children=(_ALL, Phase("kubeadm", "Store the ClusterConfiguration"), Phase("kubelet", "Store the KubeletConfiguration")),
    ),
    _KUBECONFIG,
    _KUBELET_CONFIG,
    Phase("bootstrap-token", "Bring the rights of bootstrap tokens up to date"),
    _ADDON,
    _POST_UPGRADE,
)
NODE: Final[Phases[object]] = Phases(_PREFLIGHT, _CONTROL_PLANE, _KUBECONFIG, _KUBELET_CONFIG, _ADDON, _POST_UPGRADE)
