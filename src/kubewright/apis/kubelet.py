"""KubeletConfiguration: its fields, decoding a user's document, kubeadm's defaults, encoding it as Go would (kubeadm v1.36: componentconfigs).

The fields are those of k8s.io/kubelet v0.36, kubelet.config.k8s.io/v1beta1. Defaults are the component's, or kubeadm's
if it sets one.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.apis.components import Default, fill, warn
from kubewright.apis.embedded import LOGGING, TAINT
from kubewright.apis.findings import Place
from kubewright.apis.formats import DNS_INDEX, service_address
from kubewright.apis.kubeadm.types import ClusterConfiguration, ComponentConfig
from kubewright.apis.schema import table

API_VERSION: Final = "kubelet.config.k8s.io/v1beta1"
KIND: Final = "KubeletConfiguration"
MANIFESTS: Final = PurePosixPath("/etc/kubernetes/manifests")
RESOLVED: Final = "/run/systemd/resolve/resolv.conf"
_FALLBACK_DNS: Final = "10.96.0.10"

KUBELET: Final = table(
    """
staticPodPath | text | kubeadm: /etc/kubernetes/manifests | | directory of static pod manifests, or one file
podLogsDir | text | /var/log/pods | 1.29 | directory of the pods' log files
staticPodURL | text | | | URL of static pod manifests
address | text | 0.0.0.0 | | address that the kubelet serves on
tlsCertFile | text | | | serving certificate; empty: self-signed, in the certificate directory
tlsPrivateKeyFile | text | | | key of tlsCertFile
tlsMinVersion | text | | | lowest TLS version that is accepted, such as VersionTLS12
imagePullCredentialsVerificationPolicy | text | NeverVerifyPreloadedImages | 1.33 | which pods need credentials for images that are already on the machine
healthzBindAddress | text | 127.0.0.1 | | address of the health endpoint
clusterDomain | text | kubeadm: networking.dnsDomain | | DNS domain that pods search
kubeletCgroups | text | | | cgroup of the kubelet
systemCgroups | text | | | cgroup for processes that are in no other one; needs cgroupRoot
cgroupRoot | text | | | cgroup of the pods; empty: the runtime's
cgroupDriver | text | kubeadm: systemd | | who manages cgroups: systemd or cgroupfs, as the runtime does
cpuManagerPolicy | text | none | | none, or static: whole cores for guaranteed pods
memoryManagerPolicy | text | None | 1.21 | None, or Static: memory of NUMA nodes for guaranteed pods
topologyManagerPolicy | text | none | | none, best-effort, restricted or single-numa-node
topologyManagerScope | text | container | 1.20 | container or pod: the unit that is aligned to NUMA nodes
hairpinMode | text | promiscuous-bridge | | how a pod reaches itself through a Service: promiscuous-bridge, hairpin-veth, none
podCIDR | text | | | range of pod addresses if no cluster assigns one; for standalone kubelets
contentType | text | application/vnd.kubernetes.protobuf | | content type of requests to the API server
containerLogMaxSize | text | 10Mi | | size at which a container's log is rotated
configMapAndSecretChangeDetectionStrategy | text | Watch | | Watch, Cache or Get: how changes of ConfigMaps and Secrets are noticed
reservedSystemCPUs | text | | | cores for the system, such as 0-1
showHiddenMetricsForVersion | text | | | show metrics that were hidden in this release
systemReservedCgroup | text | | | cgroup in which systemReserved is enforced
kubeReservedCgroup | text | | | cgroup in which kubeReserved is enforced
volumePluginDir | text | /usr/libexec/kubernetes/kubelet-plugins/volume/exec/ | | directory of FlexVolume plug-ins
providerID | text | | | the cloud provider's identifier of the machine
memoryReservationPolicy | text | None | 1.36 | None or TieredReservation: memory that the kernel keeps for containers
imageServiceEndpoint | text | containerRuntimeEndpoint | 1.27 | socket of the image service
syncFrequency | span | 1m0s | | longest interval between synchronizations of running pods with their configuration
fileCheckFrequency | span | 20s | | interval between checks of static pod manifests
httpCheckFrequency | span | 20s | | interval between checks of staticPodURL
streamingConnectionIdleTimeout | span | 4h0m0s | | time after which idle streams, such as exec, are closed
nodeStatusUpdateFrequency | span | 10s | | interval between computations of the Node's status
nodeStatusReportFrequency | span | 5m0s | | interval between reports of an unchanged status
imageMinimumGCAge | span | 2m0s | | minimum age of an unused image before it is removed
imageMaximumGCAge | span | 0s | 1.29 | age at which an unused image is removed in any case; 0s: never
volumeStatsAggPeriod | span | 1m0s | | interval between measurements of volumes
cpuManagerReconcilePeriod | span | 10s | | interval between corrections of assigned cores
runtimeRequestTimeout | span | 2m0s | | timeout of requests to the container runtime, except long-running ones
evictionPressureTransitionPeriod | span | 5m0s | | how long a pressure condition is kept after the pressure has ended
shutdownGracePeriod | span | 0s | 1.20 | how long a shutdown of the machine waits for its pods
shutdownGracePeriodCriticalPods | span | 0s | 1.20 | the part of shutdownGracePeriod that is reserved for critical pods
port | int32 | 10250 | | port that the kubelet serves on
readOnlyPort | int32 | kubeadm: 0 | | port that serves without authentication; 0: none
registryBurst | int32 | 10 | | bursts of image pulls above registryPullQPS
eventBurst | int32 | 100 | | bursts of events above eventRecordQPS
nodeLeaseDurationSeconds | int32 | 40 | | duration of the node's lease, in seconds; it is renewed four times in that time
maxPods | int32 | 110 | | maximum number of pods on the node
kubeAPIBurst | int32 | 100 | | bursts of requests above kubeAPIQPS
evictionMaxPodGracePeriod | int32 | 0 | | longest grace period of a pod at a soft eviction, in seconds
podsPerCore | int32 | 0 | | pods for each core; 0: no limit
rotateCertificates | flag | kubeadm: true | | renew the client certificate before it expires
serverTLSBootstrap | flag | false | | request a serving certificate from the cluster; the request has to be approved
enableContentionProfiling | flag | false | | profile lock contention; needs enableDebuggingHandlers
runOnce | flag | false | | removed: run the static pods once and exit
protectKernelDefaults | flag | false | | exit if kernel settings differ from those that the kubelet needs, instead of changing them
kernelMemcgNotification | flag | false | | let the kernel notify the kubelet when memory thresholds are crossed
enableServer | ?flag | true | | serve the kubelet's own API
enableDebuggingHandlers | ?flag | true | | serve logs, exec, attach and port-forward
cgroupsPerQOS | ?flag | true | | a hierarchy of cgroups by QoS class
singleProcessOOMKill | ?flag | false on cgroup v2 | 1.32 | kill one process, not its whole container, when it runs out of memory
cpuCFSQuota | ?flag | true | | enforce CPU limits
serializeImagePulls | ?flag | true | | pull one image at a time
mergeDefaultEvictionSettings | ?flag | false | 1.32 | keep the defaults of thresholds that evictionHard does not name
enableControllerAttachDetach | ?flag | true | | volumes are attached by the controller manager, not by the kubelet
makeIPTablesUtilChains | ?flag | true | | create the iptables chains that other components rely on
failSwapOn | ?flag | true | | do not start if swap is enabled
enableSystemLogHandler | ?flag | true | 1.20 | serve /var/log at /logs
enableSystemLogQuery | ?flag | false | 1.27 | let clients query logs of services at /logs
enableProfilingHandler | ?flag | true | 1.20 | serve /debug/pprof
enableDebugFlagsHandler | ?flag | true | 1.20 | serve /debug/flags/v, which changes the verbosity
seccompDefault | ?flag | false | 1.22 | use RuntimeDefault for pods without a seccomp profile
registerNode | ?flag | true | 1.23 | register the Node with the API server
localStorageCapacityIsolation | ?flag | true | 1.25 | measure and limit the local storage of pods
failCgroupV1 | ?flag | true | 1.31 | do not start on a machine with cgroup v1; false since before 1.35
registryPullQPS | ?int32 | 5 | | image pulls per second; 0: no limit
eventRecordQPS | ?int32 | 50 | | events per second; 0: no limit
healthzPort | ?int32 | 10248 | | port of the health endpoint; 0: none
oomScoreAdj | ?int32 | -999 | | out-of-memory score of the kubelet, -1000 to 1000
imageGCHighThresholdPercent | ?int32 | 85 | | disk usage from which images are removed
imageGCLowThresholdPercent | ?int32 | 80 | | disk usage down to which images are removed
nodeStatusMaxImages | ?int32 | 50 | | images in the Node's status; -1: all
kubeAPIQPS | ?int32 | 50 | | requests to the API server per second
maxParallelImagePulls | ?int32 | no limit | 1.27 | concurrent image pulls; needs serializeImagePulls: false
iptablesMasqueradeBit | ?int32 | 14 | | obsolete
iptablesDropBit | ?int32 | 15 | | obsolete
containerLogMaxFiles | ?int32 | 5 | | log files per container
containerLogMaxWorkers | ?int32 | 1 | 1.30 | concurrent log rotations
tlsCipherSuites | []text | | | TLS cipher suites that are allowed; empty: Go's defaults
preloadedImagesVerificationAllowlist | []text | | 1.33 | images that need no credentials, with NeverVerifyAllowlistedImages
clusterDNS | []text | kubeadm: the tenth service address | | DNS servers of pods
enforceNodeAllocatable | []text | pods | | groups whose limits are enforced: pods, system-reserved, kube-reserved and their -compressible forms; none
allowedUnsafeSysctls | []text | | | kernel settings that pods may change although they affect other pods; a trailing * matches any suffix
cpuManagerPolicyOptions | {}text | | 1.22 | options of cpuManagerPolicy
topologyManagerPolicyOptions | {}text | | 1.26 | options of topologyManagerPolicy
qosReserved | {}text | | | share of a resource that lower QoS classes leave free, such as memory: 50%
evictionHard | {}text | memory.available<100Mi, nodefs.available<10%, nodefs.inodesFree<5%, imagefs.available<15% | | thresholds at which pods are evicted at once
evictionSoft | {}text | | | thresholds at which pods are evicted after evictionSoftGracePeriod
evictionSoftGracePeriod | {}text | | | how long each threshold of evictionSoft may be exceeded
evictionMinimumReclaim | {}text | | | minimum amount that an eviction frees
systemReserved | {}text | | | resources that are reserved for the system
kubeReserved | {}text | | | resources that are reserved for Kubernetes' own processes
cpuCFSQuotaPeriod | ?span | 100ms | | period of CPU limits
containerLogMonitorInterval | ?span | 10s | 1.30 | interval between checks of the size of logs
staticPodURLHeader | {}[]text | | | headers of requests to staticPodURL
tlsCurvePreferences | []int32 | | 1.36 | key exchange mechanisms in order of preference, as Go's numbers; empty: Go's defaults
authentication | struct | | | who may use the kubelet's API
authentication.x509 | struct | | | client certificates
authentication.x509.clientCAFile | text | kubeadm: certificatesDir/ca.crt | | CAs of client certificates
authentication.webhook | struct | | | bearer tokens
authentication.webhook.enabled | ?flag | true | | let the API server verify bearer tokens
authentication.webhook.cacheTTL | span | 2m0s | | how long the result for a token is cached
authentication.anonymous | struct | | | requests without a credential
authentication.anonymous.enabled | ?flag | false | | accept them, as system:anonymous
authorization | struct | | | what clients of the kubelet's API may do
authorization.mode | text | Webhook | | Webhook: the API server decides; AlwaysAllow: everything is permitted
authorization.webhook | struct | | | how long decisions of the API server are cached
authorization.webhook.cacheAuthorizedTTL | span | 5m0s | | if the request is permitted
authorization.webhook.cacheUnauthorizedTTL | span | 30s | | if the request is denied
podPidsLimit | ?int64 | -1 | | process ids per pod; -1: no limit
resolvConf | ?text | /etc/resolv.conf; kubeadm: systemd-resolved's if it runs | | file with the DNS settings that pods inherit
maxOpenFiles | int64 | 1000000 | | number of files that the kubelet may open
featureGates | {}flag | | | feature gates of the kubelet
memorySwap | struct | | 1.22 | use of swap by pods
memorySwap.swapBehavior | text | NoSwap | | NoSwap or LimitedSwap
logging | logging | | 1.20 | the kubelet's log
shutdownGracePeriodByPodPriority | []struct | | 1.23 | shutdown grace periods by priority of pods
shutdownGracePeriodByPodPriority.priority | int32! | | | lowest priority of these pods
shutdownGracePeriodByPodPriority.shutdownGracePeriodSeconds | int64! | | | seconds that the shutdown waits for them
crashLoopBackOff | struct | | 1.32 | back-off before a failing container is restarted
crashLoopBackOff.maxContainerRestartPeriod | ?span | 5m0s | | longest back-off, 1s to 300s
reservedMemory | []struct | | 1.21 | memory of NUMA nodes that is not available to pods
reservedMemory.numaNode | int32! | | | number of the NUMA node
reservedMemory.limits | {}amount! | | | amounts by memory type
memoryThrottlingFactor | ?float64 | 0.9 | 1.22 | share of the memory limit at which a container is throttled
registerWithTaints | []taint | | 1.23 | taints of the Node at its registration; kubeadm sets the flag instead
tracing | ?struct | | 1.25 | OpenTelemetry traces
tracing.endpoint | ?text | localhost:4317 | | the collector's host:port
tracing.samplingRatePerMillion | ?int32 | 0 | | spans out of a million that are sent
containerRuntimeEndpoint | text! | kubeadm: the node's criSocket | 1.27 | socket of the container runtime
userNamespaces | ?struct | | 1.33 | user namespaces of pods
userNamespaces.idsPerPod | ?int64 | 65536 | | user ids per pod, a multiple of 65536
""",
    logging=LOGGING,
    taint=TAINT,
)
"""All fields except apiVersion and kind."""


def decode(value: object, at: Place) -> dict[str, Any]:
    """Decode a document without its apiVersion and kind into a map with all fields.

    Errors are recorded at their place; a value that the component would refuse when it starts is a warning, because
    kubeadm accepts it.
    """
    from kubewright.apis import kubelet_rules  # needed only for files with this kind

    found = dict(KUBELET.decode(value, at))
    warn(KIND, found, at, rows=kubelet_rules.ROWS, several=kubelet_rules.SEVERAL)
    return found


def defaulted(
    user: Mapping[str, Any] | None,
    cluster: ClusterConfiguration,
    *,
    manifests: PurePosixPath = MANIFESTS,
    health_address: str = "127.0.0.1",
    health_port: int = 10248,
) -> tuple[ComponentConfig, list[str]]:
    """Return the kubelet configuration of a cluster, and warnings about values that kubeadm advises against.

    `user` is the result of `decode`, or None. Directory and address are a machine's, by default kubeadm's.
    """
    defaults = (
        Default("staticPodPath", str(manifests)),
        Default("clusterDNS", (cluster_dns(cluster),)),
        Default("clusterDomain", cluster.networking.dns_domain),
        Default("authentication.x509.clientCAFile", posixpath.normpath(f"{cluster.certificates_dir}/ca.crt")),
        Default("authentication.anonymous.enabled", False),
        Default("authentication.webhook.enabled", True),
        Default("authorization.mode", "Webhook"),
        Default("healthzBindAddress", health_address),
        Default("healthzPort", health_port),
        Default("readOnlyPort", 0, fill=False),
        Default("cgroupDriver", "systemd", warn=False),
    )
    config, warnings = fill(KUBELET.zero() if user is None else user, defaults, kind=KIND)
    config["rotateCertificates"] = True
    return ComponentConfig(document=document(config), user_supplied=user is not None), warnings


def cluster_dns(cluster: ClusterConfiguration) -> str:
    """Return the DNS service's address: the tenth of the first service subnet."""
    try:
        return str(service_address(cluster.networking.service_subnet, DNS_INDEX))
    except ValueError:
        return _FALLBACK_DNS


def document(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a decoded configuration, as Go's encoder writes it: including zero values that Go keeps."""
    return {"apiVersion": API_VERSION, "kind": KIND, **KUBELET.encode(config)}


def for_machine(document: Mapping[str, Any], *, systemd_resolved: bool) -> dict[str, Any]:
    """Return the document for one machine: resolvConf follows systemd-resolved unless it is set. Never uploaded."""
    resolver = {} if "resolvConf" in document or not systemd_resolved else {"resolvConf": RESOLVED}
    return {**document, **resolver}
