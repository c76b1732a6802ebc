"""The flags of the kubelet v1.36, one line each (cmd/kubelet/app/options).

`agent run` accepts all of them, so that a unit file can stay unchanged. Most set a field of KubeletConfiguration, and
`fields` says how that is treated; for the others this table says it.
"""

from __future__ import annotations

from typing import Final

from kubewright.agent.configuration import fields
from kubewright.base.records import dataclass

HONOURED: Final = "honoured"
IGNORED: Final = "ignored"


@dataclass(frozen=True)
class KubeletFlag:
    """One flag. `kind` is one of KINDS. `field` is the field of KubeletConfiguration that it sets, '' for none.

    For a flag without a field, `standing` says how it is treated, and `text` its purpose, or why it is ignored.
    """

    name: str
    kind: str
    field: str = ""
    standing: str = ""
    text: str = ""


KINDS: Final = ("text", "flag", "int", "list", "pairs", "less", "span", "taints", "headers", "limits")
"""Kinds of values: `pairs` are `name=value`, `less` are `signal<amount`.

`taints`, `headers` and `limits` have their own syntax. `headers` and `limits` are read as lists; of several `taints`
flags the last one counts, as with the kubelet.
"""

_CADVISOR: Final = "it has no cAdvisor"
_CONTAINERS: Final = "it runs no containers"
_LOG: Final = "the log is klog's text on standard error, which is not kept back"

_FIELDS: Final = """
address text address
allowed-unsafe-sysctls list allowedUnsafeSysctls
anonymous-auth flag authentication.anonymous.enabled
authentication-token-webhook flag authentication.webhook.enabled
authentication-token-webhook-cache-ttl span authentication.webhook.cacheTTL
authorization-mode text authorization.mode
authorization-webhook-cache-authorized-ttl span authorization.webhook.cacheAuthorizedTTL
authorization-webhook-cache-unauthorized-ttl span authorization.webhook.cacheUnauthorizedTTL
cgroup-driver text cgroupDriver
cgroup-root text cgroupRoot
cgroups-per-qos flag cgroupsPerQOS
client-ca-file text authentication.x509.clientCAFile
cluster-dns list clusterDNS
cluster-domain text clusterDomain
container-log-max-files int containerLogMaxFiles
container-log-max-size text containerLogMaxSize
container-runtime-endpoint text containerRuntimeEndpoint
contention-profiling flag enableContentionProfiling
cpu-cfs-quota flag cpuCFSQuota
cpu-cfs-quota-period span cpuCFSQuotaPeriod
cpu-manager-policy text cpuManagerPolicy
cpu-manager-policy-options pairs cpuManagerPolicyOptions
cpu-manager-reconcile-period span cpuManagerReconcilePeriod
enable-controller-attach-detach flag enableControllerAttachDetach
enable-debugging-handlers flag enableDebuggingHandlers
enable-server flag enableServer
enforce-node-allocatable list enforceNodeAllocatable
event-burst int eventBurst
event-qps int eventRecordQPS
eviction-hard less evictionHard
eviction-max-pod-grace-period int evictionMaxPodGracePeriod
eviction-minimum-reclaim pairs evictionMinimumReclaim
eviction-pressure-transition-period span evictionPressureTransitionPeriod
eviction-soft less evictionSoft
eviction-soft-grace-period pairs evictionSoftGracePeriod
fail-cgroupv1 flag failCgroupV1
fail-swap-on flag failSwapOn
feature-gates pairs featureGates
file-check-frequency span fileCheckFrequency
hairpin-mode text hairpinMode
healthz-bind-address text healthzBindAddress
healthz-port int healthzPort
http-check-frequency span httpCheckFrequency
image-gc-high-threshold int imageGCHighThresholdPercent
image-gc-low-threshold int imageGCLowThresholdPercent
image-service-endpoint text imageServiceEndpoint
kernel-memcg-notification flag kernelMemcgNotification
kube-api-burst int kubeAPIBurst
kube-api-content-type text contentType
kube-api-qps int kubeAPIQPS
kube-reserved pairs kubeReserved
kube-reserved-cgroup text kubeReservedCgroup
kubelet-cgroups text kubeletCgroups
local-storage-capacity-isolation flag localStorageCapacityIsolation
make-iptables-util-chains flag makeIPTablesUtilChains
manifest-url text staticPodURL
manifest-url-header headers staticPodURLHeader
max-open-files int maxOpenFiles
max-pods int maxPods
memory-manager-policy text memoryManagerPolicy
minimum-image-ttl-duration span imageMinimumGCAge
node-status-max-images int nodeStatusMaxImages
node-status-update-frequency span nodeStatusUpdateFrequency
oom-score-adj int oomScoreAdj
pod-cidr text podCIDR
pod-manifest-path text staticPodPath
pod-max-pids int podPidsLimit
pods-per-core int podsPerCore
port int port
protect-kernel-defaults flag protectKernelDefaults
provider-id text providerID
qos-reserved pairs qosReserved
read-only-port int readOnlyPort
register-node flag registerNode
register-with-taints taints registerWithTaints
registry-burst int registryBurst
registry-qps int registryPullQPS
reserved-cpus text reservedSystemCPUs
reserved-memory limits reservedMemory
resolv-conf text resolvConf
rotate-certificates flag rotateCertificates
rotate-server-certificates flag serverTLSBootstrap
runonce flag runOnce
runtime-request-timeout span runtimeRequestTimeout
seccomp-default flag seccompDefault
serialize-image-pulls flag serializeImagePulls
streaming-connection-idle-timeout span streamingConnectionIdleTimeout
sync-frequency span syncFrequency
system-cgroups text systemCgroups
system-reserved pairs systemReserved
system-reserved-cgroup text systemReservedCgroup
tls-cert-file text tlsCertFile
tls-cipher-suites list tlsCipherSuites
tls-min-version text tlsMinVersion
tls-private-key-file text tlsPrivateKeyFile
topology-manager-policy text topologyManagerPolicy
topology-manager-policy-options pairs topologyManagerPolicyOptions
topology-manager-scope text topologyManagerScope
volume-plugin-dir text volumePluginDir
volume-stats-agg-period span volumeStatsAggPeriod
"""

