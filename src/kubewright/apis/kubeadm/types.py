"""kubeadm's configuration kinds in their internal form, which all phases and renderers read, and the table for decoding documents.

The shape is v1beta4's (kubeadm v1.36: apis/kubeadm/v1beta4/types.go). An attribute is one row: its name, kind, default,
meaning, and the version that added it; documents, explanations and older versions are derived from these rows. After
loading, every default is filled in: the comment explains what `None` means.
Values are frozen; `base.records.replace` makes an altered copy. They are never written back to a cluster: the codec
renders documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kubewright.apis.embedded import ENV_SOURCE, TAINT
from kubewright.apis.scalars import FLAG, INT32, MOMENT, SECRET, SPAN, TEXT, TOKEN
from kubewright.apis.schema import List, Map, Normalised, Only, Pointer, Struct, member, struct
from kubewright.base.durations import HOUR, MINUTE, Duration
from kubewright.base.records import dataclass, field

DEFAULT_GROUP = "system:bootstrappers:kubeadm:default-node-token"
CONTROL_PLANE_LABEL = "node-role.kubernetes.io/control-plane"
CONTROL_PLANE_TAINT: Final = {"effect": "NoSchedule", "key": CONTROL_PLANE_LABEL}
"""Keeps ordinary pods away."""
TOKEN_USAGES: Final = ("signing", "authentication")
"""All usages of a bootstrap token; kubeadm's default."""
DEFAULT_CERTIFICATE_VALIDITY = Duration(8760 * HOUR)
DEFAULT_CA_VALIDITY = Duration(87600 * HOUR)

V1BETA2: Final = "v1beta2 (Kubernetes 1.15)"
V1BETA3: Final = "v1beta3 (Kubernetes 1.22)"
V1BETA4: Final = "v1beta4 (Kubernetes 1.31)"
"""The version that added most fields that v1beta3 lacks (kubeadm v1.36: apis/kubeadm/v1beta3).

The other two are those of fields that v1beta1 and v1beta2 lack.
"""
SERVICE_SUBNET: Final = "10.96.0.0/12"
"""The range of Services unless the user sets one."""
TEXTS: Final = List(TEXT)
_PERIOD: Final = Pointer(SPAN)

# Meanings of fields of several kinds.
CHECKS: Final = "names of preflight checks whose errors become warnings; `all` for all of them"
SKIPPED: Final = "phases that are left out, as `group/phase`"
DRY_RUN: Final = "show what would be done and change nothing"
PULL_POLICY: Final = "when images are pulled before the work begins: Always, IfNotPresent or Never"
SERIAL_PULLS: Final = "pull images one after the other"
WAITS: Final = "timeouts of the different waits"
NODE: Final = "how this machine becomes a Node"
ENDPOINT: Final = "address of this machine's API server"
PATCHED: Final = "directory of patches for the static pods and files that are written"
FOUND_SOCKET: Final = "the detected socket, otherwise containerd's"
_REPOSITORY: Final = "repository of this image; empty: the cluster's imageRepository"
_TAG: Final = "tag of the image; empty: the one for the Kubernetes version"


@struct
class Arg:
    """An extra argument of a component, without leading dashes. The same name may be given several times."""

    name: str = member(TEXT, "name of the flag, without leading dashes", default="", keep=True, since=V1BETA4)
    value: str = member(TEXT, "its value", default="", keep=True, since=V1BETA4)


class _Arguments(List):
    expected = "a list of name and value (a map in v1beta3)"


ARGUMENTS: Final = _Arguments(Struct(Arg))


@struct
class HostPathMount:
    """A directory or file of the host that is mounted into a static pod."""

    name: str = member(TEXT, "name of the volume in the pod", default="", keep=True)
    host_path: str = member(TEXT, "path on the host", default="", keep=True)
    mount_path: str = member(TEXT, "path in the container", default="", keep=True)
    read_only: bool = member(FLAG, "mount it for reading only", default=False)
    path_type: str = member(TEXT, "type of the file that must exist, as in a Pod's hostPath volume", default="")


