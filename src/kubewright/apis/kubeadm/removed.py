"""Input that kubeadm no longer accepts (versions, kinds, feature gates, fields), and values that it accepts without effect.

Each row has the release that removed it and the replacement. docs/compat/classic.md documents the same for users.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubewright.apis.findings import Problems
from kubewright.apis.kubeadm.features import AVAILABLE
from kubewright.apis.kubeadm.types import CONTROL_PLANE_LABEL, HostPathMount
from kubewright.base.messages import did_you_mean, quoted

_MASTER: Final = "node-role.kubernetes.io/master"
_DOCKERSHIM: Final = "dockershim.sock"
_DOCKER: Final = ("/docker.sock", "/docker/docker.sock")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_PATH_TYPES: Final = ("", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice")
_FROZEN: Final = ("k8s.gcr.io", "gcr.io/google_containers", "gcr.io/google-containers")

GROUP: Final = "kubeadm.k8s.io"

LAST_MIGRATOR: Final = {"v1alpha1": "v1.11", "v1alpha2": "v1.12", "v1alpha3": "v1.14"}
"""The last kubeadm that could migrate an old version."""
STILL_READ: Final = {"v1beta1": "v1.15", "v1beta2": "v1.22"}
"""Versions that are read here and not by kubeadm v1.36, and the last kubeadm that could migrate them, which defines how they are read."""

KINDS: Final = {
    "ClusterStatus": "there is no ClusterStatus since v1.22: leave the document out, each API server's address is kept in its static pod",
    "MasterConfiguration": "MasterConfiguration was split in v1.12: write InitConfiguration and ClusterConfiguration",
    "NodeConfiguration": "NodeConfiguration was renamed in v1.12: write JoinConfiguration",
}
COMPONENT_KINDS: Final = {
    "SerializedNodeConfigSource": "dynamic kubelet configuration was removed in v1.24: add a KubeletConfiguration document",
}

_ALWAYS: Final = "it is always on"
GATES: Final = {
    "ControlPlaneKubeletLocalMode": ("v1.36", _ALWAYS),
    "WaitForAllControlPlaneComponents": ("v1.35", _ALWAYS),
    "EtcdLearnerMode": ("v1.33", _ALWAYS),
    "UpgradeAddonsBeforeControlPlane": ("v1.31", "add-ons are upgraded once all control planes are"),
    "UnversionedKubeletConfigMap": ("v1.26", _ALWAYS),
    "IPv6DualStack": ("v1.24", _ALWAYS),
    "DynamicKubeletConfig": (
        "v1.13",
        "add a KubeletConfiguration document; kubelets read no configuration of their own from the API since v1.24",
    ),
    "CoreDNS": ("v1.18", "CoreDNS is the only DNS add-on; set dns.disabled to install another one yourself"),
    "SelfHosting": ("v1.13", "control planes run as static pods"),
    "StoreCertsInSecrets": ("v1.13", "`init --upload-certs` keeps certificates in a sealed Secret, for two hours"),
    "HighAvailability": ("v1.13", "set controlPlaneEndpoint, and join further control planes with `join --control-plane`"),
    "Auditing": ("v1.13", "set apiServer.extraArgs audit-policy-file and mount the file with apiServer.extraVolumes"),
}
"""Gates that no longer exist: the release, and the replacement. Leave them out of the file."""

_ARGUMENTS: Final = "v1beta1 (v1.13)"
_V1ALPHA2: Final = "v1alpha2 (v1.11)"
_V1ALPHA3: Final = "v1alpha3 (v1.12)"
_V1BETA3: Final = "v1beta3 (v1.22)"
_V1BETA4: Final = "v1beta4 (v1.31)"
_DOCUMENT: Final = "a {} document in the same file"
FIELDS: Final = {
    # v1beta3 and before
    "apiServer.timeoutForControlPlane": (_V1BETA4, "timeouts.controlPlaneComponentHealthCheck of InitConfiguration or JoinConfiguration"),
    "discovery.timeout": (_V1BETA4, "timeouts.discovery"),
    # v1beta2 and before
    "useHyperKubeImage": (_V1BETA3, "nothing: every component has its own image"),
    "dns.type": (_V1BETA3, "nothing: CoreDNS is the only DNS add-on; dns.disabled leaves it out"),
    "apiEndpoints": (_V1BETA3, "nothing: each API server's address is kept in its static pod"),
    # v1alpha3 and before
    "apiEndpoint": (_ARGUMENTS, "localAPIEndpoint"),
    "apiServerExtraArgs": (_ARGUMENTS, "apiServer.extraArgs"),
    "apiServerExtraVolumes": (_ARGUMENTS, "apiServer.extraVolumes"),
    "apiServerCertSANs": (_ARGUMENTS, "apiServer.certSANs"),
    "controllerManagerExtraArgs": (_ARGUMENTS, "controllerManager.extraArgs"),
    "controllerManagerExtraVolumes": (_ARGUMENTS, "controllerManager.extraVolumes"),
    "schedulerExtraArgs": (_ARGUMENTS, "scheduler.extraArgs"),
    "schedulerExtraVolumes": (_ARGUMENTS, "scheduler.extraVolumes"),
    "unifiedControlPlaneImage": (_ARGUMENTS, "imageRepository"),
    "auditPolicy": (_ARGUMENTS, "apiServer.extraArgs audit-policy-file, and apiServer.extraVolumes"),
    "discoveryToken": (_ARGUMENTS, "discovery.bootstrapToken.token"),
    "discoveryTokenAPIServers": (_ARGUMENTS, "discovery.bootstrapToken.apiServerEndpoint"),
    "discoveryTokenCACertHashes": (_ARGUMENTS, "discovery.bootstrapToken.caCertHashes"),
    "discoveryTokenUnsafeSkipCAVerification": (_ARGUMENTS, "discovery.bootstrapToken.unsafeSkipCAVerification"),
    "discoveryFile": (_ARGUMENTS, "discovery.file.kubeConfigPath"),
    "discoveryTimeout": (_ARGUMENTS, "timeouts.discovery"),
    "tlsBootstrapToken": (_ARGUMENTS, "discovery.tlsBootstrapToken"),
    "apiServerEndpoints": (_ARGUMENTS, "discovery.bootstrapToken.apiServerEndpoint"),
    # v1alpha2 and before
    "api": (_V1ALPHA3, "localAPIEndpoint of InitConfiguration; its controlPlaneEndpoint is a field of ClusterConfiguration"),
    "nodeName": (_V1ALPHA2, "nodeRegistration.name"),
    "noTaintMaster": (_V1ALPHA2, "nodeRegistration.taints: []"),
    "tokenTTL": (_V1ALPHA2, "bootstrapTokens[].ttl"),
    "tokenUsages": (_V1ALPHA2, "bootstrapTokens[].usages"),
    "tokenGroups": (_V1ALPHA2, "bootstrapTokens[].groups"),
    "token": (_ARGUMENTS, "bootstrapTokens[].token of InitConfiguration, or discovery.bootstrapToken.token of JoinConfiguration"),
    "cloudProvider": (
        _V1ALPHA2,
        "a cloud controller manager of the provider's; components get it with extraArgs cloud-provider: external",
    ),
    "privilegedPods": (_V1ALPHA2, "nothing: containers may be privileged"),
    "selfHosted": (_V1ALPHA2, "nothing: control planes run as static pods"),
    "authorizationModes": (_V1ALPHA2, "apiServer.extraArgs authorization-mode"),
    "kubeProxy": (_V1ALPHA3, _DOCUMENT.format("KubeProxyConfiguration")),
    "kubeletConfiguration": (_V1ALPHA3, _DOCUMENT.format("KubeletConfiguration")),
    "etcd.image": (_V1ALPHA2, "etcd.local.imageRepository and etcd.local.imageTag"),
    "etcd.endpoints": (_V1ALPHA2, "etcd.external.endpoints"),
    "etcd.caFile": (_V1ALPHA2, "etcd.external.caFile"),
    "etcd.certFile": (_V1ALPHA2, "etcd.external.certFile"),
    "etcd.keyFile": (_V1ALPHA2, "etcd.external.keyFile"),
    "etcd.dataDir": (_V1ALPHA2, "etcd.local.dataDir"),
    "etcd.extraArgs": (_V1ALPHA2, "etcd.local.extraArgs"),
    "etcd.serverCertSANs": (_V1ALPHA2, "etcd.local.serverCertSANs"),
    "etcd.peerCertSANs": (_V1ALPHA2, "etcd.local.peerCertSANs"),
}
"""Fields of old versions of kubeadm.k8s.io by their path: the version that lacks them, and the replacement."""

COMPONENT_FIELDS: Final = {
    "configSource": ("v1.24", "a KubeletConfiguration document: dynamic kubelet configuration was removed"),
    "networkPlugin": ("v1.24", "nothing: the container runtime loads network plugins"),
    "podInfraContainerImage": ("v1.35", "the container runtime's own setting for its sandbox image"),
    "udpIdleTimeout": ("v1.26", "conntrack.udpTimeout: the userspace mode was removed"),
    "resourceContainer": ("v1.16", "nothing"),
    "enableDynamicConfig": ("v1.24", "nothing: dynamic kubelet configuration was removed"),
}
"""Fields that users take from old kubelet and kube-proxy flags or documents."""

ARGUMENTS: Final = {
    ("kube-apiserver", "insecure-port"): ("v1.24", "nothing: the API server serves TLS only"),
    ("kube-apiserver", "insecure-bind-address"): ("v1.24", "nothing: the API server serves TLS only"),
    ("kube-apiserver", "basic-auth-file"): ("v1.19", "tokens or client certificates"),
    ("kube-apiserver", "kubelet-https"): ("v1.22", "nothing: kubelets are always called over TLS"),
    ("kube-apiserver", "cloud-provider"): ("v1.33", "nothing: a cloud controller manager does this work"),
    ("kube-apiserver", "cloud-config"): ("v1.33", "nothing: a cloud controller manager does this work"),
    ("kube-controller-manager", "port"): ("v1.24", "secure-port"),
    ("kube-controller-manager", "address"): ("v1.24", "bind-address"),
    ("kube-controller-manager", "experimental-cluster-signing-duration"): ("v1.25", "cluster-signing-duration"),
    ("kube-scheduler", "port"): ("v1.24", "nothing: a KubeSchedulerConfiguration, or secure-port"),
    ("kube-scheduler", "address"): ("v1.24", "bind-address"),
    ("kube-scheduler", "policy-config-file"): ("v1.23", "a KubeSchedulerConfiguration with --config"),
    ("kubelet", "network-plugin"): ("v1.24", "nothing: the container runtime loads network plugins"),
    ("kubelet", "cni-bin-dir"): ("v1.24", "the container runtime's configuration"),
    ("kubelet", "cni-conf-dir"): ("v1.24", "the container runtime's configuration"),
    ("kubelet", "docker-endpoint"): ("v1.24", "nodeRegistration.criSocket"),
    ("kubelet", "image-pull-progress-deadline"): ("v1.24", "the container runtime's configuration"),
    ("kubelet", "container-runtime"): ("v1.27", "nothing: all runtimes are remote; nodeRegistration.criSocket names it"),
    ("kubelet", "dynamic-config-dir"): ("v1.24", "a KubeletConfiguration document"),
    ("kubelet", "pod-infra-container-image"): ("v1.35", "the container runtime's own setting for its sandbox image"),
    ("kubelet", "cadvisor-port"): ("v1.12", "the metrics of the kubelet's own port, /metrics/cadvisor"),
    ("kubelet", "allow-privileged"): ("v1.15", "nothing: containers may be privileged"),
}
"""Removed flags of components that an extra argument may still name.

