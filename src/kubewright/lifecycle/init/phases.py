"""The tree of init, as data: names and order are kubeadm's (spec/kubeadm.md 2.2). What each phase does is in the modules beside this one.

They are named, not imported: a phase that only writes a file should not load what talks to a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kubewright.lifecycle.init.context import InitContext
from kubewright.pki import table
from kubewright.workflow.phases import Phase, Phases, Step

InitPhase = Phase[InitContext]

_HERE: Final = "kubewright.lifecycle.init"
_STEPS: Final = "kubewright.lifecycle.steps"
_ALL: Final[InitPhase] = Phase("all", "Run all of them", every=True)


def _certificate(row: table.Row) -> InitPhase:
    def run(ctx: InitContext) -> Iterable[Step]:
        from kubewright.lifecycle.steps import certificates

        return certificates.certificate(row)(ctx)

    return Phase(
        row.name,
        row.help,
        run=run,
        condition=f"{_STEPS}.certificates:only_local_etcd" if row.owner is table.Owner.ETCD else None,
    )


def _kubeconfig(row: table.Kubeconfig) -> InitPhase:
    def run(ctx: InitContext) -> Iterable[Step]:
        from kubewright.lifecycle.steps import certificates

        return certificates.kubeconfig(row)(ctx)

    return Phase(row.name, row.help, run=run)


def _component(name: str) -> Callable[[InitContext], Iterable[Step]]:
    def run(ctx: InitContext) -> Iterable[Step]:
        from kubewright.lifecycle.steps import static_pods

        return static_pods.component(name)(ctx)

    return run


PREFLIGHT: Final[InitPhase] = Phase("preflight", "Run pre-flight checks", run=lambda ctx: ctx.bound.preflight(ctx))
CERTS: Final[InitPhase] = Phase(
    "certs",
    "Generate certificates",
    run=f"{_STEPS}.certificates:certificate_directory",
    children=(_ALL, *(_certificate(row) for row in table.CERTIFICATES)),
)
KUBECONFIG: Final[InitPhase] = Phase(
    "kubeconfig",
    "Generate all kubeconfig files necessary to establish the control plane and the admin kubeconfig file",
    run=f"{_STEPS}.certificates:kubeconfig_directory",
    children=(_ALL, *(_kubeconfig(row) for row in table.KUBECONFIGS)),
)
ETCD: Final[InitPhase] = Phase(
    "etcd",
    "Generate static Pod manifest file for local etcd",
    children=(
        Phase(
            "local",
            "Generate the static Pod manifest file for a local, single-node local etcd instance",
            run=f"{_STEPS}.static_pods:etcd",
            condition=f"{_STEPS}.certificates:only_local_etcd",
        ),
    ),
)
CONTROL_PLANE: Final[InitPhase] = Phase(
    "control-plane",
    "Generate all static Pod manifest files necessary to establish the control plane",
    run=f"{_STEPS}.static_pods:manifest_directory",
    children=(
        _ALL,
        Phase("apiserver", "Generates the kube-apiserver static Pod manifest", run=_component("kube-apiserver")),
        Phase(
            "controller-manager",
            "Generates the kube-controller-manager static Pod manifest",
            run=_component("kube-controller-manager"),
        ),
        Phase("scheduler", "Generates the kube-scheduler static Pod manifest", run=_component("kube-scheduler")),
    ),
)
KUBELET_START: Final[InitPhase] = Phase("kubelet-start", "Write kubelet settings and (re)start the kubelet", run=f"{_STEPS}.kubelet:start")
WAIT: Final[InitPhase] = Phase("wait-control-plane", "Wait for the control plane to start", run=f"{_HERE}.waiting:control_plane")
UPLOAD_CONFIG: Final[InitPhase] = Phase(
    "upload-config",
    "Upload the kubeadm and kubelet configuration to a ConfigMap",
    aliases=("uploadconfig",),
    children=(
        _ALL,
        Phase("kubeadm", "Upload the kubeadm ClusterConfiguration to a ConfigMap", run=f"{_HERE}.cluster:upload_kubeadm"),
        Phase("kubelet", "Upload the kubelet component config to a ConfigMap", run=f"{_HERE}.cluster:upload_kubelet"),
    ),
)
UPLOAD_CERTS: Final[InitPhase] = Phase("upload-certs", "Upload certificates to kubeadm-certs", run=f"{_HERE}.cluster:upload_certs")
MARK: Final[InitPhase] = Phase("mark-control-plane", "Mark a node as a control-plane", run=f"{_HERE}.cluster:mark_control_plane")
BOOTSTRAP_TOKEN: Final[InitPhase] = Phase(
    "bootstrap-token",
    "Generates bootstrap tokens used to join a node to a cluster",
    aliases=("bootstraptoken",),
    run=f"{_HERE}.joining:bootstrap_tokens",
)
KUBELET_FINALIZE: Final[InitPhase] = Phase(
    "kubelet-finalize",
    "Updates settings relevant to the kubelet after TLS bootstrap",
    children=(
        _ALL,
        Phase("enable-client-cert-rotation", "Enable kubelet client certificate rotation", run=f"{_STEPS}.kubelet:finalize"),
    ),
)
ADDON: Final[InitPhase] = Phase(
    "addon",
    "Install required addons for passing conformance tests",
    children=(
        _ALL,
        Phase(
            "coredns",
            "Install the CoreDNS addon to a Kubernetes cluster",
            run=f"{_HERE}.addons:coredns",
            condition=f"{_HERE}.addons:dns_wanted",
        ),
        Phase(
            "kube-proxy",
            "Install the kube-proxy addon to a Kubernetes cluster",
            run=f"{_HERE}.addons:kube_proxy",
            condition=f"{_HERE}.addons:proxy_wanted",
        ),
    ),
)
CHECK: Final[InitPhase] = Phase(
    "control-plane-check", "Wait until every component is healthy", run=f"{_HERE}.waiting:components", hidden=True
)
SHOW_JOIN: Final[InitPhase] = Phase(
    "show-join-command",
    "Show the join command for control-plane and worker node",
    run=f"{_HERE}.joining:show_join_command",
    depends=("bootstrap-token", "upload-certs"),
)

# kubeadm waits for all components before it writes the first object. Here the wait is for an API server that takes writes, which it does
# a second before it calls itself ready; that everything is healthy is checked at the end.
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
    BOOTSTRAP_TOKEN,
    KUBELET_FINALIZE,
    ADDON,
    CHECK,
    SHOW_JOIN,
)
