"""kubeadm's documents for the machines of a cluster: the user's documents, completed with the settings that machines need. Pure.

The kubelet and kube-proxy run in containers of systemd-nspawn, which share the host's disk and kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.apis.machine import Detected
from kubewright.base import untyped, yaml
from kubewright.base.errors import ValidationError
from kubewright.base.fields import FieldError, FieldErrorType, FieldPath
from kubewright.base.records import dataclass, replace
from kubewright.base.versions import supported
from kubewright.base.yaml import Document
from kubewright.kube.patches import apply_merge
from kubewright.local.record import ClusterRecord, LocalMachineRecord
from kubewright.local.user_documents import SOURCE, documents_of, field, version_of
from kubewright.local.whole import subnets
from kubewright.local.whole.members import ENDPOINT
from kubewright.machines.network import is_ipv6

PORT: Final = 6443
TOKEN_TTL: Final = "15m0s"  # noqa: S105 - a duration
_KUBEADM: Final = "kubeadm.k8s.io/v1beta4"
_INIT, _CLUSTER, _KUBELET, _PROXY = "InitConfiguration", "ClusterConfiguration", "KubeletConfiguration", "KubeProxyConfiguration"
_JOIN: Final = "JoinConfiguration"
_VERSIONS: Final[Mapping[str, str]] = {
    _INIT: _KUBEADM,
    _CLUSTER: _KUBEADM,
    _KUBELET: "kubelet.config.k8s.io/v1beta1",
    _PROXY: "kubeproxy.config.k8s.io/v1alpha1",
}
_PERMANENT: Final = "controlPlaneComponentHealthCheck"
_TIMEOUTS: Final = (
    _PERMANENT,
    "discovery",
    "etcdAPICall",
    "kubeletHealthCheck",
    "kubernetesAPICall",
    "tlsBootstrap",
)
_PATCHES: Final = ("patches", "directory")
_FIXED: Final = (
    (_INIT, "localAPIEndpoint"),
    (_INIT, "nodeRegistration.name"),
    (_INIT, "nodeRegistration.criSocket"),
    (_INIT, "bootstrapTokens"),
    (_CLUSTER, "controlPlaneEndpoint"),
    (_CLUSTER, "certificatesDir"),
    (_CLUSTER, "etcd.external"),
    (_JOIN, "discovery"),
    (_JOIN, "nodeRegistration.name"),
    (_JOIN, "nodeRegistration.criSocket"),
    (_JOIN, "controlPlane"),
    (_JOIN, "caCertPath"),
)
"""Fields that the cluster sets itself."""
_ANY_TOKEN: Final = "abcdef.0123456789abcdef"  # noqa: S105 - of nobody
_ANY_MACHINE: Final = Detected(host_name="machine", default_ipv4="172.30.0.11", cri_sockets=("unix:///run/containerd/containerd.sock",))
"""A machine that does not exist, with which documents are checked."""
_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    _KUBELET: {
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,  # machines see the swap of the host
        # the machines share the host's disk: how full it is says nothing about their pods
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"},
    },
    # nf_conntrack_max is read-only outside of the first network namespace
    _PROXY: {"mode": "nftables", "conntrack": {"maxPerCore": 0}},
}
"""The defaults of the documents; the user's documents override them."""


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """The credentials with which machines join: a bootstrap token, pins of the CA, and the key of the uploaded certificates."""

    token: str
    certificate_key: str
    pins: Sequence[str] = ()


