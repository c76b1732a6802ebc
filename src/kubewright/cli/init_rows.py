"""The rows of `init` and of its phases (spec/kubeadm.md 1.3). Imports nothing heavy."""

from __future__ import annotations

from kubewright.cli.commands import summary
from kubewright.cli.model import ADOPT, ALL_FORMATS, BOOL, DURATION, KUBEADM, LIST, PAIRS, Command, Flag, by_name
from kubewright.cli.phase_rows import PhaseRow, phase_commands

# Deprecated and hidden, as in kubeadm; they set extraArgs.
_EXTRA_ARGUMENTS = tuple(
    Flag(
        f"{name}-extra-args",
        f"further arguments of the {name}, name=value",
        kind=PAIRS,
        metavar="arguments",
        hidden=True,
        deprecated=f"use 'ClusterConfiguration.{field}.extraArgs' instead. This flag will be removed in a future version",
    )
    for name, field in (("apiserver", "apiServer"), ("controller-manager", "controllerManager"), ("scheduler", "scheduler"))
)

_FLAGS = by_name(
    Flag("apiserver-cert-extra-sans", "further names and addresses for the API server's certificate", kind=LIST, metavar="names"),
    Flag("control-plane-endpoint", "stable address of the control plane, host or host:port", default="", metavar="endpoint"),
    Flag("dry-run", "write nothing to the machine; render everything into a directory", kind=BOOL, default=False),
    Flag("feature-gates", "kubeadm feature gates, name=true or name=false", default="", metavar="gates"),
    Flag("image-repository", "where the control plane images come from", default="registry.k8s.io", metavar="repository"),
    Flag("kubernetes-version", "version of the control plane, or a label", default="stable-1", metavar="version"),
    Flag("kubeconfig-dir", "directory of the kubeconfig files", default="/etc/kubernetes", metavar="dir"),
    Flag("pod-network-cidr", "range of pod addresses, one CIDR or two joined by a comma", default="", metavar="cidr"),
    Flag("print-manifest", "print the add-on's objects and send nothing", kind=BOOL, default=False),
    Flag("service-cidr", "range of service addresses", default="10.96.0.0/12", metavar="cidr"),
    Flag("service-dns-domain", "DNS domain of services", default="cluster.local", metavar="domain"),
    Flag("skip-certificate-key-print", "do not print the certificate key", kind=BOOL, default=False),
    Flag("skip-token-print", "do not print the token", kind=BOOL, default=False),
    Flag(
        "token",
        "bootstrap token; empty: random; - is the next line of standard input, and what has a / the path of a file",
        default="",
        metavar="token",
    ),
    Flag("token-ttl", "how long the token lives; 0 for ever", kind=DURATION, default="24h0m0s"),
    Flag("upload-certs", "upload the control plane's certificates, sealed", kind=BOOL, default=False),
    *_EXTRA_ARGUMENTS,
    ADOPT,
    Flag("plan", "show what init would change, as diffs, and write nothing", kind=BOOL, default=False),
    ALL_FORMATS,
)

