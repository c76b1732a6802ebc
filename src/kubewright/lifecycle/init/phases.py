"""The tree of init, as data: names and order are kubeadm's (spec/kubeadm.md 2.2). What each phase does is in the modules beside this one."""

from __future__ import annotations

from typing import Final

from kubewright.lifecycle.init import addons, certificates, cluster, joining, kubelet, static_pods, waiting
from kubewright.lifecycle.init.context import InitContext
from kubewright.pki import table
from kubewright.workflow.phases import Phase, Phases

InitPhase = Phase[InitContext]

_ALL: Final[InitPhase] = Phase("all", "Run all of them", every=True)


def _certificate(row: table.Row) -> InitPhase:
    return Phase(
        row.name,
        row.help,
        run=certificates.certificate(row),
        condition=certificates.only_local_etcd if row.owner is table.Owner.ETCD else None,
    )


PREFLIGHT: Final[InitPhase] = Phase("preflight", "Run pre-flight checks", run=waiting.preflight)
CERTS: Final[InitPhase] = Phase(
    "certs",
    "Generate certificates",
    run=certificates.certificate_directory,
    children=(_ALL, *(_certificate(row) for row in table.CERTIFICATES)),
)
KUBECONFIG: Final[InitPhase] = Phase(
    "kubeconfig",
    "Generate all kubeconfig files necessary to establish the control plane and the admin kubeconfig file",
    run=certificates.kubeconfig_directory,
    children=(_ALL, *(Phase(row.name, row.help, run=certificates.kubeconfig(row)) for row in table.KUBECONFIGS)),
)
ETCD: Final[InitPhase] = Phase(
    "etcd",
    "Generate static Pod manifest file for local etcd",
    children=(
        Phase(
            "local",
            "Generate the static Pod manifest file for a local, single-node local etcd instance",
            run=static_pods.etcd,
            condition=certificates.only_local_etcd,
        ),
    ),
)
CONTROL_PLANE: Final[InitPhase] = Phase(
    "control-plane",
    "Generate all static Pod manifest files necessary to establish the control plane",
    run=static_pods.manifest_directory,
    children=(
        _ALL,
        Phase("apiserver", "Generates the kube-apiserver static Pod manifest", run=static_pods.component("kube-apiserver")),
        Phase(
            "controller-manager",
            "Generates the kube-controller-manager static Pod manifest",
            run=static_pods.component("kube-controller-manager"),
        ),
        Phase("scheduler", "Generates the kube-scheduler static Pod manifest", run=static_pods.component("kube-scheduler")),
    ),
)
KUBELET_START: Final[InitPhase] = Phase("kubelet-start", "Write kubelet settings and (re)start the kubelet", run=kubelet.start)
WAIT: Final[InitPhase] = Phase("wait-control-plane", "Wait for the control plane to start", run=waiting.control_plane)
UPLOAD_CONFIG: Final[InitPhase] = Phase(
    "upload-config",
    "Upload the kubeadm and kubelet configuration to a ConfigMap",
    aliases=("uploadconfig",),
    children=(
        _ALL,
        Phase("kubeadm", "Upload the kubeadm ClusterConfiguration to a ConfigMap", run=cluster.upload_kubeadm),
        Phase("kubelet", "Upload the kubelet component config to a ConfigMap", run=cluster.upload_kubelet),
    ),
)
UPLOAD_CERTS: Final[InitPhase] = Phase("upload-certs", "Upload certificates to kubeadm-certs", run=cluster.upload_certs)
MARK: Final[InitPhase] = Phase("mark-control-plane", "Mark a node as a control-plane", run=cluster.mark_control_plane)
BOOTSTRAP_TOKEN: Final[InitPhase] = Phase(
    "bootstrap-token",
    "Generates bootstrap tokens used to join a node to a cluster",
    aliases=("bootstraptoken",),
    run=joining.bootstrap_tokens,
)
KUBELET_FINALIZE: Final[InitPhase] = Phase(
    "kubelet-finalize",
    "Updates settings relevant to the kubelet after TLS bootstrap",
    children=(
        _ALL,
        Phase("enable-client-cert-rotation", "Enable kubelet client certificate rotation", run=kubelet.finalize),
    ),
)
ADDON: Final[InitPhase] = Phase(
    "addon",
    "Install required addons for passing conformance tests",
    children=(
        _ALL,
        Phase("coredns", "Install the CoreDNS addon to a Kubernetes cluster", run=addons.coredns, condition=addons.dns_wanted),
        Phase("kube-proxy", "Install the kube-proxy addon to a Kubernetes cluster", run=addons.kube_proxy, condition=addons.proxy_wanted),
    ),
)
CHECK: Final[InitPhase] = Phase("control-plane-check", "Wait until every component is healthy", run=waiting.components, hidden=True)
SHOW_JOIN: Final[InitPhase] = Phase(
    "show-join-command",
    "Show the join command for control-plane and worker node",
    run=joining.show_join_command,
    depends=("bootstrap-token", "upload-certs"),
)

# kubeadm waits for all components before it writes the first object. Here the wait is for an API server that takes writes, which it does
# a second before it calls itself ready; that everything is healthy is checked at the end.
INIT: Final[Phases[InitContext]] = Phases(
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
