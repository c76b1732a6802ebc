"""The rows of the `upgrade` commands and of their phases (spec/kubeadm.md 1.6). Imports nothing heavy."""

from __future__ import annotations

from kubewright.cli.commands import summary
from kubewright.cli.model import ALL_FORMATS, ANY, BOOL, INT, KUBEADM, PRINTED, Argument, Command, Flag, by_name
from kubewright.cli.phase_rows import PhaseRow, phase_commands

_FLAGS = by_name(
    Flag("allow-experimental-upgrades", "take alpha, beta and release candidate versions", kind=BOOL, default=False),
    Flag("allow-release-candidate-upgrades", "take release candidates", kind=BOOL, default=False),
    Flag("certificate-renewal", "renew the certificates of components that are upgraded", kind=BOOL, default=True),
    Flag("etcd-upgrade", "upgrade local etcd as well", kind=BOOL, default=True),
    Flag("force", "go on although some requirements are not met, and do not ask", kind=BOOL, default=False, short="f"),
    Flag("print-config", "print the cluster's configuration", kind=BOOL, default=False),
    Flag("yes", "do not ask", kind=BOOL, default=False, short="y"),
    Flag("context-lines", "lines of context in the differences", kind=INT, default=3, short="c", metavar="lines"),
    *PRINTED,
)
_EARLY = "allow-experimental-upgrades allow-release-candidate-upgrades"
_PLAN = (
    f"{_EARLY} allow-missing-template-keys config etcd-upgrade ignore-preflight-errors kubeconfig output print-config show-managed-fields"
)
_NODE = "certificate-renewal config dry-run etcd-upgrade ignore-preflight-errors kubeconfig patches skip-phases"
_APPLY = f"{_EARLY} force print-config yes {_NODE}"
_CLUSTER = "config dry-run kubeconfig"
_CONTROL_PLANE = f"certificate-renewal etcd-upgrade {_CLUSTER} patches"

_VERSION = Argument("version", "version to upgrade to; may stand in the file instead", shown="[version]", most=ANY)
_VERSION_OF_PHASE = Argument("version", "version to upgrade to; may stand in the file instead", shown="", most=ANY)

_COMMON = (
    PhaseRow("kubelet-config", "Write the kubelet's configuration of this machine", f"{_CLUSTER} patches", argument=_VERSION_OF_PHASE),
    PhaseRow("addon", "Upgrade add-ons"),
    PhaseRow("addon all", "Upgrade all add-ons", f"{_CLUSTER} patches", argument=_VERSION_OF_PHASE),
    PhaseRow("addon coredns", "Upgrade CoreDNS", f"{_CLUSTER} patches", argument=_VERSION_OF_PHASE),
    PhaseRow("addon kube-proxy", "Upgrade kube-proxy", _CLUSTER, argument=_VERSION_OF_PHASE),
    PhaseRow("post-upgrade", "Do what is left after an upgrade", _CLUSTER, argument=_VERSION_OF_PHASE),
)

APPLY_PHASES = (
    PhaseRow(
        "preflight",
        "Run the checks before an upgrade",
        f"{_EARLY} force ignore-preflight-errors yes {_CLUSTER}",
        argument=_VERSION_OF_PHASE,
    ),
    PhaseRow("control-plane", "Upgrade the control plane of this machine", _CONTROL_PLANE, argument=_VERSION_OF_PHASE),
    PhaseRow("upload-config", "Store the configuration in the cluster", alias="uploadconfig"),
    PhaseRow("upload-config all", "Store all configuration in the cluster", _CLUSTER, argument=_VERSION_OF_PHASE),
    PhaseRow("upload-config kubeadm", "Store the ClusterConfiguration", _CLUSTER, argument=_VERSION_OF_PHASE),
    PhaseRow("upload-config kubelet", "Store the KubeletConfiguration", _CLUSTER, argument=_VERSION_OF_PHASE),
    _COMMON[0],
    PhaseRow("bootstrap-token", "Bring the rights of bootstrap tokens up to date", _CLUSTER, argument=_VERSION_OF_PHASE),
    *_COMMON[1:],
)


def _without_version(row: PhaseRow) -> PhaseRow:
    return PhaseRow(row.words, row.summary, row.flags, alias=row.alias)


NODE_PHASES = (
    PhaseRow("preflight", "Run the checks before an upgrade", "config ignore-preflight-errors"),
    PhaseRow("control-plane", "Upgrade the control plane of this machine", _CONTROL_PLANE),
    *(_without_version(row) for row in _COMMON),
)


def _row(
    word: str,
    text: str,
    flags: str,
    *,
    argument: Argument | None = None,
    description: str = "",
    flags_in_usage: bool = True,
    more: tuple[Flag, ...] = (),
) -> Command:
    return Command(
        f"upgrade {word}",
        text,
        handler=f"kubewright.cli.upgrade:{word}",
        flags=(*(_FLAGS[name] for name in flags.split()), *more),
        argument=argument,
        exit_scheme=KUBEADM,
        description=description,
        flags_in_usage=flags_in_usage,
    )


_LATER = (
    "In this release {} reads its flags and its configuration, checks the version that is asked for, and says what is wrong."
    " Changing a machine comes with a later release."
)

ROWS = (
    Command("upgrade", summary("upgrade"), exit_scheme=KUBEADM),
    _row("plan", "Show which versions the cluster can be upgraded to", _PLAN, argument=_VERSION),
    _row("apply", "Upgrade the first control plane", _APPLY, argument=_VERSION, description=_LATER.format("apply"), flags_in_usage=False),
    *phase_commands("upgrade apply", APPLY_PHASES, flags=_FLAGS, handler="kubewright.cli.upgrade:apply_phase"),
    _row(
        "diff",
        "Show what an upgrade would change in the static pods",
        "config context-lines kubeconfig",
        argument=_VERSION,
        more=(ALL_FORMATS,),
    ),
    _row("node", "Upgrade a further control plane, or a worker", _NODE, description=_LATER.format("node")),
    *phase_commands("upgrade node", NODE_PHASES, flags=_FLAGS, handler="kubewright.cli.upgrade:node_phase"),
)
