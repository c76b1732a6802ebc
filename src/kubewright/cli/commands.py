"""The command table: every command that kubewright has, in the order in which help shows them.

Imports nothing heavy; handlers are named, not imported. Help, completion, parsing and the documentation all come from these rows.
"""

from __future__ import annotations

from kubewright.base.level import KUBERNETES
from kubewright.cli import config_commands, credential_commands
from kubewright.cli.model import BOOL, DURATION, INT, KUBEADM, LIST, Argument, Command, Flag

VERBOSITY = Flag(
    "v", "verbosity of the log on stderr, 0 to 8; 5 adds the traceback of an error", kind=INT, default=0, short="v", metavar="level"
)
GLOBAL_FLAGS = (VERBOSITY,)


def _output(*formats: str) -> Flag:
    return Flag("output", f"form of the result: {', '.join(formats)}", default=formats[0], short="o", choices=formats, metavar="format")


TEXT_OR_JSON = _output("text", "json")
ALL_FORMATS = _output("text", "json", "yaml")

NAME = Flag("name", "name of the cluster", default="default")
STATE_DIR = Flag("state-dir", "where clusters live (default: $XDG_STATE_HOME/kubewright/clusters)", metavar="dir")
BINARIES_DIR = Flag("binaries-dir", "take the component binaries from this directory", metavar="dir")
VERSION = Flag("kubernetes-version", "Kubernetes version of the cluster", default=KUBERNETES, metavar="version")
CONFIG = Flag("config", "kubeadm configuration file (InitConfiguration, ClusterConfiguration, component configurations)", metavar="file")
MACHINE = Flag("machine", "the machine; needed only where several run the component", metavar="name")

UP_FLAGS = (
    NAME,
    Flag("nodes", "number of worker nodes besides the control plane's own; another number scales the cluster", kind=INT, metavar="number"),
    VERSION,
    CONFIG,
    BINARIES_DIR,
    STATE_DIR,
    Flag("wait", "how long to wait for the cluster to be ready", kind=DURATION, default="2m"),
    TEXT_OR_JSON,
)
ON_CLUSTER = (NAME, STATE_DIR)
BINARIES = (VERSION, BINARIES_DIR)

# init's flags, by name, with kubeadm's names and defaults (spec/kubeadm.md 1.3).
_INIT = {
    flag.name: flag
    for flag in (
        Flag(
            "apiserver-advertise-address",
            "IP address that this API server is reached by; empty: from the default route",
            default="",
            metavar="ip",
        ),
        Flag("apiserver-bind-port", "port of the API server", kind=INT, default=6443, metavar="port"),
        Flag("apiserver-cert-extra-sans", "further names and addresses for the API server's certificate", kind=LIST, metavar="names"),
        Flag("cert-dir", "directory of the certificates", default="/etc/kubernetes/pki", metavar="dir"),
        Flag("certificate-key", "key that seals the certificates for upload, 64 hexadecimal digits", default="", metavar="hex"),
        CONFIG,
        Flag("control-plane-endpoint", "stable address of the control plane, host or host:port", default="", metavar="endpoint"),
        Flag("cri-socket", "socket of the container runtime; empty: detect", default="", metavar="socket"),
        Flag("dry-run", "write nothing to the machine; render everything into a directory", kind=BOOL, default=False),
        Flag("feature-gates", "kubeadm feature gates, name=true or name=false", default="", metavar="gates"),
        Flag("ignore-preflight-errors", "checks whose errors become warnings, or all", kind=LIST, metavar="names"),
        Flag("image-repository", "where the control plane images come from", default="registry.k8s.io", metavar="repository"),
        Flag("kubernetes-version", "version of the control plane, or a label", default="stable-1", metavar="version"),
        Flag("kubeconfig", "kubeconfig to talk to the cluster with", default="/etc/kubernetes/admin.conf", metavar="file"),
        Flag("kubeconfig-dir", "directory of the kubeconfig files", default="/etc/kubernetes", metavar="dir"),
        Flag("node-name", "name of this node", default="", metavar="name"),
        Flag("patches", "directory of patches", default="", metavar="dir"),
        Flag("pod-network-cidr", "range of pod addresses, one CIDR or two joined by a comma", default="", metavar="cidr"),
        Flag("print-manifest", "print the add-on's objects and send nothing", kind=BOOL, default=False),
        Flag("service-cidr", "range of service addresses", default="10.96.0.0/12", metavar="cidr"),
        Flag("service-dns-domain", "DNS domain of services", default="cluster.local", metavar="domain"),
        Flag("skip-certificate-key-print", "do not print the certificate key", kind=BOOL, default=False),
        Flag("skip-phases", "phases to leave out", kind=LIST, metavar="phases"),
        Flag("skip-token-print", "do not print the token", kind=BOOL, default=False),
        Flag(
            "token",
            "bootstrap token; empty: random. Visible to other users while the command runs: prefer --config",
            default="",
            metavar="token",
        ),
        Flag("token-ttl", "how long the token lives; 0 for ever", kind=DURATION, default="24h0m0s"),
        Flag("upload-certs", "upload the control plane's certificates, sealed", kind=BOOL, default=False),
        # Deprecated and hidden, as in kubeadm; they set extraArgs.
        *(
            Flag(f"{name}-extra-args", f"further arguments of the {name}, name=value", kind=LIST, metavar="arguments", hidden=True)
            for name in ("apiserver", "controller-manager", "scheduler")
        ),
        Flag("plan", "show what init would change, as diffs, and write nothing", kind=BOOL, default=False),
        TEXT_OR_JSON,
    )
}