@struct
class EnvVar:
    """A core/v1 EnvVar. `value_from` is the raw map, with fieldRef.apiVersion defaulted to v1."""

    name: str = member(TEXT, "name of the variable", default="", keep=True)
    value: str = member(TEXT, "its value", default="")
    value_from: Mapping[str, object] | None = member(
        Pointer(Normalised(ENV_SOURCE)), "where its value comes from, as in a Pod", default=None
    )


_ENVIRONMENT: Final = List(Struct(EnvVar))


@struct
class ControlPlaneComponent:
    """The settings of kube-controller-manager and kube-scheduler."""

    extra_args: Sequence[Arg] = member(ARGUMENTS, "further flags; they override the default ones", default=())
    extra_volumes: Sequence[HostPathMount] = member(
        List(Struct(HostPathMount)), "directories and files of the host that are mounted into the static pod", default=()
    )
    extra_envs: Sequence[EnvVar] = member(
        _ENVIRONMENT, "environment variables of the container; they override the proxy variables", default=(), since=V1BETA4
    )


@struct
class APIServer(ControlPlaneComponent):
    """The settings of kube-apiserver."""

    cert_sans: Sequence[str] = member(TEXTS, "further names and addresses in the API server's certificate", default=(), name="certSANs")


@struct
class LocalEtcd:
    """An etcd member as a static pod of this machine."""

    image_repository: str = member(TEXT, _REPOSITORY, default="")
    image_tag: str = member(TEXT, _TAG, default="")
    data_dir: str = member(TEXT, "directory of etcd's data", default="/var/lib/etcd", keep=True)
    extra_args: Sequence[Arg] = member(ARGUMENTS, "further flags of etcd", default=())
    extra_envs: Sequence[EnvVar] = member(_ENVIRONMENT, "environment variables of etcd", default=(), since=V1BETA4)
    server_cert_sans: Sequence[str] = member(
        TEXTS, "further names and addresses in the server certificate", default=(), name="serverCertSANs"
    )
    peer_cert_sans: Sequence[str] = member(TEXTS, "further names and addresses in the peer certificate", default=(), name="peerCertSANs")


@struct
class ExternalEtcd:
    """An externally managed etcd cluster."""

    endpoints: Sequence[str] = member(TEXTS, "URLs of the members", default=(), keep=True)
    http_endpoints: Sequence[str] = member(
        TEXTS,
        "URLs for health and metrics, if they differ from endpoints",
        default=(),
        since="v1beta4, Kubernetes 1.35",
        explained="the endpoints",
    )
    ca_file: str = member(TEXT, "CA of the members", default="", keep=True)
    cert_file: str = member(TEXT, "client certificate of the API server", default="", keep=True)
    key_file: str = member(TEXT, "its key", default="", keep=True)


@struct
class Etcd:
    """Exactly one of the two is set after loading."""

    local: LocalEtcd | None = member(
        Pointer(Struct(LocalEtcd)), "etcd as a static pod of each control plane", default=None, explained="set, unless external is"
    )
    external: ExternalEtcd | None = member(Pointer(Struct(ExternalEtcd)), "etcd that is managed externally", default=None)


@struct
class Networking:
    """Subnets as given: one CIDR, or two of different families separated by a comma."""

    service_subnet: str = member(
        TEXT, "range of service addresses: one CIDR, or two of different families joined by a comma", default=SERVICE_SUBNET
    )
    pod_subnet: str = member(TEXT, "range of pod addresses, in the same form; empty: nodes get no ranges", default="")
    dns_domain: str = member(TEXT, "DNS domain of services", default="cluster.local")


@struct
class DNS:
    """The CoreDNS add-on."""

    image_repository: str = member(TEXT, _REPOSITORY, default="")
    image_tag: str = member(TEXT, _TAG, default="")
    disabled: bool = member(FLAG, "do not install CoreDNS", default=False, since=V1BETA4)


@struct
class Proxy:
    """The kube-proxy add-on."""

    disabled: bool = member(FLAG, "do not install kube-proxy", default=False)


