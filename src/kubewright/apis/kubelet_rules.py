"""The rules by which the kubelet refuses its configuration when it starts (kubelet/apis/config/validation, v1.36).

Rules about the machine's cgroups are not included.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kubewright.apis import formats
from kubewright.apis.components import (
    ValueRule,
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
from kubewright.apis.feature_gates import gate_rules
from kubewright.base.durations import SECOND
from kubewright.base.messages import quoted
from kubewright.base.patterns import Pattern

_IDS: Final = 65536
_MAX_UINT32: Final = (1 << 32) - 1
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NAME: Final = Pattern(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)", re.ASCII)
_PREFIX: Final = Pattern(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_CORES: Final = Pattern(r"([0-9]+)(?:-([0-9]+))?", re.ASCII)
_COLLECTORS: Final = ("dns", "unix", "unix-abstract")

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


def ids_per_pod(value: int) -> str:
    """Require a number of user ids that one pod can have."""
    fits = _IDS <= value <= _MAX_UINT32 and value % _IDS == 0
    return "" if fits else f"{value} must be a multiple of {_IDS}, and at most {_MAX_UINT32}"


def cpu_set(value: str) -> str:
    """Require a list of cores such as `0-1,4`."""
    for part in value.split(","):
        found = _CORES.fullmatch(part)
        if found is None or (found[2] is not None and _size(found[2]) < _size(found[1])):
            return f"{quoted(value)} must be a list of cores such as 0-1,4"
    return ""


def _size(digits: str) -> tuple[int, str]:
    """Return a sort key for numbers of any length, which int() does not parse."""
    return len(digits.lstrip("0")), digits.lstrip("0")


def collector(value: str) -> str:
    """Require the address of a collector as gRPC names it."""
    try:
        scheme = formats.url_scheme(value if "//" in value else f"dns://{value}")
    except ValueError as error:
        return f"{quoted(value)} is no address: {error}"
    return "" if scheme in _COLLECTORS else f"{quoted(value)} must be host:port, or a URL with the scheme {', '.join(_COLLECTORS)}"


def image_patterns(values: Sequence[str]) -> str:
    """Require names of images, of which the last part may be `*`."""
    for value in values:
        stem = value.removesuffix("*") if value.endswith("/*") else value
        fits = stem not in ("", "/") and "*" not in stem and value == value.strip()
        if not fits or (stem == value and not formats.is_image_repository(value)):
            return f"{quoted(value)} must be the name of an image, without tag and digest; only its end may be /*"
    return ""


def taints(kubelet: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Require valid taints of a Node."""
    for index, taint in enumerate(kubelet["registerWithTaints"] or ()):
        path = f"registerWithTaints[{index}]"
        prefix, slash, name = taint["key"].rpartition("/")
        if not _is_name(name) or (slash and (_PREFIX.fullmatch(prefix) is None or len(prefix) > 253)):
            yield f"{path}.key", f"{quoted(taint['key'])} must be a label's key, such as example.com/name"
        if taint["value"] and not _is_name(taint["value"]):
            yield f"{path}.value", f"{quoted(taint['value'])} must be a label's value"
        if taint["effect"] and taint["effect"] not in _EFFECTS:
            yield f"{path}.effect", f"{quoted(taint['effect'])} must be one of {', '.join(_EFFECTS)}"
        if taint["timeAdded"]:
            yield f"{path}.timeAdded", "it must not be set"


def _is_name(text: str) -> bool:
    return len(text) <= 63 and _NAME.fullmatch(text) is not None


