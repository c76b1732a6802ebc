"""The tree of init, as data: names, order and flags are kubeadm's (kubeadm v1.36: cmd/init.go, cmd/phases/init).

Help and completion are generated from it. The functions of the phases are in the other modules of this package. They
are named, not imported: a phase that only writes a file should not load the API client, and help loads none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from kubewright.pki import table
from kubewright.workflow.phases import Phase, Phases

if TYPE_CHECKING:
    from kubewright.lifecycle.init.context import InitContext
    from kubewright.workflow.phases import Step

    InitPhase = Phase[InitContext]

_HERE: Final = "kubewright.lifecycle.init"

_API_SERVER_ARGS = " apiserver-extra-args"
_CONTROLLER_MANAGER_ARGS = " controller-manager-extra-args"
_SCHEDULER_ARGS = " scheduler-extra-args"
_CERTS = "cert-dir config dry-run kubernetes-version"
_CERTS_NAMES = _CERTS + " apiserver-advertise-address apiserver-cert-extra-sans control-plane-endpoint service-cidr service-dns-domain"
_KUBECONFIG = (
    "apiserver-advertise-address apiserver-bind-port cert-dir config control-plane-endpoint dry-run kubeconfig-dir kubernetes-version"
)
_KUBECONFIG_NAME = _KUBECONFIG + " node-name"
_STATIC_POD = "cert-dir config dry-run image-repository patches"
_API_SERVER = (
    _STATIC_POD + " kubernetes-version apiserver-advertise-address apiserver-bind-port control-plane-endpoint feature-gates service-cidr"
)
_UPLOAD = "config cri-socket dry-run kubeconfig"
_FINALIZE = "cert-dir config dry-run"
_COREDNS = "config dry-run feature-gates image-repository kubeconfig kubernetes-version service-cidr service-dns-domain"
_KUBE_PROXY = (
    "config dry-run image-repository kubeconfig kubernetes-version apiserver-advertise-address apiserver-bind-port control-plane-endpoint"
    " pod-network-cidr"
)


def _all(summary: str, flags: str) -> InitPhase:
    return Phase("all", summary, flags=flags, every=True)


def _certificate(row: table.CertificateRow) -> InitPhase:
    def run(ctx: InitContext) -> Iterable[Step]:
        from kubewright.lifecycle.init import certificates

        return certificates.certificate(ctx, row)

    return Phase(
        row.name,
        row.summary,
        run=run,
        condition=f"{_HERE}.control_plane:only_local_etcd" if row.owner is table.Owner.ETCD else None,
        flags=_CERTS_NAMES if row.name == "apiserver" else _CERTS,
    )


def _kubeconfig(row: table.Kubeconfig) -> InitPhase:
    def run(ctx: InitContext) -> Iterable[Step]:
        from kubewright.lifecycle.init import certificates

        return certificates.kubeconfig(ctx, row)

    return Phase(row.name, row.summary, run=run, flags=_KUBECONFIG_NAME if row.name == "kubelet" else _KUBECONFIG)


def _component(name: str) -> Callable[[InitContext], Iterable[Step]]:
    def run(ctx: InitContext) -> Iterable[Step]:
        from kubewright.lifecycle.init import control_plane

        return control_plane.component(ctx, name)

    return run


PREFLIGHT: Final[InitPhase] = Phase(
    "preflight",
    "Run the checks before init",
    run=lambda ctx: ctx.bound.preflight(ctx),
    flags="config cri-socket dry-run ignore-preflight-errors image-repository",
)
CERTS: Final[InitPhase] = Phase(
    "certs",
    "Generate certificates",
    run=f"{_HERE}.certificates:certificate_directory",
    children=(_all("Generate all certificates", _CERTS_NAMES), *(_certificate(row) for row in table.CERTIFICATES)),
)
KUBECONFIG: Final[InitPhase] = Phase(
    "kubeconfig",
    "Generate kubeconfig files",
    run=f"{_HERE}.certificates:kubeconfig_directory",
    children=(_all("Generate all kubeconfig files", _KUBECONFIG_NAME), *(_kubeconfig(row) for row in table.KUBECONFIGS)),
)
ETCD: Final[InitPhase] = Phase(
    "etcd",
    "Generate the static pod of etcd",
    children=(
        Phase(
            "local",
            "Generate the static pod of a local etcd member",
            run=f"{_HERE}.control_plane:etcd",
            condition=f"{_HERE}.control_plane:only_local_etcd",
            flags=_STATIC_POD,
        ),
    ),
)
CONTROL_PLANE: Final[InitPhase] = Phase(
    "control-plane",
    "Generate the static pods of the control plane",
    run=f"{_HERE}.control_plane:manifest_directory",
    children=(
        _all(
            "Generate all static pods of the control plane",
            _API_SERVER + " pod-network-cidr" + _API_SERVER_ARGS + _CONTROLLER_MANAGER_ARGS + _SCHEDULER_ARGS,
        ),
        Phase(
            "apiserver",
            "Generate the static pod of kube-apiserver",
            run=_component("kube-apiserver"),
            flags=_API_SERVER + _API_SERVER_ARGS,
        ),
        Phase(
            "controller-manager",
            "Generate the static pod of kube-controller-manager",
            run=_component("kube-controller-manager"),
            flags=_STATIC_POD + " kubernetes-version pod-network-cidr" + _CONTROLLER_MANAGER_ARGS,
        ),
        Phase(
            "scheduler",
            "Generate the static pod of kube-scheduler",
            run=_component("kube-scheduler"),
            flags=_STATIC_POD + " kubernetes-version" + _SCHEDULER_ARGS,
        ),
    ),
)
KUBELET_START: Final[InitPhase] = Phase(
    "kubelet-start",
    "Write the kubelet's files and start it",
    run=f"{_HERE}.kubelet:start",
    flags="config cri-socket dry-run image-repository node-name patches",
)
WAIT: Final[InitPhase] = Phase("wait-control-plane", "Wait for the control plane", run=f"{_HERE}.startup:control_plane")
UPLOAD_CONFIG: Final[InitPhase] = Phase(
    "upload-config",
    "Store the configuration in the cluster",
    aliases=("uploadconfig",),
    children=(
        _all("Store all configuration in the cluster", _UPLOAD),
        Phase("kubeadm", "Store the ClusterConfiguration", run=f"{_HERE}.cluster:upload_kubeadm", flags=_UPLOAD),
        Phase("kubelet", "Store the KubeletConfiguration", run=f"{_HERE}.cluster:upload_kubelet", flags=_UPLOAD),
    ),
)
UPLOAD_CERTS: Final[InitPhase] = Phase(
    "upload-certs",
    "Upload the certificates, encrypted",
    run=f"{_HERE}.cluster:upload_certs",
    flags="certificate-key config dry-run kubeconfig skip-certificate-key-print upload-certs",
)
MARK: Final[InitPhase] = Phase(
    "mark-control-plane",
    "Label and taint the Node as a control plane",
    run=f"{_HERE}.kubelet:mark_control_plane",
    flags="config dry-run node-name",
)
SERVING_APPROVER: Final[InitPhase] = Phase(
    "serving-approver",
    "Run the approver of serving certificates",
    run=f"{_HERE}.serving_approver:run",
    condition=f"{_HERE}.serving_approver:only_strict",
    hidden=True,
)
BOOTSTRAP_TOKEN: Final[InitPhase] = Phase(
    "bootstrap-token",
    "Create bootstrap tokens and their permissions",
    aliases=("bootstraptoken",),
    run=f"{_HERE}.cluster:bootstrap_tokens",
    flags="config dry-run kubeconfig skip-token-print",
)
KUBELET_FINALIZE: Final[InitPhase] = Phase(
    "kubelet-finalize",
    "Finish the kubelet's configuration",
    children=(
        _all("Run all steps that finish the kubelet's configuration", _FINALIZE),
        Phase(
            "enable-client-cert-rotation",
            "Point the kubelet to its rotating certificate",
            run=f"{_HERE}.kubelet:finalize",
            flags=_FINALIZE,
        ),
    ),
)
ADDON: Final[InitPhase] = Phase(
    "addon",
    "Install add-ons",
    children=(
        _all("Install all add-ons", _KUBE_PROXY + " feature-gates service-cidr service-dns-domain"),
        Phase(
            "coredns",
            "Install CoreDNS",
            run=f"{_HERE}.addons:coredns",
            condition="kubewright.lifecycle.context:dns_disabled",
            flags=_COREDNS + " print-manifest",
        ),
        Phase(
            "kube-proxy",
            "Install kube-proxy",
            run=f"{_HERE}.addons:kube_proxy",
            condition="kubewright.lifecycle.context:proxy_disabled",
            flags=_KUBE_PROXY + " print-manifest",
        ),
    ),
)
CHECK: Final[InitPhase] = Phase(
    "control-plane-check", "Wait until every component is healthy", run=f"{_HERE}.startup:components", hidden=True
)
SHOW_JOIN: Final[InitPhase] = Phase(
    "show-join-command",
    "Show how machines join",
    run=f"{_HERE}.cluster:show_join_command",
    depends=("bootstrap-token", "upload-certs"),
)

# kubeadm waits for all components before it writes the first object. This phase waits for an API server that accepts
# writes, which it does
# a second before it reports ready; the health of all components is checked at the end.
PHASES: Final[Phases[InitContext]] = Phases(
    PREFLIGHT,
    CERTS,
    KUBECONFIG,
    ETCD,
    CONTROL_PLANE,
    KUBELET_START,
    WAIT,
    UPLOAD_CONFIG,
    UPLOAD_CERTS,
    MARK,
    SERVING_APPROVER,
    BOOTSTRAP_TOKEN,
    KUBELET_FINALIZE,
    ADDON,
    CHECK,
    SHOW_JOIN,
)