@struct
class ClusterConfiguration:
    """The configuration that all machines of a cluster share.

    `kubernetes_version` is `vX.Y.Z` after loading, `control_plane_endpoint` is `host:port` or empty. For a CI build,
    `ci_kubernetes_version` is `ci/VERSION`, as kubeadm-config stores it, and `ci_image_repository` is the repository of
    its control plane images; otherwise they are empty.
    """

    etcd: Etcd = member(Struct(Etcd), "etcd as a static pod (local), or one that is managed externally (external)", default=Etcd())
    networking: Networking = member(Struct(Networking), "ranges of addresses, and the DNS domain", default=Networking())
    kubernetes_version: str = member(TEXT, "version of the control plane, or a label such as stable-1", default="", explained="stable-1")
    control_plane_endpoint: str = member(
        TEXT, "stable address of the control plane, host or host:port; needed for more than one", default=""
    )
    api_server: APIServer = member(Struct(APIServer), "settings of kube-apiserver", default=APIServer())
    controller_manager: ControlPlaneComponent = member(
        Struct(ControlPlaneComponent), "settings of kube-controller-manager", default=ControlPlaneComponent()
    )
    scheduler: ControlPlaneComponent = member(Struct(ControlPlaneComponent), "settings of kube-scheduler", default=ControlPlaneComponent())
    dns: DNS = member(Struct(DNS), "the CoreDNS add-on", default=DNS())
    proxy: Proxy = member(Struct(Proxy), "the kube-proxy add-on", default=Proxy(), since=V1BETA4)
    certificates_dir: str = member(TEXT, "directory of the certificates and keys", default="/etc/kubernetes/pki")
    image_repository: str = member(TEXT, "repository of the images", default="registry.k8s.io")
    feature_gates: Mapping[str, bool] = member(Map(FLAG), "feature gates of kubeadm", default_factory=dict)
    cluster_name: str = member(TEXT, "name of the cluster in kubeconfig files", default="kubernetes")
    encryption_algorithm: str = member(
        TEXT, "algorithm of keys: RSA-2048, RSA-3072, RSA-4096, ECDSA-P256, ECDSA-P384", default="RSA-2048", since=V1BETA4
    )
    certificate_validity_period: Duration = member(
        _PERIOD, "validity period of certificates other than CAs", default=DEFAULT_CERTIFICATE_VALIDITY, since=V1BETA4
    )
    ca_certificate_validity_period: Duration = member(
        _PERIOD, "validity period of CA certificates", default=DEFAULT_CA_VALIDITY, since=V1BETA4
    )
    ci_image_repository: str = ""
    ci_kubernetes_version: str = ""


@struct
class BootstrapToken:
    """A bootstrap token as configured. `token` is `id.secret`; `ttl` 0 or None means that it does not expire.

    `made_up` means that the token was generated, so that another one with the same permissions can replace it.
    """

    token: str = member(TOKEN, "the token, `id.secret`; empty: generated randomly", default="", keep=True, explained="random")
    description: str = member(TEXT, "purpose of the token", default="")
    ttl: Duration | None = member(
        _PERIOD, "lifetime of the token; 0s: it never expires; excludes expires", default=None, explained="24h0m0s, unless expires is set"
    )
    expires: str = member(MOMENT, "time when the token expires, in RFC 3339; excludes ttl", default="")
    usages: Sequence[str] = member(TEXTS, "allowed usages of the token: signing, authentication", default=TOKEN_USAGES)
    groups: Sequence[str] = member(
        TEXTS, "groups of users who authenticate with it; they begin with system:bootstrappers:", default=(DEFAULT_GROUP,)
    )
    made_up: bool = field(default=False, compare=False)