def _init(names: str) -> tuple[Flag, ...]:
    return tuple(_INIT[name] for name in names.split())


INIT_FLAGS = _init(
    "apiserver-advertise-address apiserver-bind-port apiserver-cert-extra-sans cert-dir certificate-key config control-plane-endpoint cri-socket"
    " dry-run feature-gates ignore-preflight-errors image-repository kubernetes-version node-name patches pod-network-cidr service-cidr"
    " service-dns-domain skip-certificate-key-print skip-phases skip-token-print token token-ttl upload-certs plan output"
)
_API_SERVER_ARGS = " apiserver-extra-args"
_CONTROLLER_MANAGER_ARGS = " controller-manager-extra-args"
_SCHEDULER_ARGS = " scheduler-extra-args"
_CERTS = "cert-dir config dry-run kubernetes-version"
_CERTS_NAMES = _CERTS + " apiserver-advertise-address apiserver-cert-extra-sans control-plane-endpoint service-cidr service-dns-domain"
_KUBECONFIG = (
    "apiserver-advertise-address apiserver-bind-port cert-dir config control-plane-endpoint dry-run kubeconfig-dir kubernetes-version"
)
_STATIC_POD = "cert-dir config dry-run image-repository patches"
_API_SERVER = (
    _STATIC_POD + " kubernetes-version apiserver-advertise-address apiserver-bind-port control-plane-endpoint feature-gates service-cidr"
)
_COREDNS = "config dry-run feature-gates image-repository kubeconfig kubernetes-version service-cidr service-dns-domain"
_KUBE_PROXY = (
    "config dry-run image-repository kubeconfig kubernetes-version apiserver-advertise-address apiserver-bind-port control-plane-endpoint"
    " pod-network-cidr"
)