def require_valid(config: str) -> None:
    """Refuse documents with fields that the cluster sets itself, with unsupported ranges, and those that `init` or `join` would refuse.

    Raises DocumentError and ValidationError, naming every such field, and UsageError for an unsupported version of Kubernetes.
    """
    from kubewright.apis.kubeadm.loading import load_cluster, load_join  # of all commands, only `up` needs it
    from kubewright.apis.kubeadm.node_types import BootstrapTokenDiscovery, Discovery

    if not config:
        return
    documents = documents_of(config)
    errors = [
        _error(FieldErrorType.FORBIDDEN, document, path, found, "a cluster of machines chooses it itself")
        for kind, path in _FIXED
        for document in documents
        if _kind(document) == kind and (found := field(documents, kind, *path.split("."))) is not None
    ]
    if errors:
        raise ValidationError(f"{SOURCE} sets fields that a cluster of machines chooses itself", errors, remedy="leave these fields out")
    subnets.of(config)
    supported(version_of(config, None))
    known = [document for document in documents if _kind(document) in _VERSIONS]
    if not {_INIT, _CLUSTER} & set(map(_kind, known)):  # one of them is required
        known += yaml.load_all(yaml.dump({"apiVersion": _KUBEADM, "kind": _CLUSTER}))
    load_cluster(known)
    if joins := [document for document in documents if _kind(document) == _JOIN]:
        token = BootstrapTokenDiscovery(token=_ANY_TOKEN, api_server_endpoint=f"{ENDPOINT}:{PORT}", unsafe_skip_ca_verification=True)
        load_join(joins, detected=_ANY_MACHINE, change=lambda given: replace(given, discovery=Discovery(bootstrap_token=token)))


def require_patches(config: str, mounted: Sequence[PurePosixPath]) -> None:
    """Require that new machines see the directories of patches: they have what is mounted at these paths. Raises ValidationError."""
    path = ".".join(_PATCHES)
    errors = [
        _error(FieldErrorType.INVALID, document, path, directory, "a new machine has no such directory")
        for document in documents_of(config)
        if (kind := _kind(document)) in {_INIT, _JOIN} and isinstance(directory := field([document], kind, *_PATCHES), str) and directory
        if not any(PurePosixPath(directory).is_relative_to(target) for target in mounted)
    ]
    if errors:
        raise ValidationError(
            f"{SOURCE} names directories of patches that machines do not see",
            errors,
            remedy="mount them, for example --mount $PWD/patches:/mnt/patches:ro",
        )


def _error(kind: FieldErrorType, document: Document, path: str, value: object, reason: str) -> FieldError:
    return FieldError(path=FieldPath(path), type=kind, reason=reason, value=value, source=document.where(path))


def of_init(cluster: ClusterRecord, machine: LocalMachineRecord, *, within: float, unverified: bool) -> str:
    """Return the documents for `init` on the first machine, without credentials. Pods run on it if it is the only machine.

    They contain the timeout that becomes part of the static pods, so that a later run with another one changes nothing.
    """
    documents = documents_of(cluster.config)
    given = untyped.mapping(field(documents, _INIT, "nodeRegistration"))
    registration = _registration(machine.name, machine.node_addresses, unverified=unverified, given=given)
    if cluster.total == 1 and "taints" not in given:
        registration["taints"] = []
    ours: dict[str, dict[str, Any]] = {
        _INIT: {
            "localAPIEndpoint": {"advertiseAddress": machine.address, "bindPort": PORT},
            "nodeRegistration": registration,
        },
        _CLUSTER: {
            "kubernetesVersion": cluster.kubernetes_version,
            "controlPlaneEndpoint": f"{ENDPOINT}:{PORT}",
            "networking": {"podSubnet": ",".join(subnets.of(cluster.config).pods)},
        },
    }
    users: dict[str, Any] = {_kind(document): document.value for document in documents if _kind(document) in _VERSIONS}
    others = [document.value for document in documents if _kind(document) not in {*_VERSIONS, _JOIN}]
    made = [
        apply_merge(apply_merge({"apiVersion": version, "kind": kind, **_DEFAULTS.get(kind, {})}, users.get(kind, {})), ours.get(kind, {}))
        for kind, version in _VERSIONS.items()
    ]
    if made[0]["apiVersion"] == _KUBEADM:  # v1beta3 has no timeouts
        made[0]["timeouts"] = {_PERMANENT: _seconds(within), **made[0].get("timeouts", {})}
    return yaml.dump_all([*made, *others])