_OWN: Final = (
    KubeletFlag("bootstrap-kubeconfig", "text", standing=HONOURED, text="kubeconfig for requesting the first certificate"),
    KubeletFlag("cert-dir", "text", standing=HONOURED, text="directory of the node's certificates (default: pki in --root-dir)"),
    KubeletFlag(
        "cloud-provider", "text", standing=HONOURED, text="external: a cloud controller sets the node's addresses and removes its taint"
    ),
    KubeletFlag("config", "text", standing=HONOURED, text="file with a KubeletConfiguration"),
    KubeletFlag(
        "config-dir", "text", standing=HONOURED, text="directory of *.conf files that override --config, in the order of their names"
    ),
    KubeletFlag("hostname-override", "text", standing=HONOURED, text="name of the node (default: the host name)"),
    KubeletFlag("kubeconfig", "text", standing=HONOURED, text="kubeconfig of the node; written when there is a certificate"),
    KubeletFlag(
        "node-ip",
        "text",
        standing=HONOURED,
        text="address of the node, or one of each IP family; 0.0.0.0 or :: for any address of that family",
    ),
    KubeletFlag("node-labels", "pairs", standing=HONOURED, text="labels of the node when it registers"),
    KubeletFlag("root-dir", "text", standing=HONOURED, text="directory whose file system is reported as the node's"),
    *(
        KubeletFlag(name, kind, standing=IGNORED, text=_CADVISOR)
        for name, kind in (
            *(("application-metrics-count-limit", "int"), ("boot-id-file", "text"), ("container-hints", "text"), ("containerd", "text")),
            *(("containerd-namespace", "text"), ("enable-load-reader", "flag"), ("event-storage-age-limit", "text")),
            *(("event-storage-event-limit", "text"), ("global-housekeeping-interval", "span"), ("housekeeping-interval", "span")),
            *(("log-cadvisor-usage", "flag"), ("machine-id-file", "text"), ("storage-driver-buffer-duration", "span")),
            *(("storage-driver-db", "text"), ("storage-driver-host", "text"), ("storage-driver-password", "text")),
            *(("storage-driver-secure", "flag"), ("storage-driver-table", "text"), ("storage-driver-user", "text")),
        )
    ),
    *(
        KubeletFlag(name, kind, standing=IGNORED, text=_CONTAINERS)
        for name, kind in (
            *(("experimental-allocatable-ignore-eviction", "flag"), ("experimental-mounter-path", "text")),
            *(("image-credential-provider-bin-dir", "text"), ("image-credential-provider-config", "text")),
            *(("maximum-dead-containers", "int"), ("maximum-dead-containers-per-container", "int")),
            *(("minimum-container-ttl-duration", "span"), ("runtime-cgroups", "text")),
        )
    ),
    *(
        KubeletFlag(name, kind, standing=IGNORED, text=_LOG)
        for name, kind in (
            *(("log-flush-frequency", "span"), ("log-json-info-buffer-size", "text"), ("log-json-split-stream", "flag")),
            *(("log-text-info-buffer-size", "text"), ("log-text-split-stream", "flag"), ("logging-format", "text")),
        )
    ),
    KubeletFlag("exit-on-lock-contention", "flag", standing=IGNORED, text="it has its own lock"),
    KubeletFlag("lock-file", "text", standing=IGNORED, text="it has its own lock"),
)

FLAGS: Final = tuple(sorted((*(KubeletFlag(*line.split()) for line in _FIELDS.strip().splitlines()), *_OWN), key=lambda flag: flag.name))
"""All flags except --help, --version, --v and --vmodule, which every command of ours has."""


OURS: Final = (
    KubeletFlag(
        "certificate-lifetime",
        "span",
        standing=HONOURED,
        text="lifetime of the requested certificates, at least 10m (default: the signer's choice)",
    ),
    KubeletFlag(
        "exit-without-certificate",
        "span",
        standing=HONOURED,
        text="exit if there was no valid client certificate for this time although the API server answers; a kubelet does after 5m (default: never)",
    ),
)
"""Flags of `agent run` that the kubelet does not have."""


def reason_ignored(flag: KubeletFlag) -> str:
    """Return why a flag is ignored, '' if it is not."""
    if flag.field:
        return fields.IGNORED.get(flag.field.partition(".")[0], "")
    return flag.text if flag.standing == IGNORED else ""
