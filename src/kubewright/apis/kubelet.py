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
tlsMinVersion | text | | | oldest TLS version that is allowed, such as VersionTLS12
imagePullCredentialsVerificationPolicy | text | NeverVerifyPreloadedImages | 1.33 | which pods have to show credentials for images that are already there
healthzBindAddress | text | 127.0.0.1 | | address of the health endpoint
clusterDomain | text | kubeadm: networking.dnsDomain | | DNS domain that pods search
kubeletCgroups | text | | | cgroup of the kubelet
systemCgroups | text | | | cgroup of processes that are in none; needs cgroupRoot
cgroupRoot | text | | | cgroup of the pods; empty: the runtime's
cgroupDriver | text | kubeadm: systemd | | who manages cgroups: systemd or cgroupfs, as the runtime does
cpuManagerPolicy | text | none | | none, or static: whole cores for guaranteed pods
memoryManagerPolicy | text | None | 1.21 | None, or Static: memory of NUMA nodes for guaranteed pods
topologyManagerPolicy | text | none | | none, best-effort, restricted or single-numa-node
topologyManagerScope | text | container | 1.20 | container or pod: what is placed together
hairpinMode | text | promiscuous-bridge | | how a pod reaches itself through a Service: promiscuous-bridge, hairpin-veth, none
podCIDR | text | | | addresses of pods where no cluster gives them; for single machines
contentType | text | application/vnd.kubernetes.protobuf | | form of requests to the API server
containerLogMaxSize | text | 10Mi | | size at which a container's log is rotated
configMapAndSecretChangeDetectionStrategy | text | Watch | | Watch, Cache or Get: how changes of ConfigMaps and Secrets are noticed
reservedSystemCPUs | text | | | cores for the system, such as 0-1
showHiddenMetricsForVersion | text | | | show metrics that were hidden in this version
systemReservedCgroup | text | | | cgroup that systemReserved is enforced on
kubeReservedCgroup | text | | | cgroup that kubeReserved is enforced on
volumePluginDir | text | /usr/libexec/kubernetes/kubelet-plugins/volume/exec/ | | directory of FlexVolume plug-ins
providerID | text | | | the machine's name at its cloud provider
memoryReservationPolicy | text | None | 1.36 | None or TieredReservation: memory that the kernel keeps for containers
imageServiceEndpoint | text | containerRuntimeEndpoint | 1.27 | socket of the image service
syncFrequency | span | 1m0s | | longest time between two looks at running pods and their configuration
fileCheckFrequency | span | 20s | | time between two looks at static pod manifests
httpCheckFrequency | span | 20s | | time between two looks at staticPodURL
streamingConnectionIdleTimeout | span | 4h0m0s | | close streams, such as exec, that are idle for so long
nodeStatusUpdateFrequency | span | 10s | | time between two computations of the Node's status
nodeStatusReportFrequency | span | 5m0s | | time between two reports of an unchanged status
imageMinimumGCAge | span | 2m0s | | youngest unused image that is removed
imageMaximumGCAge | span | 0s | 1.29 | age at which an unused image is removed in any case; 0s: never
volumeStatsAggPeriod | span | 1m0s | | time between two measurements of volumes
cpuManagerReconcilePeriod | span | 10s | | time between two corrections of cores
runtimeRequestTimeout | span | 2m0s | | longest request to the container runtime, but for long-running ones
evictionPressureTransitionPeriod | span | 5m0s | | how long a pressure condition stays
shutdownGracePeriod | span | 0s | 1.20 | how long a machine that shuts down waits for its pods
shutdownGracePeriodCriticalPods | span | 0s | 1.20 | the part of it that is kept for critical pods
port | int32 | 10250 | | port that the kubelet serves on
readOnlyPort | int32 | kubeadm: 0 | | port that serves without authentication; 0: none
registryBurst | int32 | 10 | | image pulls at once, above registryPullQPS
eventBurst | int32 | 100 | | events at once, above eventRecordQPS
nodeLeaseDurationSeconds | int32 | 40 | | how long the node's lease lasts; it is renewed four times in that time
maxPods | int32 | 110 | | pods that the node takes
kubeAPIBurst | int32 | 100 | | requests at once, above kubeAPIQPS
evictionMaxPodGracePeriod | int32 | 0 | | longest grace of a pod that is evicted softly, in seconds
podsPerCore | int32 | 0 | | pods for each core; 0: no limit
rotateCertificates | flag | kubeadm: true | | renew the client certificate before it expires
serverTLSBootstrap | flag | false | | ask the cluster for a serving certificate; somebody has to approve it
enableContentionProfiling | flag | false | | profile locks, with enableDebuggingHandlers
runOnce | flag | false | | gone: run the static pods once and end
protectKernelDefaults | flag | false | | end where kernel settings are not as the kubelet wants them, instead of changing them
kernelMemcgNotification | flag | false | | let the kernel tell when memory thresholds are passed
enableServer | ?flag | true | | serve the kubelet's own API
enableDebuggingHandlers | ?flag | true | | serve logs, exec, attach and port-forward
cgroupsPerQOS | ?flag | true | | a hierarchy of cgroups by class of service
singleProcessOOMKill | ?flag | false on cgroup v2 | 1.32 | end one process, not its whole container, when memory runs out
cpuCFSQuota | ?flag | true | | enforce CPU limits
serializeImagePulls | ?flag | true | | pull one image after the other
mergeDefaultEvictionSettings | ?flag | false | 1.32 | keep the defaults of thresholds that evictionHard does not name
enableControllerAttachDetach | ?flag | true | | volumes are attached by the controller manager, not by the kubelet
makeIPTablesUtilChains | ?flag | true | | make the chains of packet filter rules that others rely on
failSwapOn | ?flag | true | | do not start where swap is on
enableSystemLogHandler | ?flag | true | 1.20 | serve /var/log at /logs
enableSystemLogQuery | ?flag | false | 1.27 | let clients ask for logs of services at /logs
enableProfilingHandler | ?flag | true | 1.20 | serve /debug/pprof
enableDebugFlagsHandler | ?flag | true | 1.20 | serve /debug/flags/v, which changes the verbosity
seccompDefault | ?flag | false | 1.22 | RuntimeDefault for pods that name no seccomp profile
registerNode | ?flag | true | 1.23 | register the Node at the API server
localStorageCapacityIsolation | ?flag | true | 1.25 | watch and limit local storage of pods
failCgroupV1 | ?flag | true | 1.31 | do not start on a machine with cgroup v1; false since before 1.35
registryPullQPS | ?int32 | 5 | | image pulls in a second; 0: no limit
eventRecordQPS | ?int32 | 50 | | events in a second; 0: no limit
healthzPort | ?int32 | 10248 | | port of the health endpoint; 0: none
oomScoreAdj | ?int32 | -999 | | out-of-memory score of the kubelet, -1000 to 1000
imageGCHighThresholdPercent | ?int32 | 85 | | disk usage from which images are removed
imageGCLowThresholdPercent | ?int32 | 80 | | disk usage down to which images are removed
nodeStatusMaxImages | ?int32 | 50 | | images in the Node's status; -1: all
kubeAPIQPS | ?int32 | 50 | | requests to the API server in a second
maxParallelImagePulls | ?int32 | no limit | 1.27 | image pulls at once; needs serializeImagePulls: false
iptablesMasqueradeBit | ?int32 | 14 | | obsolete
iptablesDropBit | ?int32 | 15 | | obsolete
containerLogMaxFiles | ?int32 | 5 | | log files of a container
containerLogMaxWorkers | ?int32 | 1 | 1.30 | log rotations at once
tlsCipherSuites | []text | | | TLS cipher suites that are allowed; empty: Go's
preloadedImagesVerificationAllowlist | []text | | 1.33 | images that need no credentials, with NeverVerifyAllowlistedImages
clusterDNS | []text | kubeadm: the tenth service address | | DNS servers of pods
enforceNodeAllocatable | []text | pods | | on what limits are enforced: pods, system-reserved, kube-reserved and their -compressible forms; none
allowedUnsafeSysctls | []text | | | kernel settings that pods may change though others feel it; a trailing * stands for any end
cpuManagerPolicyOptions | {}text | | 1.22 | options of cpuManagerPolicy
topologyManagerPolicyOptions | {}text | | 1.26 | options of topologyManagerPolicy
qosReserved | {}text | | | share of a resource that lower classes of service leave free, such as memory: 50%
evictionHard | {}text | memory.available<100Mi, nodefs.available<10%, nodefs.inodesFree<5%, imagefs.available<15% | | at these thresholds pods are evicted at once
evictionSoft | {}text | | | at these thresholds pods are evicted after evictionSoftGracePeriod
evictionSoftGracePeriod | {}text | | | how long each threshold of evictionSoft may be passed
evictionMinimumReclaim | {}text | | | how much an eviction frees at least
systemReserved | {}text | | | resources for the system, which pods cannot get
kubeReserved | {}text | | | resources for Kubernetes' own processes
cpuCFSQuotaPeriod | ?span | 100ms | | period of CPU limits
containerLogMonitorInterval | ?span | 10s | 1.30 | time between two looks at the size of logs
staticPodURLHeader | {}[]text | | | headers of requests to staticPodURL
tlsCurvePreferences | []int32 | | 1.36 | key exchange mechanisms in order of preference, by their number in Go; empty: Go's
authentication | struct | | | who may call the kubelet's API
authentication.x509 | struct | | | client certificates
authentication.x509.clientCAFile | text | kubeadm: certificatesDir/ca.crt | | authorities of client certificates
authentication.webhook | struct | | | bearer tokens
authentication.webhook.enabled | ?flag | true | | ask the API server about bearer tokens
authentication.webhook.cacheTTL | span | 2m0s | | how long an answer about a token is kept
authentication.anonymous | struct | | | calls without a credential
authentication.anonymous.enabled | ?flag | false | | let them in, as system:anonymous
authorization | struct | | | what callers of the kubelet's API may do
authorization.mode | text | Webhook | | Webhook asks the API server; AlwaysAllow lets everybody
authorization.webhook | struct | | | how long answers of the API server are kept
authorization.webhook.cacheAuthorizedTTL | span | 5m0s | | of those that allow
authorization.webhook.cacheUnauthorizedTTL | span | 30s | | of those that do not
podPidsLimit | ?int64 | -1 | | processes of one pod; -1: no limit
resolvConf | ?text | /etc/resolv.conf; kubeadm: systemd-resolved's where it runs | | DNS settings that pods start from
maxOpenFiles | int64 | 1000000 | | files that the kubelet may open
featureGates | {}flag | | | feature gates of the kubelet
memorySwap | struct | | 1.22 | swap for pods
memorySwap.swapBehavior | text | NoSwap | | NoSwap or LimitedSwap
logging | logging | | 1.20 | the kubelet's log
shutdownGracePeriodByPodPriority | []struct | | 1.23 | the same by priority of pods
shutdownGracePeriodByPodPriority.priority | int32! | | | from this priority on
shutdownGracePeriodByPodPriority.shutdownGracePeriodSeconds | int64! | | | seconds that the machine waits
crashLoopBackOff | struct | | 1.32 | how long a container that fails waits for its restart
crashLoopBackOff.maxContainerRestartPeriod | ?span | 5m0s | | longest wait, 1s to 300s
reservedMemory | []struct | | 1.21 | memory of NUMA nodes that pods cannot get
reservedMemory.numaNode | int32! | | | number of the NUMA node
reservedMemory.limits | {}amount! | | | amounts by kind of memory
memoryThrottlingFactor | ?float64 | 0.9 | 1.22 | share of the memory limit from which a container is slowed down
registerWithTaints | []taint | | 1.23 | taints of the Node when it registers; kubeadm writes the flag
tracing | ?struct | | 1.25 | spans for OpenTelemetry
tracing.endpoint | ?text | localhost:4317 | | the collector's host:port
tracing.samplingRatePerMillion | ?int32 | 0 | | spans of a million that are sent
containerRuntimeEndpoint | text! | kubeadm: the node's criSocket | 1.27 | socket of the container runtime
userNamespaces | ?struct | | 1.33 | user namespaces of pods
userNamespaces.idsPerPod | ?int64 | 65536 | | user ids of one pod, a multiple of 65536
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