@struct
class NodeRegistration:
    """The registration of this machine's Node. `taints` None means the default of its role."""

    name: str = member(TEXT, "name of the Node; empty: the host's name, in lower case", default="", explained="the host's name")
    cri_socket: str = member(TEXT, "socket of the container runtime; empty: the one that is found", default="", explained=FOUND_SOCKET)
    taints: Sequence[Mapping[str, object]] | None = member(
        List(Normalised(TAINT)), "taints of the Node; null: those of its role, []: none", default=None, keep=True
    )
    kubelet_extra_args: Sequence[Arg] = member(ARGUMENTS, "further flags of the kubelet", default=())
    ignore_preflight_errors: Sequence[str] = member(TEXTS, CHECKS, default=(), since=V1BETA2)
    image_pull_policy: str = member(TEXT, PULL_POLICY, default="IfNotPresent", since=V1BETA3)
    image_pull_serial: bool = member(Pointer(FLAG), SERIAL_PULLS, default=True, since=V1BETA4)


@struct
class LocalAPIEndpoint:
    """The address of this machine's API server."""

    advertise_address: str = member(
        TEXT,
        "IP address at which others reach this API server; empty: that of the default route",
        default="",
        explained="the address of the default route",
    )
    bind_port: int = member(INT32, "port of this API server", default=6443)


@struct
class Timeouts:
    """The time limit of each kind of wait."""

    control_plane_component_health_check: Duration = member(
        _PERIOD, "wait for a component of the control plane to be healthy", default=Duration(4 * MINUTE)
    )
    kubelet_health_check: Duration = member(_PERIOD, "wait for the kubelet to be healthy", default=Duration(4 * MINUTE))
    kubernetes_api_call: Duration = member(
        _PERIOD, "how long to retry a request to the Kubernetes API", default=Duration(1 * MINUTE), name="kubernetesAPICall"
    )
    etcd_api_call: Duration = member(_PERIOD, "how long to retry a request to etcd", default=Duration(2 * MINUTE), name="etcdAPICall")
    tls_bootstrap: Duration = member(_PERIOD, "wait for the kubelet to get its client certificate", default=Duration(5 * MINUTE))
    discovery: Duration = member(_PERIOD, "wait for the cluster's information while joining", default=Duration(5 * MINUTE))
    upgrade_manifests: Duration = member(_PERIOD, "wait for a static pod to be upgraded", default=Duration(5 * MINUTE))


@struct
class Patches:
    """The directory of patches."""

    directory: str = member(TEXT, "the directory", default="")


PATCHES: Final = Only(Struct(Patches))


@struct
class InitConfiguration:
    """The configuration of `init` on this machine; never stored in the cluster."""

    bootstrap_tokens: Sequence[BootstrapToken] = member(
        List(Struct(BootstrapToken)), "tokens that other machines join with", default=(), explained="one random token"
    )
    dry_run: bool = member(FLAG, DRY_RUN, default=False, since=V1BETA4)
    node_registration: NodeRegistration = member(Struct(NodeRegistration), NODE, default=NodeRegistration())
    local_api_endpoint: LocalAPIEndpoint = member(Struct(LocalAPIEndpoint), ENDPOINT, default=LocalAPIEndpoint(), name="localAPIEndpoint")
    certificate_key: str = member(
        SECRET, "key that seals the uploaded certificates: 32 bytes in hexadecimal digits", default="", since=V1BETA2
    )
    skip_phases: Sequence[str] = member(TEXTS, SKIPPED, default=(), since=V1BETA3)
    patches_directory: str = member(PATCHES, PATCHED, default="", name="patches", since=V1BETA3)
    timeouts: Timeouts = member(Struct(Timeouts), WAITS, default=Timeouts(), since=V1BETA4)


CLUSTER: Final = Struct(ClusterConfiguration)
INIT: Final = Struct(InitConfiguration)


@dataclass(frozen=True, kw_only=True)
class ComponentConfig:
    """A kubelet or kube-proxy configuration: the whole document with kubeadm's defaults, as a plain map with zero values."""

    document: Mapping[str, object]
    user_supplied: bool = False


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The whole configuration of `init`: loaded, defaulted, validated."""

    init: InitConfiguration
    cluster: ClusterConfiguration
    kubelet: ComponentConfig
    kube_proxy: ComponentConfig
