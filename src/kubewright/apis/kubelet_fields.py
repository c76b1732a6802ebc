"""The fields of kubelet.config.k8s.io/v1beta1 KubeletConfiguration (k8s.io/kubelet v0.36), as tables by kind of field."""

from __future__ import annotations

from typing import Final

from kubewright.apis.components import LOGGING, fields_of
from kubewright.apis.core import TAINT
from kubewright.apis.scalars import AMOUNT, FLAG, FLOAT64, INT32, INT64, SPAN, TEXT
from kubewright.apis.schema import Field, List, Map, Plain, Pointer

_X509: Final = Plain((Field("clientCAFile", TEXT),))
_WEBHOOK: Final = Plain((Field("enabled", Pointer(FLAG)), Field("cacheTTL", SPAN)))
_ANONYMOUS: Final = Plain((Field("enabled", Pointer(FLAG)),))
_AUTHENTICATION: Final = Plain((Field("x509", _X509), Field("webhook", _WEBHOOK), Field("anonymous", _ANONYMOUS)))
_DECISIONS: Final = Plain(fields_of(SPAN, "cacheAuthorizedTTL cacheUnauthorizedTTL"))
_AUTHORIZATION: Final = Plain((Field("mode", TEXT), Field("webhook", _DECISIONS)))
_GRACE: Final = Plain((Field("priority", INT32, keep=True), Field("shutdownGracePeriodSeconds", INT64, keep=True)))
_RESERVATION: Final = Plain((Field("numaNode", INT32, keep=True), Field("limits", Map(AMOUNT), keep=True)))
_TRACING: Final = Plain((Field("endpoint", Pointer(TEXT)), Field("samplingRatePerMillion", Pointer(INT32))))

_TEXTS: Final = """
    staticPodPath podLogsDir staticPodURL address tlsCertFile tlsPrivateKeyFile tlsMinVersion imagePullCredentialsVerificationPolicy
    healthzBindAddress clusterDomain kubeletCgroups systemCgroups cgroupRoot cgroupDriver cpuManagerPolicy memoryManagerPolicy
    topologyManagerPolicy topologyManagerScope hairpinMode podCIDR contentType containerLogMaxSize
    configMapAndSecretChangeDetectionStrategy reservedSystemCPUs showHiddenMetricsForVersion systemReservedCgroup kubeReservedCgroup
    volumePluginDir providerID memoryReservationPolicy imageServiceEndpoint
"""
_SPANS: Final = """
    syncFrequency fileCheckFrequency httpCheckFrequency streamingConnectionIdleTimeout nodeStatusUpdateFrequency
    nodeStatusReportFrequency imageMinimumGCAge imageMaximumGCAge volumeStatsAggPeriod cpuManagerReconcilePeriod runtimeRequestTimeout
    evictionPressureTransitionPeriod shutdownGracePeriod shutdownGracePeriodCriticalPods
"""
_NUMBERS: Final = """
    port readOnlyPort registryBurst eventBurst nodeLeaseDurationSeconds maxPods kubeAPIBurst evictionMaxPodGracePeriod podsPerCore
"""
_FLAGS: Final = "rotateCertificates serverTLSBootstrap enableContentionProfiling runOnce protectKernelDefaults kernelMemcgNotification"
_OPTIONAL_FLAGS: Final = """
    enableServer enableDebuggingHandlers cgroupsPerQOS singleProcessOOMKill cpuCFSQuota serializeImagePulls
    mergeDefaultEvictionSettings enableControllerAttachDetach makeIPTablesUtilChains failSwapOn enableSystemLogHandler
    enableSystemLogQuery enableProfilingHandler enableDebugFlagsHandler seccompDefault registerNode localStorageCapacityIsolation
    failCgroupV1
"""
_OPTIONAL_NUMBERS: Final = """
    registryPullQPS eventRecordQPS healthzPort oomScoreAdj imageGCHighThresholdPercent imageGCLowThresholdPercent nodeStatusMaxImages
    kubeAPIQPS maxParallelImagePulls iptablesMasqueradeBit iptablesDropBit containerLogMaxFiles containerLogMaxWorkers
"""
_LISTS: Final = "tlsCipherSuites preloadedImagesVerificationAllowlist clusterDNS enforceNodeAllocatable allowedUnsafeSysctls"
_MAPS: Final = """
    cpuManagerPolicyOptions topologyManagerPolicyOptions qosReserved evictionHard evictionSoft evictionSoftGracePeriod
    evictionMinimumReclaim systemReserved kubeReserved
"""

KUBELET: Final = Plain(
    (
        *fields_of(TEXT, _TEXTS),
        *fields_of(SPAN, _SPANS),
        *fields_of(INT32, _NUMBERS),
        *fields_of(FLAG, _FLAGS),
        *fields_of(Pointer(FLAG), _OPTIONAL_FLAGS),
        *fields_of(Pointer(INT32), _OPTIONAL_NUMBERS),
        *fields_of(List(TEXT), _LISTS),
        *fields_of(Map(TEXT), _MAPS),
        *fields_of(Pointer(SPAN), "cpuCFSQuotaPeriod containerLogMonitorInterval"),
        Field("staticPodURLHeader", Map(List(TEXT))),
        Field("tlsCurvePreferences", List(INT32)),
        Field("authentication", _AUTHENTICATION),
        Field("authorization", _AUTHORIZATION),
        Field("podPidsLimit", Pointer(INT64)),
        Field("resolvConf", Pointer(TEXT)),
        Field("maxOpenFiles", INT64),
        Field("featureGates", Map(FLAG)),
        Field("memorySwap", Plain((Field("swapBehavior", TEXT),))),
        Field("logging", LOGGING),
        Field("shutdownGracePeriodByPodPriority", List(_GRACE)),
        Field("crashLoopBackOff", Plain((Field("maxContainerRestartPeriod", Pointer(SPAN)),))),
        Field("reservedMemory", List(_RESERVATION)),
        Field("memoryThrottlingFactor", Pointer(FLOAT64)),
        Field("registerWithTaints", List(TAINT)),
        Field("tracing", Pointer(_TRACING)),
        Field("containerRuntimeEndpoint", TEXT, keep=True),
        Field("userNamespaces", Pointer(Plain((Field("idsPerPod", Pointer(INT64)),)))),
    ),
)
"""All fields but apiVersion and kind."""
