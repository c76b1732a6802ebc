"""What the fields of kubelet and kube-proxy documents are for: default of the component (kubeadm's where it puts one), since when, meaning.

One line is one field: path | default | since | meaning. An empty default is the zero value; an empty `since` is Kubernetes 1.18 or before.
"""

from __future__ import annotations

from typing import Final

KUBELET: Final = """
enableServer | true | | serve the kubelet's own API
staticPodPath | kubeadm: /etc/kubernetes/manifests | | directory of static pod manifests, or one file
podLogsDir | /var/log/pods | 1.29 | directory of the pods' log files
syncFrequency | 1m0s | | longest time between two looks at running pods and their configuration
fileCheckFrequency | 20s | | time between two looks at static pod manifests
httpCheckFrequency | 20s | | time between two looks at staticPodURL
staticPodURL | | | URL of static pod manifests
staticPodURLHeader | | | headers of requests to staticPodURL
address | 0.0.0.0 | | address that the kubelet serves on
port | 10250 | | port that the kubelet serves on
readOnlyPort | kubeadm: 0 | | port that serves without authentication; 0: none
tlsCertFile | | | serving certificate; empty: self-signed, in the certificate directory
tlsPrivateKeyFile | | | key of tlsCertFile
tlsCipherSuites | | | TLS cipher suites that are allowed; empty: Go's
tlsMinVersion | | | oldest TLS version that is allowed, such as VersionTLS12
tlsCurvePreferences | | 1.36 | key exchange mechanisms in order of preference, by their number in Go; empty: Go's
rotateCertificates | kubeadm: true | | renew the client certificate before it ends
serverTLSBootstrap | false | | ask the cluster for a serving certificate; somebody has to approve it
authentication | | | who may call the kubelet's API
authentication.x509 | | | client certificates
authentication.x509.clientCAFile | kubeadm: certificatesDir/ca.crt | | authorities of client certificates
authentication.webhook | | | bearer tokens
authentication.webhook.enabled | true | | ask the API server about bearer tokens
authentication.webhook.cacheTTL | 2m0s | | how long an answer about a token is kept
authentication.anonymous | | | calls without a credential
authentication.anonymous.enabled | false | | let them in, as system:anonymous
authorization | | | what callers of the kubelet's API may do
authorization.mode | Webhook | | Webhook asks the API server; AlwaysAllow lets everybody
authorization.webhook | | | how long answers of the API server are kept
authorization.webhook.cacheAuthorizedTTL | 5m0s | | of those that allow
authorization.webhook.cacheUnauthorizedTTL | 30s | | of those that do not
registryPullQPS | 5 | | image pulls in a second; 0: no limit
registryBurst | 10 | | image pulls at once, above registryPullQPS
imagePullCredentialsVerificationPolicy | NeverVerifyPreloadedImages | 1.33 | which pods have to show credentials for images that are already there
preloadedImagesVerificationAllowlist | | 1.33 | images that need no credentials, with NeverVerifyAllowlistedImages
eventRecordQPS | 50 | | events in a second; 0: no limit
eventBurst | 100 | | events at once, above eventRecordQPS
enableDebuggingHandlers | true | | serve logs, exec, attach and port-forward
enableContentionProfiling | false | | profile locks, with enableDebuggingHandlers
healthzPort | 10248 | | port of the health endpoint; 0: none
healthzBindAddress | 127.0.0.1 | | address of the health endpoint
oomScoreAdj | -999 | | out-of-memory score of the kubelet, -1000 to 1000
clusterDomain | kubeadm: networking.dnsDomain | | DNS domain that pods search
clusterDNS | kubeadm: the tenth service address | | DNS servers of pods
streamingConnectionIdleTimeout | 4h0m0s | | close streams, such as exec, that are idle for so long
nodeStatusUpdateFrequency | 10s | | time between two computations of the Node's status
nodeStatusReportFrequency | 5m0s | | time between two reports of an unchanged status
nodeLeaseDurationSeconds | 40 | | how long the node's lease lasts; it is renewed four times in that time
imageMinimumGCAge | 2m0s | | youngest unused image that is removed
imageMaximumGCAge | 0s | 1.29 | age at which an unused image is removed in any case; 0s: never
imageGCHighThresholdPercent | 85 | | disk usage from which images are removed
imageGCLowThresholdPercent | 80 | | disk usage down to which images are removed
volumeStatsAggPeriod | 1m0s | | time between two measurements of volumes
kubeletCgroups | | | cgroup of the kubelet
systemCgroups | | | cgroup of processes that are in none; needs cgroupRoot
cgroupRoot | | | cgroup of the pods; empty: the runtime's
cgroupsPerQOS | true | | a hierarchy of cgroups by class of service
cgroupDriver | kubeadm: systemd | | who manages cgroups: systemd or cgroupfs, as the runtime does
cpuManagerPolicy | none | | none, or static: whole cores for guaranteed pods
singleProcessOOMKill | false on cgroup v2 | 1.32 | end one process, not its whole container, when memory runs out
cpuManagerPolicyOptions | | 1.22 | options of cpuManagerPolicy
cpuManagerReconcilePeriod | 10s | | time between two corrections of cores
memoryManagerPolicy | None | 1.21 | None, or Static: memory of NUMA nodes for guaranteed pods
topologyManagerPolicy | none | | none, best-effort, restricted or single-numa-node
topologyManagerScope | container | 1.20 | container or pod: what is placed together
topologyManagerPolicyOptions | | 1.26 | options of topologyManagerPolicy
qosReserved | | | share of a resource that lower classes of service leave free, such as memory: 50%
runtimeRequestTimeout | 2m0s | | longest request to the container runtime, but for long-running ones
hairpinMode | promiscuous-bridge | | how a pod reaches itself through a Service: promiscuous-bridge, hairpin-veth, none
maxPods | 110 | | pods that the node takes
podCIDR | | | addresses of pods where no cluster gives them; for single machines
podPidsLimit | -1 | | processes of one pod; -1: no limit
resolvConf | /etc/resolv.conf; kubeadm: systemd-resolved's where it runs | | DNS settings that pods start from
runOnce | false | | gone: run the static pods once and end
cpuCFSQuota | true | | enforce CPU limits
cpuCFSQuotaPeriod | 100ms | | period of CPU limits
nodeStatusMaxImages | 50 | | images in the Node's status; -1: all
maxOpenFiles | 1000000 | | files that the kubelet may open
contentType | application/vnd.kubernetes.protobuf | | form of requests to the API server
kubeAPIQPS | 50 | | requests to the API server in a second
kubeAPIBurst | 100 | | requests at once, above kubeAPIQPS
serializeImagePulls | true | | pull one image after the other
maxParallelImagePulls | no limit | 1.27 | image pulls at once; needs serializeImagePulls: false
evictionHard | memory.available<100Mi, nodefs.available<10%, nodefs.inodesFree<5%, imagefs.available<15% | | at these thresholds pods are evicted at once
evictionSoft | | | at these thresholds pods are evicted after evictionSoftGracePeriod
evictionSoftGracePeriod | | | how long each threshold of evictionSoft may be passed
evictionPressureTransitionPeriod | 5m0s | | how long a pressure condition stays
evictionMaxPodGracePeriod | 0 | | longest grace of a pod that is evicted softly, in seconds
evictionMinimumReclaim | | | how much an eviction frees at least
mergeDefaultEvictionSettings | false | 1.32 | keep the defaults of thresholds that evictionHard does not name
podsPerCore | 0 | | pods for each core; 0: no limit
enableControllerAttachDetach | true | | volumes are attached by the controller manager, not by the kubelet
protectKernelDefaults | false | | end where kernel settings are not as the kubelet wants them, instead of changing them
makeIPTablesUtilChains | true | | make the chains of packet filter rules that others rely on
iptablesMasqueradeBit | 14 | | obsolete
iptablesDropBit | 15 | | obsolete
featureGates | | | feature gates of the kubelet
failSwapOn | true | | do not start where swap is on
memorySwap | | 1.22 | swap for pods
memorySwap.swapBehavior | NoSwap | 1.22 | NoSwap or LimitedSwap
containerLogMaxSize | 10Mi | | size at which a container's log is rotated
containerLogMaxFiles | 5 | | log files of a container
containerLogMaxWorkers | 1 | 1.30 | log rotations at once
containerLogMonitorInterval | 10s | 1.30 | time between two looks at the size of logs
configMapAndSecretChangeDetectionStrategy | Watch | | Watch, Cache or Get: how changes of ConfigMaps and Secrets are noticed
systemReserved | | | resources for the system, which pods cannot get
kubeReserved | | | resources for Kubernetes' own processes
reservedSystemCPUs | | | cores for the system, such as 0-1
showHiddenMetricsForVersion | | | show metrics that were hidden in this version
systemReservedCgroup | | | cgroup that systemReserved is enforced on
kubeReservedCgroup | | | cgroup that kubeReserved is enforced on
enforceNodeAllocatable | pods | | on what limits are enforced: pods, system-reserved, kube-reserved and their -compressible forms; none
allowedUnsafeSysctls | | | kernel settings that pods may change though others feel it; a trailing * stands for any end
volumePluginDir | /usr/libexec/kubernetes/kubelet-plugins/volume/exec/ | | directory of FlexVolume plug-ins
providerID | | | the machine's name at its cloud provider
kernelMemcgNotification | false | | let the kernel tell when memory thresholds are passed
logging | | 1.20 | the kubelet's log
logging.format | text | 1.20 | text or json
logging.flushFrequency | 5s | 1.20 | longest time that lines are kept back
logging.verbosity | 0 | 1.21 | how much is logged
logging.vmodule | | 1.21 | verbosity of single source files
logging.vmodule.filePattern | | 1.21 | name of the file without .go; * and ? stand for others
logging.vmodule.verbosity | | 1.21 | its verbosity
logging.options | | 1.21 | options of the formats
logging.options.text | | 1.27 | of text
logging.options.text.splitStream | false | 1.27 | errors to stderr, the rest to stdout
logging.options.text.infoBufferSize | 0 | 1.27 | lines on stdout are kept back up to this size
logging.options.json | | 1.21 | of json
logging.options.json.splitStream | false | 1.21 | errors to stderr, the rest to stdout
logging.options.json.infoBufferSize | 0 | 1.21 | lines on stdout are kept back up to this size
enableSystemLogHandler | true | 1.20 | serve /var/log at /logs
enableSystemLogQuery | false | 1.27 | let clients ask for logs of services at /logs
shutdownGracePeriod | 0s | 1.20 | how long a machine that shuts down waits for its pods
shutdownGracePeriodCriticalPods | 0s | 1.20 | the part of it that is kept for critical pods
shutdownGracePeriodByPodPriority | | 1.23 | the same by priority of pods
shutdownGracePeriodByPodPriority.priority | | 1.23 | from this priority on
shutdownGracePeriodByPodPriority.shutdownGracePeriodSeconds | | 1.23 | seconds that the machine waits
crashLoopBackOff | | 1.32 | how long a container that fails waits for its restart
crashLoopBackOff.maxContainerRestartPeriod | 5m0s | 1.32 | longest wait, 1s to 300s
reservedMemory | | 1.21 | memory of NUMA nodes that pods cannot get
reservedMemory.numaNode | | 1.21 | number of the NUMA node
reservedMemory.limits | | 1.21 | amounts by kind of memory
enableProfilingHandler | true | 1.20 | serve /debug/pprof
enableDebugFlagsHandler | true | 1.20 | serve /debug/flags/v, which changes the verbosity
seccompDefault | false | 1.22 | RuntimeDefault for pods that name no seccomp profile
memoryThrottlingFactor | 0.9 | 1.22 | share of the memory limit from which a container is slowed down
registerWithTaints | | 1.23 | taints of the Node when it registers; kubeadm writes the flag
registerWithTaints.key | | 1.23 | name of the taint
registerWithTaints.value | | 1.23 | its value
registerWithTaints.effect | | 1.23 | NoSchedule, PreferNoSchedule or NoExecute
registerWithTaints.timeAdded | | 1.23 | must not be set here
registerNode | true | 1.23 | register the Node at the API server
tracing | | 1.25 | spans for OpenTelemetry
tracing.endpoint | localhost:4317 | 1.25 | the collector's host:port
tracing.samplingRatePerMillion | 0 | 1.25 | spans of a million that are sent
localStorageCapacityIsolation | true | 1.25 | watch and limit local storage of pods
containerRuntimeEndpoint | kubeadm: the node's criSocket | 1.27 | socket of the container runtime
imageServiceEndpoint | containerRuntimeEndpoint | 1.27 | socket of the image service
failCgroupV1 | true | 1.31 | do not start on a machine with cgroup v1; false since before 1.35
memoryReservationPolicy | None | 1.36 | None or TieredReservation: memory that the kernel keeps for containers
userNamespaces | | 1.33 | user namespaces of pods
userNamespaces.idsPerPod | 65536 | 1.33 | user ids of one pod, a multiple of 65536
"""