The tables of the real binaries decide what is unknown; these are the reasons.
"""


CHECKS: Final = {
    "Service-Docker": "v1.24",
    "IsDockerSystemdCheck": "v1.24",
    "FileContent--proc-sys-net-bridge-bridge-nf-call-iptables": "v1.30",
    "FileContent--proc-sys-net-bridge-bridge-nf-call-ip6tables": "v1.30",
    "FileExisting-ebtables": "v1.32",
    "FileExisting-socat": "v1.32",
    **dict.fromkeys([f"FileExisting-{program}" for program in ("crictl", "ethtool", "ip", "iptables", "nsenter", "tc", "touch")], ""),
}
"""Preflight checks that may still be in `ignorePreflightErrors`, and the release that removed them; '' if it is unknown."""


def check_hint(name: str) -> str:
    """Return that a preflight check was removed, or ''. The case of names is ignored."""
    for check, since in CHECKS.items():
        if check.lower() == name.lower():
            return f"the check {check} no longer exists{f' since {since}' if since else ''}; leave it out"
    return ""


def field_hint(path: str, *, component: bool = False) -> str:
    """Return the replacement of an unknown field, or ''."""
    table = COMPONENT_FIELDS if component else FIELDS
    if path not in table:
        return ""
    return _instead(*table[path], verb="write")


def argument_hint(component: str, name: str) -> str:
    """Return the replacement of a component's flag.

    `component` is its program, such as kube-apiserver. '' if there is none.
    """
    if (component, name) not in ARGUMENTS:
        return ""
    return _instead(*ARGUMENTS[component, name], verb="use")


def _instead(since: str, instead: str, *, verb: str) -> str:
    what = f"leave it out{instead.removeprefix('nothing')}" if instead.startswith("nothing") else f"{verb} {instead}"
    return f"removed in {since}: {what}"


def taints(given: Sequence[Mapping[str, Any]]) -> Problems:
    """Warn about the taint that control planes had up to v1.24, and about unknown effects."""
    for taint in given:
        effect = taint.get("effect", "")
        if effect not in _EFFECTS:
            yield f"the effect {quoted(effect)} is none of {', '.join(_EFFECTS)}{did_you_mean(effect, _EFFECTS)}", effect
        if taint.get("key") == _MASTER:
            yield f"the taint {_MASTER} was removed in v1.25; write {CONTROL_PLANE_LABEL}", _MASTER


def gates(given: Mapping[str, bool]) -> Problems:
    """Warn about gates that are generally available but switched off: they have an effect only until they are removed."""
    for gate, value in given.items():
        if value != AVAILABLE.get(gate, value):
            yield f"the feature gate {gate} is generally available and will be removed in the next release; leave it out", gate


def socket(given: str) -> Problems:
    """Warn about sockets of Docker, which the kubelet cannot use since dockershim was removed."""
    if given.endswith((_DOCKERSHIM, *_DOCKER)):
        yield f"{given} is Docker's, which kubelets cannot use since v1.24; use containerd, CRI-O, or cri-dockerd's socket", given


def repository(given: str) -> Problems:
    """Warn about registries that get no new images."""
    for frozen in _FROZEN:
        if given == frozen or given.startswith(f"{frozen}/"):
            yield f"{frozen} gets no new images since v1.27; write registry.k8s.io", given


def path_types(given: Sequence[HostPathMount]) -> Problems:
    """Warn about types of host paths that the kubelet refuses: the static pod does not start."""
    for mount in given:
        if mount.path_type not in _PATH_TYPES:
            meant = did_you_mean(mount.path_type, _PATH_TYPES[1:])
            yield f"{quoted(mount.path_type)} of {mount.name} is none of {', '.join(_PATH_TYPES[1:])}{meant}", mount.path_type


def checks(given: Sequence[str]) -> Problems:
    """Warn about names of preflight checks that were removed."""
    if not given:
        return

    yield from ((hint, name) for name in given if (hint := check_hint(name)))
