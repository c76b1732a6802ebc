"""The trees of `upgrade apply` and `upgrade node`.

Names, order and flags are those of kubeadm (kubeadm v1.36: cmd/upgrade, cmd/phases/upgrade).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kubewright.workflow.phases import Phase, Phases

if TYPE_CHECKING:
    from kubewright.lifecycle.upgrade.context import UpgradeContext

    UpgradePhase = Phase[UpgradeContext]

_HERE: Final = "kubewright.lifecycle.upgrade"
_VERSION: Final = "version"
"""The positional argument of the phases of `apply`; those of `node` have none."""

_CLUSTER = "config dry-run kubeconfig"
_PATCHED = _CLUSTER + " patches"
_CONTROL_PLANE_FLAGS = "certificate-renewal etcd-upgrade config dry-run kubeconfig patches"
_APPLY_PREFLIGHT = (
    "allow-experimental-upgrades allow-release-candidate-upgrades force ignore-preflight-errors yes config dry-run kubeconfig"
)


def _add_ons_wait(ctx: UpgradeContext) -> str | None:
    """Return why add-ons are not upgraded on this machine. Workers do not need the modules for that."""
    from kubewright.lifecycle.upgrade.context import only_control_planes

    if reason := only_control_planes(ctx):
        return reason
    from kubewright.lifecycle.upgrade.cluster import add_ons_wait

    return add_ons_wait(ctx)


def _leaf(name: str, summary: str, flags: str = _CLUSTER, **more: Any) -> UpgradePhase:
    return Phase(name, summary, flags=flags, argument=_VERSION, **more)


_CONTROL_PLANE: Final = _leaf(
    "control-plane",
    "Upgrade the control plane of this machine",
    _CONTROL_PLANE_FLAGS,
    run=f"{_HERE}.control_plane.phase:upgrade",
    condition=f"{_HERE}.context:only_control_planes",
)
_KUBECONFIG: Final[UpgradePhase] = Phase(
    "kubeconfig",
    "Point the kubelet to the API server of this machine",
    hidden=True,
    run=f"{_HERE}.kubelet:use_local_server",
    condition=f"{_HERE}.context:only_control_planes",
)
_KUBELET_CONFIG: Final = _leaf(
    "kubelet-config", "Write the kubelet's configuration of this machine", _PATCHED, run=f"{_HERE}.kubelet:configure"
)
_ADDON: Final[UpgradePhase] = Phase(
    "addon",
    "Upgrade add-ons",
    condition=_add_ons_wait,
    children=(
        _leaf("all", "Upgrade all add-ons", _PATCHED, every=True),
        _leaf(
            "coredns", "Upgrade CoreDNS", _PATCHED, run=f"{_HERE}.cluster:coredns", condition="kubewright.lifecycle.context:dns_disabled"
        ),
        _leaf(
            "kube-proxy", "Upgrade kube-proxy", run=f"{_HERE}.cluster:kube_proxy", condition="kubewright.lifecycle.context:proxy_disabled"
        ),
    ),
)
_POST_UPGRADE: Final = _leaf("post-upgrade", "Run the final steps of an upgrade", run=f"{_HERE}.kubelet:replace_program")

APPLY: Final[Phases[UpgradeContext]] = Phases(
    _leaf("preflight", "Run the checks before an upgrade", _APPLY_PREFLIGHT, run=lambda ctx: ctx.bound.preflight(ctx)),
    _CONTROL_PLANE,
    Phase(
        "upload-config",
        "Store the configuration in the cluster",
        aliases=("uploadconfig",),
        children=(
            _leaf("all", "Store all configuration in the cluster", every=True),
            _leaf("kubeadm", "Store the ClusterConfiguration", run=f"{_HERE}.cluster:upload_kubeadm"),
            _leaf("kubelet", "Store the KubeletConfiguration", run=f"{_HERE}.cluster:upload_kubelet"),
        ),
    ),
    _KUBECONFIG,
    _KUBELET_CONFIG,
    _leaf("bootstrap-token", "Update the permissions of bootstrap tokens", run=f"{_HERE}.cluster:joining"),
    _ADDON,
    _POST_UPGRADE,
)
NODE: Final[Phases[UpgradeContext]] = Phases(
    Phase(
        "preflight",
        "Run the checks before an upgrade",
        flags="config ignore-preflight-errors",
        run=lambda ctx: ctx.bound.preflight(ctx),
    ),
    _CONTROL_PLANE,
    _KUBECONFIG,
    _KUBELET_CONFIG,
    _ADDON,
    _POST_UPGRADE,
)