_OURS = "plan output"
_INIT = (
    "apiserver-advertise-address apiserver-bind-port apiserver-cert-extra-sans cert-dir certificate-key config control-plane-endpoint cri-socket"
    " dry-run feature-gates ignore-preflight-errors image-repository kubernetes-version node-name patches pod-network-cidr service-cidr"
    " service-dns-domain skip-certificate-key-print skip-phases skip-token-print token token-ttl upload-certs"
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
_UPLOAD = "config cri-socket dry-run kubeconfig"

PHASES = (
    PhaseRow("preflight", "Run the checks before init", "config cri-socket dry-run ignore-preflight-errors image-repository"),
    PhaseRow("certs", "Generate certificates"),
    PhaseRow("certs all", "Generate all certificates", _CERTS_NAMES),
    PhaseRow("certs ca", "Generate the cluster's CA", _CERTS),
    PhaseRow("certs apiserver", "Generate the certificate that serves the Kubernetes API", _CERTS_NAMES),
    PhaseRow("certs apiserver-kubelet-client", "Generate the certificate with which the API server calls kubelets", _CERTS),
    PhaseRow("certs front-proxy-ca", "Generate the CA of the front proxy", _CERTS),
    PhaseRow("certs front-proxy-client", "Generate the front proxy's client certificate", _CERTS),
    PhaseRow("certs etcd-ca", "Generate etcd's CA", _CERTS),
    PhaseRow("certs etcd-server", "Generate the certificate that serves etcd", _CERTS),
    PhaseRow("certs etcd-peer", "Generate the certificate with which etcd members talk to each other", _CERTS),
    PhaseRow("certs etcd-healthcheck-client", "Generate the certificate of etcd's health checks", _CERTS),
    PhaseRow("certs apiserver-etcd-client", "Generate the certificate with which the API server calls etcd", _CERTS),
    PhaseRow("certs sa", "Generate the key pair that signs service account tokens", _CERTS),
    PhaseRow("kubeconfig", "Generate kubeconfig files"),
    PhaseRow("kubeconfig all", "Generate all kubeconfig files", _KUBECONFIG + " node-name"),
    PhaseRow("kubeconfig admin", "Generate the administrator's kubeconfig", _KUBECONFIG),
    PhaseRow("kubeconfig super-admin", "Generate the kubeconfig that no authorizer can refuse", _KUBECONFIG),
    PhaseRow("kubeconfig kubelet", "Generate the kubelet's kubeconfig", _KUBECONFIG + " node-name"),
    PhaseRow("kubeconfig controller-manager", "Generate the controller manager's kubeconfig", _KUBECONFIG),
    PhaseRow("kubeconfig scheduler", "Generate the scheduler's kubeconfig", _KUBECONFIG),
    PhaseRow("etcd", "Generate the static pod of etcd"),
    PhaseRow("etcd local", "Generate the static pod of a local etcd member", _STATIC_POD),
    PhaseRow("control-plane", "Generate the static pods of the control plane"),
    PhaseRow(
        "control-plane all",
        "Generate all static pods of the control plane",
        _API_SERVER + " pod-network-cidr" + _API_SERVER_ARGS + _CONTROLLER_MANAGER_ARGS + _SCHEDULER_ARGS,
    ),
    PhaseRow("control-plane apiserver", "Generate the static pod of kube-apiserver", _API_SERVER + _API_SERVER_ARGS),
    PhaseRow(
        "control-plane controller-manager",
        "Generate the static pod of kube-controller-manager",
        _STATIC_POD + " kubernetes-version pod-network-cidr" + _CONTROLLER_MANAGER_ARGS,
    ),
    PhaseRow("control-plane scheduler", "Generate the static pod of kube-scheduler", _STATIC_POD + " kubernetes-version" + _SCHEDULER_ARGS),
    PhaseRow("kubelet-start", "Write the kubelet's files and start it", "config cri-socket dry-run image-repository node-name patches"),
    PhaseRow("wait-control-plane", "Wait for the control plane"),
    PhaseRow("upload-config", "Store the configuration in the cluster", alias="uploadconfig"),
    PhaseRow("upload-config all", "Store all configuration in the cluster", _UPLOAD),
    PhaseRow("upload-config kubeadm", "Store the ClusterConfiguration", _UPLOAD),
    PhaseRow("upload-config kubelet", "Store the KubeletConfiguration", _UPLOAD),
    PhaseRow(
        "upload-certs",
        "Upload the certificates, sealed",
        "certificate-key config dry-run kubeconfig skip-certificate-key-print upload-certs",
    ),
    PhaseRow("mark-control-plane", "Label and taint the Node as a control plane", "config dry-run node-name"),
    PhaseRow(
        "bootstrap-token",
        "Make bootstrap tokens and the rights that go with them",
        "config dry-run kubeconfig skip-token-print",
        alias="bootstraptoken",
    ),
    PhaseRow("kubelet-finalize", "Finish the kubelet's configuration"),
    PhaseRow("kubelet-finalize all", "Run all steps that finish the kubelet's configuration", "cert-dir config dry-run"),
    PhaseRow("kubelet-finalize enable-client-cert-rotation", "Point the kubelet to its rotating certificate", "cert-dir config dry-run"),
    PhaseRow("addon", "Install add-ons"),
    PhaseRow("addon all", "Install all add-ons", _KUBE_PROXY + " feature-gates service-cidr service-dns-domain"),
    PhaseRow("addon coredns", "Install CoreDNS", _COREDNS + " print-manifest"),
    PhaseRow("addon kube-proxy", "Install kube-proxy", _KUBE_PROXY + " print-manifest"),
    PhaseRow("show-join-command", "Show how machines join"),
)

ROWS = (
    Command(
        "init",
        summary("init"),
        handler="kubewright.cli.operations:run",
        flags=tuple(_FLAGS[name] for name in f"{_INIT} {_OURS} adopt".split()),
        exit_scheme=KUBEADM,
        description="The same command again changes nothing, repairs what is broken, and finishes what was interrupted. --plan shows what it"
        " would change; `kubewright up` runs the same phases on this machine as an ordinary user, as processes.",
    ),
    *phase_commands("init", PHASES, flags=_FLAGS, handler="kubewright.cli.operation_requests:phase", ours=_OURS),
)
