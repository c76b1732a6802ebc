"""The kinds of the commands that work on a machine of an existing cluster: join, reset, upgrade (spec/kubeadm.md 3.5, 3.6).

As in `types`: internal form, every default filled in after loading, frozen.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubewright.apis.kubeadm.types import LocalAPIEndpoint, NodeRegistration, Timeouts
from kubewright.base.records import dataclass


@dataclass(frozen=True, kw_only=True)
class BootstrapTokenDiscovery:
    """Find and trust a cluster by a bootstrap token. `ca_cert_hashes` are pins of the form `sha256:HEX`."""

    token: str = ""
    api_server_endpoint: str = ""
    """`host:port`."""
    ca_cert_hashes: Sequence[str] = ()
    unsafe_skip_ca_verification: bool = False


@dataclass(frozen=True, kw_only=True)
class FileDiscovery:
    """Find and trust a cluster by a kubeconfig: a path, or an https URL."""

    kube_config_path: str = ""


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """Exactly one of the first two is set after loading. `tls_bootstrap_token` is then set too, unless the file holds the credential."""

    bootstrap_token: BootstrapTokenDiscovery | None = None
    file: FileDiscovery | None = None
    tls_bootstrap_token: str = ""


@dataclass(frozen=True, kw_only=True)
class JoinControlPlane:
    """What a further control plane needs beside a worker."""

    local_api_endpoint: LocalAPIEndpoint = LocalAPIEndpoint()
    certificate_key: str = ""


@dataclass(frozen=True, kw_only=True)
class JoinConfiguration:
    """What `join` does on this machine. `control_plane` None means a worker."""

    dry_run: bool = False
    node_registration: NodeRegistration = NodeRegistration()
    ca_cert_path: str = "/etc/kubernetes/pki/ca.crt"
    discovery: Discovery = Discovery()
    control_plane: JoinControlPlane | None = None
    skip_phases: Sequence[str] = ()
    patches_directory: str = ""
    timeouts: Timeouts = Timeouts()


@dataclass(frozen=True, kw_only=True)
class ResetConfiguration:
    """What `reset` does on this machine."""

    cleanup_tmp_dir: bool = False
    certificates_dir: str = "/etc/kubernetes/pki"
    cri_socket: str = ""
    dry_run: bool = False
    force: bool = False
    ignore_preflight_errors: Sequence[str] = ()
    skip_phases: Sequence[str] = ()
    unmount_flags: Sequence[str] = ()
    timeouts: Timeouts = Timeouts()


@dataclass(frozen=True, kw_only=True)
class Patches:
    """Where patches are."""

    directory: str = ""


@dataclass(frozen=True, kw_only=True)
class UpgradeApply:
    """What `upgrade apply` does. Of the switches, None means that the file leaves the decision to the flag."""

    kubernetes_version: str = ""
    allow_experimental_upgrades: bool | None = None
    allow_rc_upgrades: bool | None = None
    certificate_renewal: bool = True
    dry_run: bool | None = None
    etcd_upgrade: bool = True
    force_upgrade: bool | None = None
    ignore_preflight_errors: Sequence[str] = ()
    patches: Patches | None = None
    print_config: bool | None = None
    skip_phases: Sequence[str] = ()
    image_pull_policy: str = "IfNotPresent"
    image_pull_serial: bool = True


@dataclass(frozen=True, kw_only=True)
class UpgradeNode:
    """What `upgrade node` does."""

    certificate_renewal: bool = True
    dry_run: bool | None = None
    etcd_upgrade: bool = True
    ignore_preflight_errors: Sequence[str] = ()
    skip_phases: Sequence[str] = ()
    patches: Patches | None = None
    image_pull_policy: str = "IfNotPresent"
    image_pull_serial: bool = True


@dataclass(frozen=True, kw_only=True)
class UpgradePlan:
    """What `upgrade plan` shows."""

    kubernetes_version: str = ""
    allow_experimental_upgrades: bool | None = None
    allow_rc_upgrades: bool | None = None
    dry_run: bool | None = None
    etcd_upgrade: bool = True
    ignore_preflight_errors: Sequence[str] = ()
    print_config: bool | None = None


@dataclass(frozen=True, kw_only=True)
class UpgradeDiff:
    """What `upgrade diff` shows."""

    kubernetes_version: str = ""
    context_lines: int = 0


@dataclass(frozen=True, kw_only=True)
class UpgradeConfiguration:
    """What the four upgrade commands do."""

    apply: UpgradeApply = UpgradeApply()
    diff: UpgradeDiff = UpgradeDiff()
    node: UpgradeNode = UpgradeNode()
    plan: UpgradePlan = UpgradePlan()
    timeouts: Timeouts = Timeouts()