# Phase commands: full name, summary, flags (spec/kubeadm.md 1.3). `+plan` and `-o` are ours.
_PHASES = (
    ("preflight", "Run the checks before init", "config cri-socket dry-run ignore-preflight-errors image-repository"),
    ("certs", "Generate certificates", ""),
    ("certs all", "Generate all certificates", _CERTS_NAMES),
    ("certs ca", "Generate the cluster's CA", _CERTS),
    ("certs apiserver", "Generate the certificate that serves the Kubernetes API", _CERTS_NAMES),
    ("certs apiserver-kubelet-client", "Generate the certificate with which the API server calls kubelets", _CERTS),
    ("certs front-proxy-ca", "Generate the CA of the front proxy", _CERTS),
    ("certs front-proxy-client", "Generate the front proxy's client certificate", _CERTS),
    ("certs etcd-ca", "Generate etcd's CA", _CERTS),
    ("certs etcd-server", "Generate the certificate that serves etcd", _CERTS),
    ("certs etcd-peer", "Generate the certificate with which etcd members talk to each other", _CERTS),
    ("certs etcd-healthcheck-client", "Generate the certificate of etcd's health checks", _CERTS),
    ("certs apiserver-etcd-client", "Generate the certificate with which the API server calls etcd", _CERTS),
    ("certs sa", "Generate the key pair that signs service account tokens", _CERTS),
    ("kubeconfig", "Generate kubeconfig files", ""),
    ("kubeconfig all", "Generate all kubeconfig files", _KUBECONFIG + " node-name"),
    ("kubeconfig admin", "Generate the administrator's kubeconfig", _KUBECONFIG),
    ("kubeconfig super-admin", "Generate the kubeconfig that no authorizer can refuse", _KUBECONFIG),
    ("kubeconfig kubelet", "Generate the kubelet's kubeconfig", _KUBECONFIG + " node-name"),
    ("kubeconfig controller-manager", "Generate the controller manager's kubeconfig", _KUBECONFIG),
    ("kubeconfig scheduler", "Generate the scheduler's kubeconfig", _KUBECONFIG),
    ("etcd", "Generate the static pod of etcd", ""),
    ("etcd local", "Generate the static pod of a local etcd member", _STATIC_POD),
    ("control-plane", "Generate the static pods of the control plane", ""),
    (
        "control-plane all",
        "Generate all static pods of the control plane",
        _API_SERVER + " pod-network-cidr" + _API_SERVER_ARGS + _CONTROLLER_MANAGER_ARGS + _SCHEDULER_ARGS,
    ),
    ("control-plane apiserver", "Generate the static pod of kube-apiserver", _API_SERVER + _API_SERVER_ARGS),
    (
        "control-plane controller-manager",
        "Generate the static pod of kube-controller-manager",
        _STATIC_POD + " kubernetes-version pod-network-cidr" + _CONTROLLER_MANAGER_ARGS,
    ),
    ("control-plane scheduler", "Generate the static pod of kube-scheduler", _STATIC_POD + " kubernetes-version" + _SCHEDULER_ARGS),
    ("kubelet-start", "Write the kubelet's files and start it", "config cri-socket dry-run image-repository node-name patches"),
    ("wait-control-plane", "Wait for the control plane", ""),
    ("upload-config", "Store the configuration in the cluster", ""),
    ("upload-config all", "Store all configuration in the cluster", "config cri-socket dry-run kubeconfig"),
    ("upload-config kubeadm", "Store the ClusterConfiguration", "config cri-socket dry-run kubeconfig"),
    ("upload-config kubelet", "Store the KubeletConfiguration", "config cri-socket dry-run kubeconfig"),
    (
        "upload-certs",
        "Upload the certificates, sealed",
        "certificate-key config dry-run kubeconfig skip-certificate-key-print upload-certs",
    ),
    ("mark-control-plane", "Label and taint the Node as a control plane", "config dry-run node-name"),
    ("bootstrap-token", "Make bootstrap tokens and the rights that go with them", "config dry-run kubeconfig skip-token-print"),
    ("kubelet-finalize", "Finish the kubelet's configuration", ""),
    ("kubelet-finalize all", "Run all steps that finish the kubelet's configuration", "cert-dir config dry-run"),
    ("kubelet-finalize enable-client-cert-rotation", "Point the kubelet to its rotating certificate", "cert-dir config dry-run"),
    ("addon", "Install add-ons", ""),
    ("addon all", "Install all add-ons", _KUBE_PROXY + " feature-gates service-cidr service-dns-domain"),
    ("addon coredns", "Install CoreDNS", _COREDNS + " print-manifest"),
    ("addon kube-proxy", "Install kube-proxy", _KUBE_PROXY + " print-manifest"),
    ("show-join-command", "Show how machines join", ""),
)


# Other words for phases, which work and are not shown.
_ALIASES = {"bootstrap-token": "bootstraptoken", "upload-config": "uploadconfig"}


def _alias_commands() -> list[Command]:
    found = []
    for name, summary, flags in _PHASES:
        root, blank, rest = name.partition(" ")
        if root in _ALIASES:
            found.append(_phase_command(name, summary, flags, alias=f"{_ALIASES[root]}{blank}{rest}"))
    return found


def _phase_command(name: str, summary: str, flags: str, *, alias: str = "") -> Command:
    group = any(other.startswith(f"{name} ") for other, _, _ in _PHASES)
    return Command(
        f"init phase {alias or name}",
        summary,
        handler="" if group else "kubewright.cli.init:phase",
        flags=() if group else _init(f"{flags} plan output"),
        exit_scheme=KUBEADM,
        hidden=alias in _ALIASES.values(),
    )


_CERTS_COMMANDS = credential_commands.certs(config=CONFIG, formats=ALL_FORMATS)
_KUBECONFIG_COMMANDS = credential_commands.kubeconfig(config=CONFIG, formats=_output("yaml", "json"))
_TOKEN_COMMANDS = credential_commands.token(config=CONFIG, formats=ALL_FORMATS)


