"""The rows of the commands that change or check a machine: `init`, `join`, `reset`, `upgrade`, `preflight`.

They mirror kubeadm v1.36: cmd/init.go, cmd/join.go, cmd/reset.go, cmd/upgrade. Imports nothing heavy. The phases of a
command, with their summaries and the names of their flags, are in its tree; the flags of these names are here.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubewright.cli.rows.commands import summary
from kubewright.cli.rows.model import (
    ADOPT,
    ALL_FORMATS,
    ANY,
    BINARIES_DIR,
    BOOL,
    CLIENT_CERTIFICATES,
    DURATION,
    FEATURE_GATES,
    IMAGE_REPOSITORY,
    INT,
    KUBEADM,
    KUBERNETES_VERSION,
    LIST,
    OPERATION,
    PAIRS,
    PATH,
    PLAN,
    PRINTED,
    RANGES,
    SECRET,
    SERVING_CERTIFICATES,
    YES,
    Argument,
    Command,
    Flag,
    Workflow,
    by_name,
)

_OURS = "plan output"
"""Flags that kubeadm does not have, of operation commands and each of their phases."""


def _named(flags: Mapping[str, Flag], names: str) -> tuple[Flag, ...]:
    return tuple(flags[name] for name in names.split())


def _but(flags: Mapping[str, Flag], names: str) -> tuple[Flag, ...]:
    """Return all flags except these."""
    left_out = names.split()
    return tuple(flag for name, flag in flags.items() if name not in left_out)


# Deprecated and hidden, as in kubeadm; they set extraArgs.
_EXTRA_ARGUMENTS = tuple(
    Flag(
        f"{name}-extra-args",
        f"additional arguments of the {name}, name=value",
        kind=PAIRS,
        metavar="arguments",
        hidden=True,
        deprecated=f"use 'ClusterConfiguration.{field}.extraArgs' instead. This flag will be removed in a future version",
    )
    for name, field in (("apiserver", "apiServer"), ("controller-manager", "controllerManager"), ("scheduler", "scheduler"))
)

_INIT_FLAGS = by_name(
    Flag(
        "apiserver-cert-extra-sans",
        "additional names and addresses for the API server's certificate",
        kind=LIST,
        metavar="names",
        sets="cert_sans",
    ),
    Flag("control-plane-endpoint", "stable address of the control plane, host or host:port", default="", metavar="endpoint"),
    Flag("dry-run", "write nothing to the machine; render everything into a directory", kind=BOOL, default=False),
    FEATURE_GATES,
    IMAGE_REPOSITORY,
    KUBERNETES_VERSION,
    Flag(
        "kubeconfig-dir",
        "directory of the kubeconfig files",
        default="/etc/kubernetes",
        metavar="dir",
        sets="kubeconfig_directory",
        form=PATH,
    ),
    Flag("pod-network-cidr", "range of pod addresses, one CIDR or two joined by a comma", default="", metavar="cidr"),
    Flag("print-manifest", "print the add-on's objects and send nothing", kind=BOOL, default=False),
    Flag("service-cidr", "range of service addresses", default="10.96.0.0/12", metavar="cidr"),
    Flag("service-dns-domain", "DNS domain of services", default="cluster.local", metavar="domain"),
    Flag("skip-certificate-key-print", "do not print the certificate key", kind=BOOL, default=False),
    Flag("skip-token-print", "do not print the token", kind=BOOL, default=False),
    Flag(
        "token",
        "bootstrap token; empty: random; - reads the next line of standard input, a value with a / is the path of a file",
        default="",
        metavar="token",
        form=SECRET,
    ),
    Flag("token-ttl", "lifetime of the token; 0: it never expires", kind=DURATION, default="24h0m0s"),
    Flag("upload-certs", "upload the control plane's certificates, encrypted", kind=BOOL, default=False),
    *_EXTRA_ARGUMENTS,
    SERVING_CERTIFICATES,
    Flag(
        "controllers-image",
        "image with this program, for the approver that --serving-certificates strict runs; empty: the one of `make image`",
        default="",
        metavar="image",
    ),
    Flag(
        "node-cidrs",
        "with --serving-certificates strict: networks of the machines that join, whose free addresses each of them may have",
        kind=LIST,
        metavar="cidrs",
        form=RANGES,
    ),
    CLIENT_CERTIFICATES,
    ADOPT,
    Flag("plan", "show what init would change, as diffs, and write nothing", kind=BOOL, default=False),
    ALL_FORMATS,
)
_INIT_PHASES_ONLY = "kubeconfig kubeconfig-dir print-manifest apiserver-extra-args controller-manager-extra-args scheduler-extra-args"

_INIT_ROW = Command(
    "init",
    summary("init"),
    handler=OPERATION,
    flags=_but(_INIT_FLAGS, _INIT_PHASES_ONLY),
    exit_scheme=KUBEADM,
    description="Running the same command again changes nothing, repairs what is broken, and finishes what was interrupted. --plan shows what"
    " would change. `kubewright up` runs the same phases as an ordinary user, with local processes.",
    workflow=Workflow(
        "kubewright.lifecycle.init.phases:PHASES",
        flags=_INIT_FLAGS,
        ours=_OURS,
        handler="kubewright.cli.handlers.operation_requests:phase",
        operation="kubewright.lifecycle.init.operation:INIT",
        request="kubewright.cli.handlers.operation_requests:init_request",
        silent=frozenset({"kubelets sign their own certificates"}),
    ),
)

_ELSEWHERE = " - reads the next line of standard input, a value with a / is the path of a file; other users can see command lines"

_JOIN_FLAGS = by_name(
    Flag(
        "certificate-key",
        f"key that decrypts the uploaded certificates, 64 hexadecimal digits.{_ELSEWHERE}",
        default="",
        metavar="hex",
        form=SECRET,
    ),
    Flag("control-plane", "make this machine an additional control plane", kind=BOOL, default=False),
    Flag("discovery-file", "kubeconfig that describes the cluster: a path or an https URL", default="", metavar="file"),
    Flag(
        "discovery-token",
        f"bootstrap token that verifies cluster-info.{_ELSEWHERE}",
        default="",
        metavar="token",
        form=SECRET,
    ),
    Flag("discovery-token-ca-cert-hash", "pins of the cluster's CA, sha256:HEX", kind=LIST, metavar="pins", sets="ca_cert_hashes"),
    Flag(
        "discovery-token-unsafe-skip-ca-verification",
        "trust cluster-info without a pin",
        kind=BOOL,
        default=False,
        sets="unsafe_skip_ca_verification",
    ),
    Flag(
        "tls-bootstrap-token",
        f"bootstrap token for requesting the node's certificate.{_ELSEWHERE}",
        default="",
        metavar="token",
        form=SECRET,
    ),
    Flag(
        "token",
        f"bootstrap token for both purposes, if they are not given separately.{_ELSEWHERE}",
        default="",
        metavar="token",
        form=SECRET,
    ),
    ADOPT,
    Flag("plan", "show what join would change, as diffs, and write nothing", kind=BOOL, default=False),
    ALL_FORMATS,
)

_ENDPOINT = Argument("api-server-endpoint", "host:port of the API server, for discovery by token", shown="[api-server-endpoint]")
# kubeadm accepts it here as well, but does not show it.
_ENDPOINT_TAKEN = Argument("api-server-endpoint", _ENDPOINT.summary, shown="")
_JOIN_ROW = Command(
    "join",
    summary("join"),
    flags=_but(_JOIN_FLAGS, "cert-dir kubeconfig"),
    argument=_ENDPOINT,
    exit_scheme=KUBEADM,
    description="Running the same command again changes nothing, repairs what is broken, and finishes what was interrupted. --plan shows what"
    " would change. A machine that is already part of the cluster needs no valid token for this.",
    examples=("join 10.0.0.1:6443 --token TOKEN --discovery-token-ca-cert-hash sha256:HEX", "join --config join.yaml"),
    workflow=Workflow(
        "kubewright.lifecycle.join.phases:PHASES",
        flags=_JOIN_FLAGS,
        ours=_OURS,
        arguments={"api-server-endpoint": _ENDPOINT, "api-server-endpoint, not shown": _ENDPOINT_TAKEN},
        operation="kubewright.lifecycle.join.operation:JOIN",
        request="kubewright.cli.handlers.operation_requests:join_request",
        silent=frozenset({"this machine joins as a worker"}),
    ),
)

_RESET_FLAGS = by_name(
    Flag("cert-dir", "directory of the certificates, whose contents are removed", default="/etc/kubernetes/pki", metavar="dir"),
    Flag("cleanup-tmp-dir", "also empty /etc/kubernetes/tmp", kind=BOOL, default=False),
    Flag("force", "do not ask for confirmation", kind=BOOL, default=False, short="f"),
    Flag("plan", "show what would be removed; write nothing", kind=BOOL, default=False),
    ALL_FORMATS,
    Flag("cleanup-cni", "also remove the listed CNI configuration", kind=BOOL, default=False),
    Flag("cleanup-packet-filter", "also remove the rules of kube-proxy and CNI plugins", kind=BOOL, default=False),
    Flag("delete-node", "also delete the Node object of this machine, using the kubeconfig", kind=BOOL, default=False),
)
_NOT_RESET = "apiserver-advertise-address apiserver-bind-port certificate-key node-name patches"

# kubeadm accepts arguments and ignores them.
_IGNORED = Argument("ignored", "accepted and ignored, as in kubeadm", shown="", most=ANY)

_RESET_ROW = Command(
    "reset",
    summary("reset"),
    flags=_but(_RESET_FLAGS, _NOT_RESET),
    argument=_IGNORED,
    exit_scheme=KUBEADM,
    description="Lists what will be removed, asks for confirmation, and tries every step: failures are reported at the end, and running the same command again"
    " does the remaining steps. --plan shows the whole list. etcd's data is removed only if the etcd member belongs to this machine.",
    workflow=Workflow(
        "kubewright.lifecycle.reset.phases:PHASES",
        flags=_RESET_FLAGS,
        ours=_OURS,
        arguments={"ignored": _IGNORED},
        operation="kubewright.lifecycle.reset.operation:RESET",
        request="kubewright.cli.handlers.operation_requests:reset_request",
        silent=None,
        batches=True,
    ),
)

_UPGRADE_FLAGS = by_name(
    Flag("allow-experimental-upgrades", "allow alpha, beta and release candidate versions", kind=BOOL, default=False),
    Flag("allow-release-candidate-upgrades", "allow release candidates", kind=BOOL, default=False, sets="allow_rc_upgrades"),
    Flag("certificate-renewal", "renew the certificates of components that are upgraded", kind=BOOL, default=True),
    Flag("etcd-upgrade", "upgrade local etcd as well", kind=BOOL, default=True),
    Flag(
        "force",
        "continue although some requirements are not met, and do not ask for confirmation",
        kind=BOOL,
        default=False,
        short="f",
        sets="force_upgrade",
    ),
    Flag("print-config", "print the cluster's configuration", kind=BOOL, default=False),
    YES,
    Flag("context-lines", "lines of context in the differences", kind=INT, default=3, short="c", metavar="lines"),
    PLAN,
    Flag("kubelet", "program that replaces this machine's kubelet, at the end", default="", metavar="file", form=PATH),
    Flag("drain", "evict the pods of this machine before its kubelet is replaced", kind=BOOL, default=False),
    Flag("skip-dead", "control planes that are dead, for which add-ons do not wait", kind=LIST, metavar="nodes"),
    Flag("keep-changes", "keep manual changes of static pods as patches", kind=BOOL, default=False),
    *PRINTED,
)
_UPGRADE_FLAGS_OF_PHASES = {**_UPGRADE_FLAGS, "output": ALL_FORMATS}
_EARLY = "allow-experimental-upgrades allow-release-candidate-upgrades"
_PLAN = (
    f"{_EARLY} allow-missing-template-keys config etcd-upgrade ignore-preflight-errors kubeconfig output print-config show-managed-fields"
)
_NODE = "certificate-renewal config dry-run etcd-upgrade ignore-preflight-errors kubeconfig patches skip-phases"
_APPLY = f"{_EARLY} force print-config yes {_NODE}"
_UPGRADE_OURS = "plan output kubelet drain skip-dead keep-changes"
_VERSION = Argument("version", "version to upgrade to; may be set in the file instead", shown="[version]", most=ANY)
_VERSION_OF_PHASE = Argument("version", "version to upgrade to; may be set in the file instead", shown="", most=ANY)


def _upgrade_row(word: str, text: str, flags: str, *, more: tuple[Flag, ...] = ()) -> Command:
    return Command(
        f"upgrade {word}",
        text,
        handler=f"kubewright.cli.handlers.upgrade:{word}",
        flags=(*_named(_UPGRADE_FLAGS, flags), *more),
        argument=_VERSION,
        exit_scheme=KUBEADM,
    )


def _upgrade_workflow(tree: str, *, operation: str, request: str, arguments: Mapping[str, Argument] | None = None) -> Workflow:
    return Workflow(
        f"kubewright.lifecycle.upgrade.{tree}",
        flags=_UPGRADE_FLAGS_OF_PHASES,
        ours="plan output",
        arguments=arguments or {},
        operation=f"kubewright.lifecycle.upgrade.{operation}",
        request=f"kubewright.cli.handlers.operation_requests:{request}",
    )


_UPGRADE_ROWS = (
    Command("upgrade", summary("upgrade"), exit_scheme=KUBEADM),
    _upgrade_row("plan", "Show which versions the cluster can be upgraded to", _PLAN),
    Command(
        "upgrade apply",
        "Upgrade the first control plane",
        flags=_named(_UPGRADE_FLAGS_OF_PHASES, f"{_APPLY} {_UPGRADE_OURS}"),
        argument=_VERSION,
        exit_scheme=KUBEADM,
        description="Each component counts as upgraded once it answers and reports the new version. If one fails, this machine is restored to its"
        " earlier state. Running the same command again continues an interrupted upgrade. --plan shows the whole list.",
        flags_in_usage=False,
        workflow=_upgrade_workflow(
            "phases:APPLY", operation="operation:APPLY", request="upgrade_apply_request", arguments={"version": _VERSION_OF_PHASE}
        ),
    ),
    _upgrade_row("diff", "Show what an upgrade would change in the static pods", "config context-lines kubeconfig", more=(ALL_FORMATS,)),
    Command(
        "upgrade node",
        "Upgrade an additional control plane, or a worker",
        flags=_named(_UPGRADE_FLAGS_OF_PHASES, f"{_NODE} {_UPGRADE_OURS}"),
        exit_scheme=KUBEADM,
        description="Upgrades this machine to the version that the cluster's configuration has since `upgrade apply`. If a component fails, this"
        " machine is restored to its earlier state. --plan shows the whole list.",
        workflow=_upgrade_workflow("phases:NODE", operation="operation:NODE", request="upgrade_node_request"),
    ),
    Command(
        "upgrade status",
        "Show which versions the machines of a cluster have, and the next steps",
        handler="kubewright.cli.handlers.upgrade:status",
        flags=(*_named(_UPGRADE_FLAGS, "kubeconfig"), ALL_FORMATS),
        description="Asks the components of this machine, and the API servers and members of etcd of the others, for the version that they run. If"
        " the cluster does not answer, only this control plane is shown. With a kubeconfig of an administrator, it also works on other machines.",
        examples=("upgrade status", "upgrade status -o json"),
    ),
    Command(
        "upgrade rollback",
        "Restore the static pods and the files of the kubelet that this machine had before its last upgrade",
        flags=_named(_UPGRADE_FLAGS_OF_PHASES, "yes plan output"),
        description="Needs no API server. If it answers, and no other control plane has a newer version, the version in the cluster's configuration"
        " and the add-ons go back as well. Certificates that were renewed stay.",
        examples=("upgrade rollback --plan", "upgrade rollback --yes"),
        workflow=_upgrade_workflow("rollback:PHASES", operation="rollback:ROLLBACK", request="rollback_request"),
    ),
)

_RECOVER_ROW = Command(
    "recover",
    summary("recover"),
    handler="kubewright.cli.handlers.upgrade:recover",
    flags=(ALL_FORMATS,),
    hidden=True,
    description="While an operation such as an upgrade replaces files, a unit runs this at boot, before the kubelet: certificates and keys of which only one"
    " was replaced are completed. It reaches no network and restarts nothing.",
    examples=("recover",),
)

_CHECKS_OF_INIT = (
    "apiserver-advertise-address apiserver-bind-port cert-dir config cri-socket ignore-preflight-errors image-repository kubernetes-version"
    " node-name pod-network-cidr service-cidr"
)
_CHECKS_OF_JOIN = (
    "apiserver-advertise-address apiserver-bind-port config control-plane cri-socket discovery-file discovery-token"
    " discovery-token-ca-cert-hash discovery-token-unsafe-skip-ca-verification ignore-preflight-errors node-name tls-bootstrap-token token"
)
_LOOKS_ONLY = "Changes nothing. All checks run at the same time, and each failure says how to fix it. Exits with 4 if any check fails."

_PREFLIGHT_ROWS = (
    Command("preflight", summary("preflight")),
    Command(
        "preflight init",
        "Check whether this machine can become the first control plane of a cluster",
        handler="kubewright.cli.handlers.preflight:init",
        flags=(*_named(_INIT_FLAGS, _CHECKS_OF_INIT), ALL_FORMATS),
        description=_LOOKS_ONLY,
        examples=("preflight init --config kubeadm.yaml", "preflight init --ignore-preflight-errors Swap -o json"),
    ),
    Command(
        "preflight join",
        "Check whether this machine can join a cluster, without contacting the cluster",
        handler="kubewright.cli.handlers.preflight:join",
        argument=_ENDPOINT,
        flags=(*_named(_JOIN_FLAGS, _CHECKS_OF_JOIN), ALL_FORMATS),
        description=_LOOKS_ONLY,
        examples=("preflight join --config join.yaml",),
    ),
    Command(
        "preflight machines",
        "Check whether this host can run whole machines for `up --machines`",
        handler="kubewright.cli.handlers.preflight:machines",
        flags=(BINARIES_DIR, ALL_FORMATS),
        description="Changes nothing. Each failure says how to fix it. Exits with 4 if any check fails.",
        examples=(
            "preflight machines",
            "preflight machines -o json",
        ),
    ),
)

ROWS = (_INIT_ROW, _JOIN_ROW, _RESET_ROW, *_UPGRADE_ROWS, _RECOVER_ROW, *_PREFLIGHT_ROWS)
