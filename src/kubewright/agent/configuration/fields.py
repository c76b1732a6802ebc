"""The treatment of each field of KubeletConfiguration: honoured, ignored with a reason, or refused with one.

A row covers a field and everything below it, unless another row names something below. A field is ignored if it cannot
matter to a node without pods, and refused if users would rely on an effect that it does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_HONOURED: Final = """
    address authentication authorization containerRuntimeEndpoint enableControllerAttachDetach enableDebuggingHandlers enableServer evictionHard evictionMinimumReclaim evictionPressureTransitionPeriod evictionSoft
    evictionSoftGracePeriod healthzBindAddress healthzPort kubeReserved localStorageCapacityIsolation maxPods mergeDefaultEvictionSettings
    nodeLeaseDurationSeconds nodeStatusMaxImages nodeStatusReportFrequency nodeStatusUpdateFrequency podsPerCore port providerID registerNode
    registerWithTaints reservedSystemCPUs rotateCertificates runtimeRequestTimeout serverTLSBootstrap systemReserved tlsCertFile tlsCipherSuites
    tlsMinVersion tlsPrivateKeyFile
"""
HONOURED: Final = frozenset(_HONOURED.split())

_PODS: Final = "it runs no pods"
_SERVER: Final = "its kubelet API has no logs of the machine, no profiles and no streams"
_CGROUPS: Final = "it makes no cgroups"
_LIMITS: Final = "it sends a handful of requests a minute"
_FEATURES: Final = "no feature of the kubelet is behind a gate here"

IGNORED: Final[Mapping[str, str]] = {
    name: reason
    for reason, names in {
        _PODS: """
            allowedUnsafeSysctls clusterDNS clusterDomain configMapAndSecretChangeDetectionStrategy containerLogMaxFiles containerLogMaxSize
            containerLogMaxWorkers containerLogMonitorInterval cpuCFSQuota cpuCFSQuotaPeriod cpuManagerPolicy cpuManagerPolicyOptions
            cpuManagerReconcilePeriod crashLoopBackOff evictionMaxPodGracePeriod fileCheckFrequency hairpinMode httpCheckFrequency
            imageGCHighThresholdPercent imageGCLowThresholdPercent imageMaximumGCAge imageMinimumGCAge imagePullCredentialsVerificationPolicy
            imageServiceEndpoint iptablesDropBit iptablesMasqueradeBit makeIPTablesUtilChains maxParallelImagePulls memoryManagerPolicy memorySwap
            memoryThrottlingFactor memoryReservationPolicy podCIDR podLogsDir podPidsLimit preloadedImagesVerificationAllowlist qosReserved
            registryBurst registryPullQPS reservedMemory resolvConf seccompDefault serializeImagePulls shutdownGracePeriod
            shutdownGracePeriodByPodPriority shutdownGracePeriodCriticalPods singleProcessOOMKill staticPodPath staticPodURL staticPodURLHeader
            syncFrequency topologyManagerPolicy topologyManagerPolicyOptions topologyManagerScope userNamespaces volumePluginDir
            volumeStatsAggPeriod failSwapOn
        """,
        _SERVER: """
            enableContentionProfiling enableDebugFlagsHandler enableProfilingHandler enableSystemLogHandler enableSystemLogQuery
            showHiddenMetricsForVersion streamingConnectionIdleTimeout
        """,
        "it reveals nothing without authentication": "readOnlyPort",
        _CGROUPS: """
            cgroupDriver cgroupRoot cgroupsPerQOS enforceNodeAllocatable failCgroupV1 kernelMemcgNotification kubeReservedCgroup kubeletCgroups
            systemCgroups systemReservedCgroup
        """,
        _LIMITS: "contentType eventBurst eventRecordQPS kubeAPIBurst kubeAPIQPS",
        _FEATURES: "featureGates",
        "the service manager sets it": "maxOpenFiles oomScoreAdj",
        "it changes no settings of the kernel": "protectKernelDefaults",
        "the log is klog's text on standard error; --v sets how much": "logging",
        "it sends no traces": "tracing",
    }.items()
    for name in names.split()
}

REFUSED: Final[Mapping[str, str]] = {
    "runOnce": "the kubelet refuses it as well: it has been removed",
    "tlsCurvePreferences": "which curves a connection uses is OpenSSL's choice here",
}
"""Fields that must be left empty."""
