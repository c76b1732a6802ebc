"""What the kubelet refuses in its configuration when it starts (kubelet/apis/config/validation, v1.36).

Left out: rules about the machine's cgroups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubewright.apis.component_rules import (
    Row,
    each_of,
    lasting,
    log_rules,
    normalised,
    one_of,
    previous_minor,
    rows_of,
    unset,
    value_at,
    within,
)
from kubewright.apis.kubelet_values import collector, cpu_set, ids_per_pod, image_patterns, reserved_memory, taints
from kubewright.base.durations import SECOND

_ENFORCED: Final = {
    "system-reserved": "systemReservedCgroup",
    "system-reserved-compressible": "systemReservedCgroup",
    "kube-reserved": "kubeReservedCgroup",
    "kube-reserved-compressible": "kubeReservedCgroup",
}
GATED: Final = (
    ("serverTLSBootstrap", "RotateKubeletServerCertificate"),
    ("cpuCFSQuotaPeriod", "CustomCPUCFSQuotaPeriod"),
    ("shutdownGracePeriod", "GracefulNodeShutdown"),
    ("shutdownGracePeriodCriticalPods", "GracefulNodeShutdown"),
    ("shutdownGracePeriodByPodPriority", "GracefulNodeShutdownBasedOnPodPriority"),
    ("crashLoopBackOff.maxContainerRestartPeriod", "KubeletCrashLoopBackOffMax"),
    ("imagePullCredentialsVerificationPolicy", "KubeletEnsureSecretPulledImages"),
    ("preloadedImagesVerificationAllowlist", "KubeletEnsureSecretPulledImages"),
)
"""Fields that need a feature gate which is on unless the document switches it off."""

ROWS: Final = (
    Row("nodeLeaseDurationSeconds", within(1)),
    *rows_of("maxParallelImagePulls containerLogMaxWorkers", within(1), zero=True),
    *rows_of("eventBurst eventRecordQPS kubeAPIBurst kubeAPIQPS maxOpenFiles maxPods podsPerCore registryBurst registryPullQPS", within(0)),
    *rows_of("healthzPort port readOnlyPort", within(1, 65535)),
    *rows_of("imageGCHighThresholdPercent imageGCLowThresholdPercent", within(0, 100)),
    *rows_of("iptablesDropBit iptablesMasqueradeBit", within(0, 31)),
    *rows_of("imageMinimumGCAge imageMaximumGCAge", lasting(0)),
    *rows_of("shutdownGracePeriod shutdownGracePeriodCriticalPods", lasting(SECOND)),
    Row("nodeStatusMaxImages", within(-1)),
    Row("oomScoreAdj", within(-1000, 1000)),
    Row("cpuCFSQuotaPeriod", lasting(SECOND // 1000, SECOND), zero=True),
    Row("containerLogMonitorInterval", lasting(3 * SECOND), zero=True),
    Row("containerLogMaxFiles", within(2), zero=True),
    Row("runOnce", unset),
    Row("topologyManagerPolicy", one_of("none", "best-effort", "restricted", "single-numa-node")),
    Row("topologyManagerScope", one_of("container", "pod")),
    Row("memorySwap.swapBehavior", one_of("NoSwap", "LimitedSwap")),
    Row("hairpinMode", one_of("none", "hairpin-veth", "promiscuous-bridge")),
    Row(
        "imagePullCredentialsVerificationPolicy",
        one_of("NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"),
    ),
    Row("enforceNodeAllocatable", each_of("pods", "none", *_ENFORCED)),
    Row("memoryReservationPolicy", one_of("None", "TieredReservation")),
    Row("memoryThrottlingFactor", lambda value: "" if 0 < value <= 1 else f"{value} must be greater than 0 and at most 1", zero=True),
    Row("podLogsDir", normalised),
    Row("logging.format", one_of("text", "json")),
    Row("crashLoopBackOff.maxContainerRestartPeriod", lasting(SECOND, 300 * SECOND), zero=True),
    Row("userNamespaces.idsPerPod", ids_per_pod, zero=True),
    Row("reservedSystemCPUs", cpu_set),
    Row("showHiddenMetricsForVersion", previous_minor),
    Row("tracing.samplingRatePerMillion", within(0, 1_000_000)),
    Row("tracing.endpoint", collector),
    Row("preloadedImagesVerificationAllowlist", image_patterns),
)


def _thresholds(kubelet: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    low, high = (kubelet[name] for name in ("imageGCLowThresholdPercent", "imageGCHighThresholdPercent"))
    low, high = 80 if low is None else low, 85 if high is None else high  # the kubelet's own defaults
    if low >= high:
        yield "imageGCLowThresholdPercent", f"{low} must be less than imageGCHighThresholdPercent, {high}"
    youngest, oldest = kubelet["imageMinimumGCAge"], kubelet["imageMaximumGCAge"]
    if 0 < oldest <= youngest:
        yield "imageMaximumGCAge", f"{oldest} must be greater than imageMinimumGCAge, {youngest}"


def _shutdown(kubelet: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    critical, whole = kubelet["shutdownGracePeriodCriticalPods"], kubelet["shutdownGracePeriod"]
    if critical > whole:
        yield "shutdownGracePeriodCriticalPods", f"{critical} must not be longer than shutdownGracePeriod, {whole}"
    if kubelet["shutdownGracePeriodByPodPriority"] and (whole > 0 or critical > 0):
        yield "shutdownGracePeriodByPodPriority", "it cannot be set beside shutdownGracePeriod"


def _cgroups(kubelet: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if kubelet["systemCgroups"] and not kubelet["cgroupRoot"]:
        yield "systemCgroups", "it needs cgroupRoot"
    enforced = kubelet["enforceNodeAllocatable"] or ()
    missing = sorted({(value, _ENFORCED[value]) for value in enforced if value in _ENFORCED and not kubelet[_ENFORCED[value]]})
    yield from (("enforceNodeAllocatable", f"{value} needs {name}") for value, name in missing)
    if "none" in enforced and len(enforced) > 1:
        yield "enforceNodeAllocatable", "none excludes all others"
    for name in ("system-reserved", "kube-reserved"):
        if {name, f"{name}-compressible"} <= set(enforced):
            yield "enforceNodeAllocatable", f"{name} and {name}-compressible exclude each other"
    if kubelet["cgroupsPerQOS"] is False and set(enforced) - {"none"}:
        yield "enforceNodeAllocatable", "it needs cgroupsPerQOS"
    if kubelet["reservedSystemCPUs"] and (kubelet["systemReservedCgroup"] or kubelet["kubeReservedCgroup"]):
        yield "reservedSystemCPUs", "it cannot be set beside systemReservedCgroup or kubeReservedCgroup"


def _together(kubelet: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if kubelet["serializeImagePulls"] is not False and (kubelet["maxParallelImagePulls"] or 0) > 1:
        yield "maxParallelImagePulls", "it needs serializeImagePulls: false"
    if kubelet["enableSystemLogQuery"] and kubelet["enableSystemLogHandler"] is False:
        yield "enableSystemLogQuery", "it needs enableSystemLogHandler"
    if kubelet["preloadedImagesVerificationAllowlist"] and value_at(kubelet, "imagePullCredentialsVerificationPolicy") != (
        "NeverVerifyAllowlistedImages"
    ):
        yield "preloadedImagesVerificationAllowlist", "it needs imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages"
    if kubelet["memoryReservationPolicy"] == "TieredReservation" and not (kubelet["featureGates"] or {}).get("MemoryQoS", False):
        yield "memoryReservationPolicy", "TieredReservation needs the feature gate MemoryQoS"


def _gates(kubelet: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for path, gate in GATED:
        if (kubelet["featureGates"] or {}).get(gate) is False and value_at(kubelet, path):
            yield path, f"it needs the feature gate {gate}, which is switched off"


def _known(kubelet: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if kubelet["featureGates"]:
        from kubewright.apis.component_gates import gate_rules  # a long table, for documents that set gates

        yield from gate_rules(kubelet["featureGates"])


def _logs(kubelet: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from log_rules(kubelet["logging"], kubelet["featureGates"] or {})


SEVERAL: Final = (_thresholds, _shutdown, _cgroups, _together, _gates, _known, _logs, taints, reserved_memory)