KUBE_PROXY: Final = """
featureGates | | | feature gates of kube-proxy
clientConnection | | | how the API server is called
clientConnection.kubeconfig | kubeadm: /var/lib/kube-proxy/kubeconfig.conf | | kubeconfig; empty: the pod's service account
clientConnection.acceptContentTypes | | | forms of answers that are taken
clientConnection.contentType | application/vnd.kubernetes.protobuf | | form of requests
clientConnection.qps | 5 | | requests in a second
clientConnection.burst | 10 | | requests at once, above qps
logging | | 1.26 | kube-proxy's log
logging.format | text | 1.26 | text or json
logging.flushFrequency | 5s | 1.26 | longest time that lines are kept back
logging.verbosity | 0 | 1.26 | how much is logged
logging.vmodule | | 1.26 | verbosity of single source files
logging.vmodule.filePattern | | 1.26 | name of the file without .go; * and ? stand for others
logging.vmodule.verbosity | | 1.26 | its verbosity
logging.options | | 1.26 | options of the formats
logging.options.text | | 1.27 | of text
logging.options.text.splitStream | false | 1.27 | errors to stderr, the rest to stdout
logging.options.text.infoBufferSize | 0 | 1.27 | lines on stdout are kept back up to this size
logging.options.json | | 1.26 | of json
logging.options.json.splitStream | false | 1.26 | errors to stderr, the rest to stdout
logging.options.json.infoBufferSize | 0 | 1.26 | lines on stdout are kept back up to this size
hostnameOverride | the host's name | | name of the Node
bindAddress | kubeadm: 0.0.0.0, or :: for an IPv6 advertise address | | decides the family of addresses where no Node says it
healthzBindAddress | 0.0.0.0:10256 | | address and port of the health endpoint
metricsBindAddress | 127.0.0.1:10249 | | address and port of the metrics
bindAddressHardFail | false | | end where one of these ports cannot be had
enableProfiling | false | | serve profiles at the metrics' address
showHiddenMetricsForVersion | | | show metrics that were hidden in this version
mode | empty: iptables | | how Services reach their pods: iptables, nftables or ipvs (deprecated)
iptables | | | settings of the mode iptables
iptables.masqueradeBit | 14 | | bit of the packet mark that asks for source NAT
iptables.masqueradeAll | false | | source NAT for all packets to Services
iptables.localhostNodePorts | true | 1.26 | node ports also at 127.0.0.1
iptables.syncPeriod | 30s | | longest time between two full updates of the rules
iptables.minSyncPeriod | 1s | | shortest time between two updates
ipvs | | | settings of the mode ipvs
ipvs.syncPeriod | 30s | | longest time between two full updates
ipvs.minSyncPeriod | 0s | | shortest time between two updates
ipvs.scheduler | rr | | how connections are spread
ipvs.excludeCIDRs | | | ranges of virtual servers that are left alone
ipvs.strictARP | false | | answer ARP for addresses of the interface only
ipvs.tcpTimeout | 0s | | timeout of idle TCP connections; 0s: the kernel's
ipvs.tcpFinTimeout | 0s | | timeout of TCP connections after FIN
ipvs.udpTimeout | 0s | | timeout of UDP packets
nftables | | 1.29 | settings of the mode nftables
nftables.masqueradeBit | 14 | 1.29 | bit of the packet mark that asks for source NAT
nftables.masqueradeAll | false | 1.29 | source NAT for all packets to Services
nftables.syncPeriod | 30s | 1.29 | longest time between two full updates of the rules
nftables.minSyncPeriod | 1s | 1.29 | shortest time between two updates
winkernel | | | settings on Windows
winkernel.networkName | | | name of the network
winkernel.sourceVip | | | source address of a node's traffic to Services
winkernel.enableDSR | true | | direct server return
winkernel.rootHnsEndpointName | cbr0 | 1.23 | name of the endpoint of the root network namespace
winkernel.forwardHealthCheckVip | false | 1.23 | forward traffic of health checks to Service addresses
detectLocalMode | ClusterCIDR | | how traffic of local pods is known: ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix
detectLocal | | 1.23 | names for detectLocalMode
detectLocal.bridgeInterface | | 1.23 | name of the bridge, with BridgeInterface
detectLocal.interfaceNamePrefix | | 1.23 | how interfaces' names begin, with InterfaceNamePrefix
clusterCIDR | kubeadm: networking.podSubnet | | range of the pods' addresses
nodePortAddresses | all addresses | | ranges that node ports are served at, or primary: the Node's own addresses
oomScoreAdj | -999 | | out-of-memory score, -1000 to 1000
conntrack | | | the kernel's table of connections
conntrack.maxPerCore | 32768 | | entries for each core; 0: as it is
conntrack.min | 131072 | | entries at least
conntrack.tcpEstablishedTimeout | 24h0m0s | | how long idle TCP connections are kept; 0s: as it is
conntrack.tcpCloseWaitTimeout | 1h0m0s | | how long connections in CLOSE_WAIT are kept
conntrack.tcpBeLiberal | false | 1.29 | let packets through that are outside of the TCP window
conntrack.udpTimeout | 0s | 1.29 | how long UDP entries without answer are kept; 0s: as it is
conntrack.udpStreamTimeout | 0s | 1.29 | how long UDP entries with answers are kept; 0s: as it is
configSyncPeriod | 15m0s | | time between two full reads from the API server
portRange | | | without effect: it was for the mode userspace, which is gone since 1.26
windowsRunAsService | false | 1.32 | run as a service of Windows
"""


def rows(table: str) -> dict[str, tuple[str, str, str]]:
    """Return default, since and meaning by path."""
    parts = ([part.strip() for part in line.split("|", 3)] for line in table.strip().splitlines())
    return {path: (default, since, meaning) for path, default, since, meaning in parts}
