"""The trees of `upgrade apply` and `upgrade node`, as data: names, order and flags are kubeadm's (kubeadm v1.36: cmd/upgrade, cmd/phases/upgrade)."""

from __future__ import annotations

from typing import Final

from kubewright.workflow.phases import Phase, Phases

UpgradePhase = Phase[object]

_VERSION: Final = "version"
"""Names the positional argument that phases of `apply` have; those of `node` take none."""

_CLUSTER = "config dry-run kubeconfig"
_PATCHED = _CLUSTER + " patches"
_CONTROL_PLANE_FLAGS = "certificate-renewal etcd-upgrade config dry-run kubeconfig patches"
_APPLY_PREFLIGHT = (
    "allow-experimental-upgrades allow-release-candidate-upgrades force ignore-preflight-errors yes config dry-run kubeconfig"
)


def _leaf(name: str, summary: str, flags: str = _CLUSTER, *, every: bool = False) -> UpgradePhase:
    return Phase(name, summary, flags=flags, argument=_VERSION, every=every)


_CONTROL_PLANE: Final = _leaf("control-plane", "Upgrade the control plane of this machine", _CONTROL_PLANE_FLAGS)
_KUBECONFIG: Final[UpgradePhase] = Phase("kubeconfig", "Point the kubelet to the API server of this machine", hidden=True)
_KUBELET_CONFIG: Final = _leaf("kubelet-config", "Write the kubelet's configuration of this machine", _PATCHED)
_ADDON: Final[UpgradePhase] = Phase(
    "addon",
    "Upgrade add-ons",
    children=(
        _leaf("all", "Upgrade all add-ons", _PATCHED, every=True),
        _leaf("coredns", "Upgrade CoreDNS", _PATCHED),
        _leaf("kube-proxy", "Upgrade kube-proxy"),
    ),
)
_POST_UPGRADE: Final = _leaf("post-upgrade", "Run the final steps of an upgrade")

APPLY: Final[Phases[object]] = Phases(
    _leaf("preflight", "Run the checks before an upgrade", _APPLY_PREFLIGHT),
    _CONTROL_PLANE,
    Phase(
        "upload-config",
        "Store the configuration in the cluster",
        aliases=("uploadconfig",),
        children=(
            _leaf("all", "Store all configuration in the cluster", every=True),
            _leaf("kubeadm", "Store the ClusterConfiguration"),
            _leaf("kubelet", "Store the KubeletConfiguration"),
        ),
    ),
    _KUBECONFIG,
    _KUBELET_CONFIG,
    _leaf("bootstrap-token", "Update the permissions of bootstrap tokens"),
    _ADDON,
    _POST_UPGRADE,
)
NODE: Final[Phases[object]] = Phases(
    Phase("preflight", "Run the checks before an upgrade", flags="config ignore-preflight-errors"),
    _CONTROL_PLANE,
    _KUBECONFIG,
    _KUBELET_CONFIG,
    _ADDON,
    _POST_UPGRADE,
)