def reserved_memory(kubelet: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Require kinds of memory, each once per NUMA node and not zero."""
    seen: set[tuple[int, str]] = set()
    for index, one in enumerate(kubelet["reservedMemory"] or ()):
        for name, amount in (one["limits"] or {}).items():
            path = f"reservedMemory[{index}].limits[{name}]"
            if name != "memory" and not name.startswith("hugepages-"):
                yield path, "the kinds of memory are memory and hugepages-SIZE"
            if amount == "0":
                yield path, "it must not be zero"
            if (one["numaNode"], name) in seen:
                yield path, f"NUMA node {one['numaNode']} already has it"
            seen.add((one["numaNode"], name))


ROWS: Final = (
    ValueRule("nodeLeaseDurationSeconds", within(1)),
    *rows_of("maxParallelImagePulls containerLogMaxWorkers", within(1), zero=True),
    *rows_of("eventBurst eventRecordQPS kubeAPIBurst kubeAPIQPS maxOpenFiles maxPods podsPerCore registryBurst registryPullQPS", within(0)),
    *rows_of("healthzPort port readOnlyPort", within(1, 65535)),
    *rows_of("imageGCHighThresholdPercent imageGCLowThresholdPercent", within(0, 100)),
    *rows_of("iptablesDropBit iptablesMasqueradeBit", within(0, 31)),
    *rows_of("imageMinimumGCAge imageMaximumGCAge", lasting(0)),
    *rows_of("shutdownGracePeriod shutdownGracePeriodCriticalPods", lasting(SECOND)),
    ValueRule("nodeStatusMaxImages", within(-1)),
    ValueRule("oomScoreAdj", within(-1000, 1000)),
    ValueRule("cpuCFSQuotaPeriod", lasting(SECOND // 1000, SECOND), zero=True),
    ValueRule("containerLogMonitorInterval", lasting(3 * SECOND), zero=True),
    ValueRule("containerLogMaxFiles", within(2), zero=True),
    ValueRule("runOnce", unset),
    ValueRule("topologyManagerPolicy", one_of("none", "best-effort", "restricted", "single-numa-node")),
    ValueRule("topologyManagerScope", one_of("container", "pod")),
    ValueRule("memorySwap.swapBehavior", one_of("NoSwap", "LimitedSwap")),
    ValueRule("hairpinMode", one_of("none", "hairpin-veth", "promiscuous-bridge")),
    ValueRule(
        "imagePullCredentialsVerificationPolicy",
        one_of("NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"),
    ),
    ValueRule("enforceNodeAllocatable", each_of("pods", "none", *_ENFORCED)),
    ValueRule("memoryReservationPolicy", one_of("None", "TieredReservation")),
    ValueRule("memoryThrottlingFactor", lambda value: "" if 0 < value <= 1 else f"{value} must be greater than 0 and at most 1", zero=True),
    ValueRule("podLogsDir", normalised),
    ValueRule("logging.format", one_of("text", "json")),
    ValueRule("crashLoopBackOff.maxContainerRestartPeriod", lasting(SECOND, 300 * SECOND), zero=True),
    ValueRule("userNamespaces.idsPerPod", ids_per_pod, zero=True),
    ValueRule("reservedSystemCPUs", cpu_set),
    ValueRule("showHiddenMetricsForVersion", previous_minor),
    ValueRule("tracing.samplingRatePerMillion", within(0, 1_000_000)),
    ValueRule("tracing.endpoint", collector),
    ValueRule("preloadedImagesVerificationAllowlist", image_patterns),
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
        yield "shutdownGracePeriodByPodPriority", "it cannot be set together with shutdownGracePeriod"


def _cgroups(kubelet: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if kubelet["systemCgroups"] and not kubelet["cgroupRoot"]:
        yield "systemCgroups", "it needs cgroupRoot"
    enforced = kubelet["enforceNodeAllocatable"] or ()
    missing = sorted({(value, _ENFORCED[value]) for value in enforced if value in _ENFORCED and not kubelet[_ENFORCED[value]]})
    yield from (("enforceNodeAllocatable", f"{value} needs {name}") for value, name in missing)
    if "none" in enforced and len(enforced) > 1:
        yield "enforceNodeAllocatable", "none cannot be combined with others"
    for name in ("system-reserved", "kube-reserved"):
        if {name, f"{name}-compressible"} <= set(enforced):
            yield "enforceNodeAllocatable", f"{name} and {name}-compressible are mutually exclusive"
    if kubelet["cgroupsPerQOS"] is False and set(enforced) - {"none"}:
        yield "enforceNodeAllocatable", "it needs cgroupsPerQOS"
    if kubelet["reservedSystemCPUs"] and (kubelet["systemReservedCgroup"] or kubelet["kubeReservedCgroup"]):
        yield "reservedSystemCPUs", "it cannot be set together with systemReservedCgroup or kubeReservedCgroup"


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
        yield from gate_rules(kubelet["featureGates"])


def _logs(kubelet: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from log_rules(kubelet["logging"], kubelet["featureGates"] or {})


SEVERAL: Final = (_thresholds, _shutdown, _cgroups, _together, _gates, _known, _logs, taints, reserved_memory)