COMMANDS = (
    Command("", "Bring up Kubernetes control planes and join machines to them"),
    Command(
        "up",
        "Start a local cluster, or repair and scale the one that is there",
        handler="kubewright.cli.up:up",
        flags=UP_FLAGS,
        description="Runs a real control plane as local processes, without root or containers, and joins nodes to it. A second run repairs"
        " what is broken and changes nothing else. Nodes are real API clients; the containers of their pods are only played.",
        examples=("up", "up --nodes 10 --name wide", "up --config kubeadm.yaml -o json"),
    ),
    Command(
        "down",
        "Stop a local cluster and remove it",
        handler="kubewright.cli.up:down",
        flags=(
            NAME,
            Flag("keep-data", "keep etcd's data and the certificates, so that the next up resumes", kind=BOOL, default=False),
            STATE_DIR,
            TEXT_OR_JSON,
        ),
    ),
    Command("local", "Look into local clusters"),
    Command(
        "local status",
        "Show machines, components and nodes of a cluster",
        handler="kubewright.cli.local:status",
        flags=(*ON_CLUSTER, ALL_FORMATS),
    ),
    Command(
        "local logs",
        "Show the log of a component, or the daemon's",
        handler="kubewright.cli.local:logs",
        arguments=(Argument("component", "component, for example kube-apiserver; none: the daemon", optional=True),),
        flags=(
            *ON_CLUSTER,
            MACHINE,
            Flag("follow", "go on as lines are written", kind=BOOL, default=False, short="f"),
            Flag("tail", "only so many lines from the end; -1 for all", kind=INT, default=-1, metavar="lines"),
        ),
    ),
    Command("local list", "List the clusters of this user", handler="kubewright.cli.local:list_clusters", flags=(STATE_DIR, ALL_FORMATS)),
    Command(
        "local env",
        "Print shell commands that set KUBECONFIG and PATH for a cluster",
        handler="kubewright.cli.local:env",
        flags=ON_CLUSTER,
        examples=('eval "$(kubewright local env)"',),
    ),
    Command("binaries", "Get the component binaries"),
    Command(
        "binaries list",
        "List the binaries, where they are and where they came from",
        handler="kubewright.cli.binaries:list_binaries",
        flags=(*BINARIES, ALL_FORMATS),
    ),
    Command(
        "binaries fetch",
        "Get binaries into the cache",
        handler="kubewright.cli.binaries:fetch",
        arguments=(Argument("program", "programs; none: those that a local cluster needs", optional=True, many=True),),
        flags=(*BINARIES, TEXT_OR_JSON),
    ),
    Command(
        "binaries verify",
        "Compare the binaries with the digests that were recorded when they were got",
        handler="kubewright.cli.binaries:verify",
        arguments=(Argument("program", "programs; none: all that are there", optional=True, many=True),),
        flags=(*BINARIES, ALL_FORMATS),
    ),
    Command(
        "init",
        "Make this machine the first control plane of a cluster",
        handler="kubewright.cli.init:init",
        flags=INIT_FLAGS,
        exit_scheme=KUBEADM,
        description="In this release init shows its plan (--plan) and renders everything into a directory (--dry-run)."
        " Changing a machine for real comes with a later release; `kubewright up` runs the same phases on a local machine.",
    ),
    Command("init phase", "Run one phase of init", exit_scheme=KUBEADM),
    *(_phase_command(*row) for row in _PHASES),
    *_alias_commands(),
    *_CERTS_COMMANDS,
    *config_commands.ROWS,
    *credential_commands.aliased(_CERTS_COMMANDS, "certs", "certificates"),
    *_KUBECONFIG_COMMANDS,
    *_TOKEN_COMMANDS,
    Command(
        "version",
        "Print the version",
        handler="kubewright.cli.version:version",
        flags=(
            Flag(
                "output",
                "form of the result: short, json, yaml",
                default="",
                short="o",
                choices=("", "short", "json", "yaml"),
                metavar="format",
            ),
        ),
        exit_scheme=KUBEADM,
    ),
    Command(
        "completion",
        "Print the completion script of a shell",
        handler="kubewright.cli.completion:completion",
        arguments=(Argument("shell", "bash or zsh"),),
        exit_scheme=KUBEADM,
    ),
)

BY_WORDS = {command.words: command for command in COMMANDS}


def children(command: Command) -> tuple[Command, ...]:
    """Return the commands directly below one, in the table's order, without hidden ones."""
    depth = len(command.words)
    return tuple(row for row in COMMANDS if len(row.words) == depth + 1 and row.words[:depth] == command.words and not row.hidden)
