"""kubeadm's configuration kinds in their internal form: what all phases and renderers read.

The shape is v1beta4's (spec/kubeadm.md 3.2 to 3.8). After loading, every default is filled in: a `None` means what the field's comment says.
Values are frozen; an altered copy is made with `base.records.replace`. They are never written back to a cluster: the codec renders documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubewright.base.durations import HOUR, MINUTE, Duration
from kubewright.base.records import dataclass, field

DEFAULT_GROUP = "system:bootstrappers:kubeadm:default-node-token"
CONTROL_PLANE_LABEL = "node-role.kubernetes.io/control-plane"
DEFAULT_CERTIFICATE_VALIDITY = Duration(8760 * HOUR)
DEFAULT_CA_VALIDITY = Duration(87600 * HOUR)


@dataclass(frozen=True, kw_only=True)
class Arg:
    """One extra argument of a component, without leading dashes. The same name may be given several times."""

    name: str = ""
    value: str = ""


@dataclass(frozen=True, kw_only=True)
class HostPathMount:
    """A directory or file of the host that is mounted into a static pod."""

    name: str = ""
    host_path: str = ""
    mount_path: str = ""
    read_only: bool = False
    path_type: str = ""


@dataclass(frozen=True, kw_only=True)
class EnvVar:
    """A core/v1 EnvVar. `value_from` is the raw map, with fieldRef.apiVersion defaulted to v1."""

    name: str = ""
    value: str = ""
    value_from: Mapping[str, object] | None = None


@dataclass(frozen=True, kw_only=True)
class ControlPlaneComponent:
    """What may be set for kube-controller-manager and kube-scheduler."""

    extra_args: Sequence[Arg] = ()
    extra_volumes: Sequence[HostPathMount] = ()
    extra_envs: Sequence[EnvVar] = ()


@dataclass(frozen=True, kw_only=True)
class APIServer(ControlPlaneComponent):
    """What may be set for kube-apiserver."""

    cert_sans: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class LocalEtcd:
    """An etcd member as a static pod of this machine."""

    image_repository: str = ""
    image_tag: str = ""
    data_dir: str = "/var/lib/etcd"
    extra_args: Sequence[Arg] = ()
    extra_envs: Sequence[EnvVar] = ()
    server_cert_sans: Sequence[str] = ()
    peer_cert_sans: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class ExternalEtcd:
    """An etcd cluster that somebody else runs."""

    endpoints: Sequence[str] = ()
    http_endpoints: Sequence[str] = ()
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""


@dataclass(frozen=True, kw_only=True)
class Etcd:
    """Exactly one of the two is set after loading."""

    local: LocalEtcd | None = None
    external: ExternalEtcd | None = None


@dataclass(frozen=True, kw_only=True)
class Networking:
    """Subnets as written: one CIDR, or two of different families joined by a comma."""

    service_subnet: str = "10.96.0.0/12"
    pod_subnet: str = ""
    dns_domain: str = "cluster.local"


@dataclass(frozen=True, kw_only=True)
class DNS:
    """The CoreDNS add-on."""

    image_repository: str = ""
    image_tag: str = ""
    disabled: bool = False


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """The kube-proxy add-on."""

    disabled: bool = False


@dataclass(frozen=True, kw_only=True)
class ClusterConfiguration:
    """What is the same on all machines of a cluster."""

    kubernetes_version: str = ""
    """`vX.Y.Z` after loading."""
    cluster_name: str = "kubernetes"
    control_plane_endpoint: str = ""
    """`host:port` after loading, or empty."""
    certificates_dir: str = "/etc/kubernetes/pki"
    image_repository: str = "registry.k8s.io"
    ci_image_repository: str = ""
    """Where control plane images of a `ci/` version come from; else empty."""
    ci_kubernetes_version: str = ""
    """`ci/VERSION` of a CI build, which is what kubeadm-config stores; else empty."""
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    encryption_algorithm: str = "RSA-2048"
    certificate_validity_period: Duration = DEFAULT_CERTIFICATE_VALIDITY
    ca_certificate_validity_period: Duration = DEFAULT_CA_VALIDITY
    networking: Networking = Networking()
    api_server: APIServer = APIServer()
    controller_manager: ControlPlaneComponent = ControlPlaneComponent()
    scheduler: ControlPlaneComponent = ControlPlaneComponent()
    etcd: Etcd = Etcd()
    dns: DNS = DNS()
    proxy: Proxy = Proxy()


@dataclass(frozen=True, kw_only=True)
class BootstrapToken:
    """A bootstrap token as configured. `token` is `id.secret`; `ttl` 0 or None means that it does not expire.

    `made_up` says that nobody chose the token: another one of the same rights does as well.
    """

    token: str = ""
    description: str = ""
    ttl: Duration | None = None
    expires: str = ""
    usages: Sequence[str] = ("signing", "authentication")
    groups: Sequence[str] = (DEFAULT_GROUP,)
    made_up: bool = field(default=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class NodeRegistration:
    """How this machine becomes a Node. `taints` None means the default of its role."""

    name: str = ""
    cri_socket: str = ""
    taints: Sequence[Mapping[str, object]] | None = None
    kubelet_extra_args: Sequence[Arg] = ()
    ignore_preflight_errors: Sequence[str] = ()
    image_pull_policy: str = "IfNotPresent"
    image_pull_serial: bool = True


@dataclass(frozen=True, kw_only=True)
class LocalAPIEndpoint:
    """Where this machine's API server is reached."""

    advertise_address: str = ""
    bind_port: int = 6443


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """How long each kind of wait may take."""

    control_plane_component_health_check: Duration = Duration(4 * MINUTE)
    kubelet_health_check: Duration = Duration(4 * MINUTE)
    kubernetes_api_call: Duration = Duration(1 * MINUTE)
    etcd_api_call: Duration = Duration(2 * MINUTE)
    tls_bootstrap: Duration = Duration(5 * MINUTE)
    discovery: Duration = Duration(5 * MINUTE)
    upgrade_manifests: Duration = Duration(5 * MINUTE)


@dataclass(frozen=True, kw_only=True)
class InitConfiguration:
    """What `init` does on this machine; never stored in the cluster."""

    bootstrap_tokens: Sequence[BootstrapToken] = ()
    dry_run: bool = False
    node_registration: NodeRegistration = NodeRegistration()
    local_api_endpoint: LocalAPIEndpoint = LocalAPIEndpoint()
    certificate_key: str = ""
    skip_phases: Sequence[str] = ()
    patches_directory: str = ""
    timeouts: Timeouts = Timeouts()


@dataclass(frozen=True, kw_only=True)
class ComponentConfig:
    """A kubelet or kube-proxy configuration: the whole document, kubeadm's defaults filled in, as a plain map with zero values."""

    document: Mapping[str, object]
    user_supplied: bool = False


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Everything `init` works from: loaded, defaulted, validated."""

    init: InitConfiguration
    cluster: ClusterConfiguration
    kubelet: ComponentConfig
    kube_proxy: ComponentConfig
