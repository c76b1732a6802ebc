"""What each field of the configuration kinds is for, by the struct that holds it. Names are those of the document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubewright.apis.kubeadm import node_types, types

_ARGUMENT: Final = {"name": "name of the flag, without leading dashes", "value": "its value"}
_COMPONENT: Final = {
    "extraArgs": "further flags; they win over those that are written by default",
    "extraVolumes": "directories and files of the host that are mounted into the static pod",
    "extraEnvs": "environment variables of the container; they win over the proxy variables",
}
_IMAGE: Final = {
    "imageRepository": "where this image comes from; empty: the cluster's imageRepository",
    "imageTag": "tag of the image; empty: the one that goes with the Kubernetes version",
}
_CHECKS: Final = "names of preflight checks whose errors become warnings; `all` for all of them"
_SKIP: Final = "phases that are left out, as `group/phase`"
_DRY_RUN: Final = "show what would be done and change nothing"
_PULL: Final = "when images are pulled before the work begins: Always, IfNotPresent or Never"
_SERIAL: Final = "pull images one after the other"
_WAITS: Final = "how long each kind of wait may take"
_UPGRADE: Final = {
    "kubernetesVersion": "version to go to, or a label",
    "allowExperimentalUpgrades": "allow alpha, beta and release candidate versions",
    "allowRCUpgrades": "allow release candidates",
    "printConfig": "print the configuration that the upgrade uses",
    "dryRun": _DRY_RUN,
    "etcdUpgrade": "also upgrade etcd where it runs as a static pod",
    "ignorePreflightErrors": _CHECKS,
    "certificateRenewal": "renew the certificates of the components that are upgraded",
    "patches": "directory of patches for what is written; its path must be absolute here",
    "skipPhases": _SKIP,
    "imagePullPolicy": _PULL,
    "imagePullSerial": _SERIAL,
    "forceUpgrade": "go on although checks fail",
    "contextLines": "lines around each difference",
}

MEANINGS: Final[Mapping[type, Mapping[str, str]]] = {
    types.InitConfiguration: {
        "bootstrapTokens": "tokens that other machines join with",
        "dryRun": _DRY_RUN,
        "nodeRegistration": "how this machine becomes a Node",
        "localAPIEndpoint": "where this machine's API server is reached",
        "certificateKey": "key that seals the uploaded certificates: 32 bytes in hexadecimal digits",
        "skipPhases": _SKIP,
        "patches": "directory of patches for the static pods and files that are written",
        "timeouts": _WAITS,
    },
    types.BootstrapToken: {
        "token": "the token, `id.secret`; empty: made at random",
        "description": "why the token exists, for people",
        "ttl": "how long the token lives; 0s for ever; excludes expires",
        "expires": "when the token ends, in RFC 3339; excludes ttl",
        "usages": "what the token is good for: signing, authentication",
        "groups": "groups of whoever authenticates with it; they begin with system:bootstrappers:",
    },
    types.NodeRegistration: {
        "name": "name of the Node; empty: the host's name, in lower case",
        "criSocket": "socket of the container runtime; empty: the one that is found",
        "taints": "taints of the Node; null: those of its role, []: none",
        "kubeletExtraArgs": "further flags of the kubelet",
        "ignorePreflightErrors": _CHECKS,
        "imagePullPolicy": _PULL,
        "imagePullSerial": _SERIAL,
    },
    types.LocalAPIEndpoint: {
        "advertiseAddress": "IP address that others reach this API server by; empty: that of the default route",
        "bindPort": "port of this API server",
    },
    types.Timeouts: {
        "controlPlaneComponentHealthCheck": "wait for a component of the control plane to be healthy",
        "kubeletHealthCheck": "wait for the kubelet to be healthy",
        "kubernetesAPICall": "go on trying a request to the Kubernetes API",
        "etcdAPICall": "go on trying a request to etcd",
        "tlsBootstrap": "wait for the kubelet to get its client certificate",
        "discovery": "wait for the cluster's information while joining",
        "upgradeManifests": "wait for a static pod to be upgraded",
    },
    types.ClusterConfiguration: {
        "etcd": "etcd as a static pod (local), or one that somebody else runs (external)",
        "networking": "ranges of addresses, and the DNS domain",
        "kubernetesVersion": "version of the control plane, or a label such as stable-1",
        "controlPlaneEndpoint": "stable address of the control plane, host or host:port; needed for more than one",
        "apiServer": "what may be set for kube-apiserver",
        "controllerManager": "what may be set for kube-controller-manager",
        "scheduler": "what may be set for kube-scheduler",
        "dns": "the CoreDNS add-on",
        "proxy": "the kube-proxy add-on",
        "certificatesDir": "directory of the certificates and keys",
        "imageRepository": "where the images come from",
        "featureGates": "feature gates of kubeadm",
        "clusterName": "name of the cluster in kubeconfig files",
        "encryptionAlgorithm": "algorithm of keys: RSA-2048, RSA-3072, RSA-4096, ECDSA-P256, ECDSA-P384",
        "certificateValidityPeriod": "how long certificates are valid that are not authorities",
        "caCertificateValidityPeriod": "how long the certificates of authorities are valid",
    },
    types.Etcd: {"local": "etcd as a static pod of each control plane", "external": "etcd that somebody else runs"},
    types.LocalEtcd: {
        **_IMAGE,
        "dataDir": "directory of etcd's data",
        "extraArgs": "further flags of etcd",
        "extraEnvs": "environment variables of etcd",
        "serverCertSANs": "further names and addresses in the server certificate",
        "peerCertSANs": "further names and addresses in the peer certificate",
    },
    types.ExternalEtcd: {
        "endpoints": "URLs of the members",
        "httpEndpoints": "URLs for health and metrics, where they are others than endpoints",
        "caFile": "CA of the members",
        "certFile": "client certificate of the API server",
        "keyFile": "its key",
    },
    types.Networking: {
        "serviceSubnet": "range of service addresses: one CIDR, or two of different families joined by a comma",
        "podSubnet": "range of pod addresses, likewise; empty: nodes get no ranges",
        "dnsDomain": "DNS domain of services",
    },
    types.APIServer: {**_COMPONENT, "certSANs": "further names and addresses in the API server's certificate"},
    types.ControlPlaneComponent: _COMPONENT,
    types.DNS: {**_IMAGE, "disabled": "do not install CoreDNS"},
    types.Proxy: {"disabled": "do not install kube-proxy"},
    types.Arg: _ARGUMENT,
    types.EnvVar: {"name": "name of the variable", "value": "its value", "valueFrom": "where its value comes from, as in a Pod"},
    types.HostPathMount: {
        "name": "name of the volume in the pod",
        "hostPath": "path on the host",
        "mountPath": "path in the container",
        "readOnly": "mount it for reading only",
        "pathType": "what must be there, as in a Pod's hostPath volume",
    },
    node_types.JoinConfiguration: {
        "dryRun": _DRY_RUN,
        "nodeRegistration": "how this machine becomes a Node",
        "caCertPath": "where the cluster's CA is written",
        "discovery": "how the cluster is found and trusted",
        "controlPlane": "given: this machine becomes a further control plane",
        "skipPhases": _SKIP,
        "patches": "directory of patches for the static pods and files that are written",
        "timeouts": _WAITS,
    },
    node_types.JoinControlPlane: {
        "localAPIEndpoint": "where this machine's API server is reached",
        "certificateKey": "key that the uploaded certificates were sealed with",
    },
    node_types.Discovery: {
        "bootstrapToken": "find the cluster by a token",
        "file": "find the cluster by a kubeconfig",
        "tlsBootstrapToken": "token that the kubelet gets its certificate with; empty: the one of bootstrapToken",
    },
    node_types.BootstrapTokenDiscovery: {
        "token": "the token, `id.secret`",
        "apiServerEndpoint": "host:port of an API server of the cluster",
        "caCertHashes": "pins of the cluster's CA, sha256:HEX",
        "unsafeSkipCAVerification": "trust the cluster without pins",
    },
    node_types.FileDiscovery: {"kubeConfigPath": "path or https URL of a kubeconfig"},
    node_types.ResetConfiguration: {
        "cleanupTmpDir": "also empty the directory of backups and dry runs",
        "certificatesDir": "directory of certificates that is emptied",
        "criSocket": "socket of the container runtime; empty: the one that is found",
        "dryRun": _DRY_RUN,
        "force": "do not ask",
        "ignorePreflightErrors": _CHECKS,
        "skipPhases": _SKIP,
        "unmountFlags": "flags of unmount: MNT_FORCE, MNT_DETACH, MNT_EXPIRE, UMOUNT_NOFOLLOW",
        "timeouts": _WAITS,
    },
    node_types.UpgradeConfiguration: {
        "apply": "what `upgrade apply` does",
        "diff": "what `upgrade diff` shows",
        "node": "what `upgrade node` does",
        "plan": "what `upgrade plan` shows",
        "timeouts": _WAITS,
    },
    node_types.UpgradeApply: _UPGRADE,
    node_types.UpgradeNode: _UPGRADE,
    node_types.UpgradePlan: _UPGRADE,
    node_types.UpgradeDiff: _UPGRADE,
    node_types.Patches: {"directory": "the directory"},
}

_NEW: Final = "v1beta4 (Kubernetes 1.31)"
SINCE: Final[Mapping[type, Mapping[str, str]]] = {
    types.InitConfiguration: {"dryRun": _NEW, "timeouts": _NEW},
    types.NodeRegistration: {"imagePullSerial": _NEW},
    types.Timeouts: dict.fromkeys(MEANINGS[types.Timeouts], _NEW),
    types.ClusterConfiguration: {
        "proxy": _NEW,
        "encryptionAlgorithm": _NEW,
        "certificateValidityPeriod": _NEW,
        "caCertificateValidityPeriod": _NEW,
    },
    types.LocalEtcd: {"extraEnvs": _NEW},
    types.ExternalEtcd: {"httpEndpoints": "v1beta4, Kubernetes 1.35"},
    types.APIServer: {"extraEnvs": _NEW},
    types.ControlPlaneComponent: {"extraEnvs": _NEW},
    types.DNS: {"disabled": _NEW},
    types.Proxy: {"disabled": _NEW},
    types.Arg: dict.fromkeys(_ARGUMENT, _NEW),
    types.EnvVar: dict.fromkeys(MEANINGS[types.EnvVar], _NEW),
    node_types.JoinConfiguration: {"dryRun": _NEW, "timeouts": _NEW},
    node_types.ResetConfiguration: dict.fromkeys(MEANINGS[node_types.ResetConfiguration], _NEW),
    node_types.UpgradeConfiguration: dict.fromkeys(MEANINGS[node_types.UpgradeConfiguration], _NEW),
    node_types.UpgradeApply: dict.fromkeys(_UPGRADE, _NEW),
    node_types.UpgradeNode: dict.fromkeys(_UPGRADE, _NEW),
    node_types.UpgradePlan: {**dict.fromkeys(_UPGRADE, _NEW), "etcdUpgrade": "v1beta4, Kubernetes 1.33"},
    node_types.UpgradeDiff: dict.fromkeys(_UPGRADE, _NEW),
}
"""Since which version a field exists, where it is younger than v1beta3 (spec/kubeadm.md 3.12)."""
OLDER: Final = "v1beta3 or before"