def for_run(text: str, *, credentials: Credentials, within: float, untainted: bool = False) -> str:
    """Return documents of `of_init` with the credentials and the timeouts of one run, which waits `within` seconds.

    `untainted`: the Node does not get the default taint of control planes; taints in the documents apply nevertheless.
    """
    documents = [document.value for document in yaml.load_all(text)]
    for document in documents:
        if isinstance(document, dict) and document.get("kind") == _INIT:
            document["bootstrapTokens"] = [{"token": credentials.token, "ttl": TOKEN_TTL}]
            document["certificateKey"] = credentials.certificate_key
            if untainted and "taints" not in document["nodeRegistration"]:  # other taints would be another configuration
                document["skipPhases"] = [*(document.get("skipPhases") or ()), "mark-control-plane"]
            if document.get("apiVersion") == _KUBEADM:
                document["timeouts"] = {**_timeouts(within), **document.get("timeouts", {})}
    return yaml.dump_all(documents)


def _timeouts(within: float) -> dict[str, str]:
    """Return the timeouts of kubeadm for a run that ends after so many seconds."""
    return dict.fromkeys(_TIMEOUTS, _seconds(within))


def _seconds(within: float) -> str:
    return f"{within:.0f}s"


def of_join(
    cluster: ClusterRecord, name: str, *, addresses: Sequence[str], credentials: Credentials, within: float, unverified: bool
) -> str:
    """Return the document for the `join` of a machine with these addresses: the user's, completed."""
    user = untyped.mapping(next((document.value for document in documents_of(cluster.config) if _kind(document) == _JOIN), None))
    bootstrap = {"token": credentials.token, "apiServerEndpoint": f"{ENDPOINT}:{PORT}", "caCertHashes": list(credentials.pins)}
    given = untyped.mapping(user.get("nodeRegistration"))
    ours: dict[str, Any] = {
        "discovery": {"bootstrapToken": bootstrap},
        "nodeRegistration": _registration(name, addresses, unverified=unverified, given=given),
    }
    if cluster.machine(name) is not None:
        endpoint = {"advertiseAddress": addresses[0], "bindPort": PORT}
        ours["controlPlane"] = {"localAPIEndpoint": endpoint, "certificateKey": credentials.certificate_key}
    document = apply_merge({"apiVersion": _KUBEADM, "kind": _JOIN, **user}, ours)
    if document["apiVersion"] == _KUBEADM:  # v1beta3 has no timeouts
        document["timeouts"] = {**_timeouts(within), **untyped.mapping(user.get("timeouts"))}
    return yaml.dump(document)


def _registration(name: str, addresses: Sequence[str], *, unverified: bool, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the registration of a Node, to be merged with the user's settings.

    The kubelet uses only an IPv4 address unless it is told otherwise.
    """
    registration: dict[str, Any] = {"name": name}
    if unverified:
        ignored = given.get("ignorePreflightErrors")
        names = ignored if isinstance(ignored, list) else []
        everything = any(str(name).lower() == "all" for name in names)  # which cannot be combined with names
        registration["ignorePreflightErrors"] = names if everything else [*names, "SystemVerification"]
    if any(map(is_ipv6, addresses)):
        value, arguments = ",".join(addresses), given.get("kubeletExtraArgs")
        others = arguments if isinstance(arguments, list) else []
        row = {"name": "node-ip", "value": value}
        of_v1beta3 = {"node-ip": value, **arguments} if isinstance(arguments, Mapping) else None
        registration["kubeletExtraArgs"] = of_v1beta3 or [row, *others]
    return registration


def _kind(document: Document) -> str:
    return str(document.value.get("kind", "")) if isinstance(document.value, Mapping) else ""
