"""The kinds of the commands for machines of an existing cluster: join, reset, upgrade (kubeadm v1.36: apis/kubeadm/v1beta4/types.go).

As in `types`: internal form, an attribute is one row, every default filled in after loading, frozen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubewright.apis.kubeadm.types import (
    CHECKS,
    DRY_RUN,
    ENDPOINT,
    FOUND_SOCKET,
    NODE,
    PATCHED,
    PATCHES,
    PULL_POLICY,
    SERIAL_PULLS,
    SKIPPED,
    TEXTS,
    V1BETA2,
    V1BETA3,
    V1BETA4,
    WAITS,
    LocalAPIEndpoint,
    NodeRegistration,
    Patches,
    Timeouts,
)
from kubewright.apis.scalars import FLAG, INT64, SECRET, TEXT
from kubewright.apis.schema import Pointer, Struct, member, struct

_SWITCH: Final = Pointer(FLAG)


@struct
class BootstrapTokenDiscovery:
    """Discovery and trust of a cluster by a bootstrap token. `ca_cert_hashes` are pins of the form `sha256:HEX`."""

    token: str = member(SECRET, "the token, `id.secret`", default="", keep=True)
    api_server_endpoint: str = member(TEXT, "host:port of an API server of the cluster", default="")
    ca_cert_hashes: Sequence[str] = member(TEXTS, "pins of the cluster's CA, sha256:HEX", default=())
    unsafe_skip_ca_verification: bool = member(FLAG, "trust the cluster without pins", default=False, name="unsafeSkipCAVerification")


@struct
class FileDiscovery:
    """Discovery and trust of a cluster by a kubeconfig: a path, or an https URL."""

    kube_config_path: str = member(TEXT, "path or https URL of a kubeconfig", default="", keep=True)


@struct
class Discovery:
    """Exactly one of the first two is set after loading.

    `tls_bootstrap_token` is then set too, unless the file contains the credential.
    """

    bootstrap_token: BootstrapTokenDiscovery | None = member(
        Pointer(Struct(BootstrapTokenDiscovery)), "find the cluster by a token", default=None
    )
    file: FileDiscovery | None = member(Pointer(Struct(FileDiscovery)), "find the cluster by a kubeconfig", default=None)
    tls_bootstrap_token: str = member(
        SECRET,
        "token that the kubelet gets its certificate with; empty: the one of bootstrapToken",
        default="",
        explained="bootstrapToken.token",
    )


@struct
class JoinControlPlane:
    """The settings that only a further control plane needs."""

    local_api_endpoint: LocalAPIEndpoint = member(Struct(LocalAPIEndpoint), ENDPOINT, default=LocalAPIEndpoint(), name="localAPIEndpoint")
    certificate_key: str = member(SECRET, "key that the uploaded certificates were sealed with", default="", since=V1BETA2)


@struct
class JoinConfiguration:
    """The configuration of `join` on this machine. `control_plane` None means a worker."""

    dry_run: bool = member(FLAG, DRY_RUN, default=False, since=V1BETA4)
    node_registration: NodeRegistration = member(Struct(NodeRegistration), NODE, default=NodeRegistration())
    ca_cert_path: str = member(TEXT, "where the cluster's CA is written", default="/etc/kubernetes/pki/ca.crt")
    discovery: Discovery = member(Struct(Discovery), "how the cluster is found and trusted", default=Discovery(), keep=True)
    control_plane: JoinControlPlane | None = member(
        Pointer(Struct(JoinControlPlane)), "if set, this machine becomes a further control plane", default=None
    )
    skip_phases: Sequence[str] = member(TEXTS, SKIPPED, default=(), since=V1BETA3)
    patches_directory: str = member(PATCHES, PATCHED, default="", name="patches", since=V1BETA3)
    timeouts: Timeouts = member(Struct(Timeouts), WAITS, default=Timeouts(), since=V1BETA4)


@struct
class ResetConfiguration:
    """The configuration of `reset` on this machine."""

    cleanup_tmp_dir: bool = member(FLAG, "also empty the directory of backups and dry runs", default=False)
    certificates_dir: str = member(TEXT, "directory of certificates, which is emptied", default="/etc/kubernetes/pki")
    cri_socket: str = member(TEXT, "socket of the container runtime; empty: the one that is found", default="", explained=FOUND_SOCKET)
    dry_run: bool = member(FLAG, DRY_RUN, default=False)
    force: bool = member(FLAG, "do not ask", default=False)
    ignore_preflight_errors: Sequence[str] = member(TEXTS, CHECKS, default=())
    skip_phases: Sequence[str] = member(TEXTS, SKIPPED, default=())
    unmount_flags: Sequence[str] = member(TEXTS, "flags of unmount: MNT_FORCE, MNT_DETACH, MNT_EXPIRE, UMOUNT_NOFOLLOW", default=())
    timeouts: Timeouts = member(Struct(Timeouts), WAITS, default=Timeouts())


@struct
class _VersionChoice:
    kubernetes_version: str = member(TEXT, "target version, or a label", default="")
    allow_experimental_upgrades: bool | None = member(_SWITCH, "allow alpha, beta and release candidate versions", default=None)
    allow_rc_upgrades: bool | None = member(_SWITCH, "allow release candidates", default=None, name="allowRCUpgrades")
    print_config: bool | None = member(_SWITCH, "print the configuration that the upgrade uses", default=None)


@struct
class _Upgrade:
    dry_run: bool | None = member(_SWITCH, DRY_RUN, default=None)
    etcd_upgrade: bool = member(_SWITCH, "also upgrade etcd if it runs as a static pod", default=True)
    ignore_preflight_errors: Sequence[str] = member(TEXTS, CHECKS, default=())


@struct
class _Phases:
    certificate_renewal: bool = member(_SWITCH, "renew the certificates of the components that are upgraded", default=True)
    patches: Patches | None = member(
        Pointer(Struct(Patches)), "directory of patches for the written files; the path must be absolute here", default=None
    )
    skip_phases: Sequence[str] = member(TEXTS, SKIPPED, default=())
    image_pull_policy: str = member(TEXT, PULL_POLICY, default="IfNotPresent")
    image_pull_serial: bool = member(_SWITCH, SERIAL_PULLS, default=True)


@struct
class UpgradeApply(_Phases, _Upgrade, _VersionChoice):
    """The settings of `upgrade apply`. None means that the flag decides."""

    force_upgrade: bool | None = member(_SWITCH, "continue although checks fail", default=None)


@struct
class UpgradeNode(_Phases, _Upgrade):
    """The settings of `upgrade node`."""


@struct
class UpgradePlan(_Upgrade, _VersionChoice):
    """The settings of `upgrade plan`."""

    etcd_upgrade: bool = member(_SWITCH, "also upgrade etcd if it runs as a static pod", default=True, since="v1beta4, Kubernetes 1.33")


@struct
class UpgradeDiff:
    """The settings of `upgrade diff`."""

    kubernetes_version: str = member(TEXT, "target version, or a label", default="")
    context_lines: int = member(INT64, "lines around each difference", default=0)


@struct
class UpgradeConfiguration:
    """The settings of the four upgrade commands."""

    apply: UpgradeApply = member(Struct(UpgradeApply), "settings of `upgrade apply`", default=UpgradeApply())
    diff: UpgradeDiff = member(Struct(UpgradeDiff), "settings of `upgrade diff`", default=UpgradeDiff())
    node: UpgradeNode = member(Struct(UpgradeNode), "settings of `upgrade node`", default=UpgradeNode())
    plan: UpgradePlan = member(Struct(UpgradePlan), "settings of `upgrade plan`", default=UpgradePlan())
    timeouts: Timeouts = member(Struct(Timeouts), WAITS, default=Timeouts())


JOIN: Final = Struct(JoinConfiguration)
RESET: Final = Struct(ResetConfiguration)
UPGRADE: Final = Struct(UpgradeConfiguration)
