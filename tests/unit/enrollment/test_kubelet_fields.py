"""What a hub may set in a kubelet's configuration: the table, refusals, and what the owner of a machine may accept in addition."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.apis.kubelet import KUBELET
from kubewright.base import yaml
from kubewright.base.errors import UnsafeText, UsageError
from kubewright.enrollment.node import kubelet_fields
from kubewright.enrollment.node.kubelet_fields import FIELDS, OF_THE_MACHINE, ROWS, RefusedFields

GUIDE = Path(__file__).parents[3] / "docs/guide/hub.md"
ONEINFRA = """
authentication: {anonymous: {}, webhook: {cacheTTL: 0s}, x509: {clientCAFile: /etc/oneinfra/kubelet-client-ca.crt}}
authorization: {webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 0s}}
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
cpuManagerReconcilePeriod: 0s
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
httpCheckFrequency: 0s
imageMinimumGCAge: 0s
logging: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
tlsCertFile: /etc/oneinfra/kubelet.crt
tlsPrivateKeyFile: /etc/oneinfra/kubelet.key
volumeStatsAggPeriod: 0s
"""
"""What a hub of oneinfra sends (docs/compat/oneinfra.md)."""


def read(text: str, *accepted: str) -> dict[str, Any]:
    return kubelet_fields.read(yaml.load(text), accepted=kubelet_fields.consent(accepted))


def test_fields_of_a_hub_of_oneinfra_are_reduced_to_two():
    assert read(ONEINFRA) == {"clusterDNS": ["10.96.0.10"], "clusterDomain": "cluster.local"}


def test_every_field_of_the_table_exists_and_can_be_set():
    known = {path for path, _ in kubelet_fields._paths(KUBELET)}
    assert set(ROWS) <= known
    assert set(ROWS).isdisjoint(OF_THE_MACHINE)
    assert known >= OF_THE_MACHINE
    for path, value in GOOD.items():
        *parents, name = path.split(".")
        document: Any = {name: value}
        for parent in reversed(parents):
            document = {parent: document}
        assert kubelet_fields.read(document) == document, path
    assert set(GOOD) == set(ROWS)


TRUE = "rotateCertificates serverTLSBootstrap kernelMemcgNotification protectKernelDefaults"
FALSE = (
    "authentication.anonymous.enabled authentication.webhook.enabled enableServer enableDebuggingHandlers enableSystemLogHandler"
    " enableSystemLogQuery enableProfilingHandler enableDebugFlagsHandler failCgroupV1 failSwapOn cpuCFSQuota singleProcessOOMKill"
    " mergeDefaultEvictionSettings serializeImagePulls seccompDefault"
)
SPANS = (
    "authentication.webhook.cacheTTL authorization.webhook.cacheAuthorizedTTL authorization.webhook.cacheUnauthorizedTTL"
    " cpuManagerReconcilePeriod evictionPressureTransitionPeriod imageMinimumGCAge imageMaximumGCAge shutdownGracePeriod"
    " shutdownGracePeriodCriticalPods containerLogMonitorInterval crashLoopBackOff.maxContainerRestartPeriod nodeStatusUpdateFrequency"
    " nodeStatusReportFrequency syncFrequency volumeStatsAggPeriod runtimeRequestTimeout streamingConnectionIdleTimeout"
)
NUMBERS = (
    "healthzPort logging.verbosity containerLogMaxFiles containerLogMaxWorkers maxPods podsPerCore podPidsLimit evictionMaxPodGracePeriod"
    " imageGCHighThresholdPercent imageGCLowThresholdPercent nodeStatusMaxImages maxParallelImagePulls registryPullQPS registryBurst"
    " nodeLeaseDurationSeconds kubeAPIQPS kubeAPIBurst eventRecordQPS eventBurst"
)
AMOUNTS = "systemReserved kubeReserved qosReserved evictionHard evictionSoft evictionSoftGracePeriod evictionMinimumReclaim"
OPTIONS = "cpuManagerPolicyOptions topologyManagerPolicyOptions"
GOOD = {
    **dict.fromkeys(TRUE.split(), True),
    **dict.fromkeys(FALSE.split(), False),
    **dict.fromkeys(SPANS.split(), "1m0s"),
    **dict.fromkeys(NUMBERS.split(), 5),
    **{path: {"memory": "1Gi"} for path in AMOUNTS.split()},
    **{path: {"full-pcpus-only": "true"} for path in OPTIONS.split()},
    "clusterDNS": ["10.96.0.10", "fd00::a"],
    "clusterDomain": "cluster.local",
    "tlsMinVersion": "VersionTLS13",
    "authorization.mode": "Webhook",
    "healthzBindAddress": "127.0.0.1",
    "logging.format": "json",
    "logging.flushFrequency": "5s",
    "containerLogMaxSize": "10Mi",
    "cgroupDriver": "cgroupfs",
    "memorySwap.swapBehavior": "NoSwap",
    "hairpinMode": "none",
    "enforceNodeAllocatable": ["pods"],
    "reservedSystemCPUs": "0-1",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    "cpuCFSQuotaPeriod": "100ms",
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "topologyManagerPolicy": "none",
    "topologyManagerScope": "pod",
    "memoryThrottlingFactor": 0.8,
    "shutdownGracePeriodByPodPriority": [{"priority": 1, "shutdownGracePeriodSeconds": 5}],
    "userNamespaces.idsPerPod": 65536,
    "registerWithTaints": [{"key": "a", "effect": "NoSchedule"}],
    "configMapAndSecretChangeDetectionStrategy": "Cache",
}
"""A value for each field."""


@pytest.mark.parametrize(
    ("text", "problems", "flag"),
    [
        ("staticPodURL: http://x", ["staticPodURL: a hub may not set it"], "staticPodURL"),
        ("staticPodPath: /etc/kubernetes/manifests", ["staticPodPath: a hub may not set it"], "staticPodPath"),
        ("readOnlyPort: 10255", ["readOnlyPort: a hub may not set it"], "readOnlyPort"),
        ("featureGates: {A: true}", ["featureGates: a hub may not set it"], "featureGates"),
        ("tracing: {endpoint: 'x:1'}", ["tracing.endpoint: a hub may not set it"], "tracing.endpoint"),
        (
            "authentication: {anonymous: {enabled: true}}",
            ["authentication.anonymous.enabled: must be false"],
            "authentication.anonymous.enabled",
        ),
        ("enableSystemLogQuery: true", ["enableSystemLogQuery: must be false"], "enableSystemLogQuery"),
        ("logging: {verbosity: 8}", ["logging.verbosity: 8 must be at most 5"], "logging.verbosity"),
        ("healthzBindAddress: 0.0.0.0", ['healthzBindAddress: "0.0.0.0" must be a loopback address'], "healthzBindAddress"),
        ("tlsMinVersion: VersionTLS10", ['tlsMinVersion: "VersionTLS10" must be one of VersionTLS12, VersionTLS13'], "tlsMinVersion"),
        (
            "enforceNodeAllocatable: [system-reserved]",
            ["enforceNodeAllocatable: must be pods or none"],
            "enforceNodeAllocatable",
        ),
        (
            "authorization: {webhook: {cacheAuthorizedTTL: 100h0m0s}}",
            ["authorization.webhook.cacheAuthorizedTTL: 100h0m0s must be at most 1h"],
            "authorization.webhook.cacheAuthorizedTTL",
        ),
        ("clusterDNS: [x]", ['clusterDNS: "x" must be an IP address'], ""),
        ("clusterDNS: ['fd00::1%eth0']", ['clusterDNS: "fd00::1%eth0" must be an IP address'], ""),
        ("clusterDomain: ../x", ['clusterDomain: "../x" must be a DNS domain'], ""),
        ("cgroupDriver: mine", ['cgroupDriver: "mine" must be one of systemd, cgroupfs'], ""),
        ("containerLogMaxFiles: 1", ["containerLogMaxFiles: 1 must be at least 2"], ""),
        ("maxPods: many", ["maxPods: Wrong type"], ""),
        ("authentication: 5", ["authentication: Wrong type"], ""),
        ("noSuchField: 1", ["noSuchField: Unknown field"], ""),
        (
            "{staticPodURL: http://x, clusterDNS: [x], noSuchField: 1, volumePluginDir: /x}",
            ["noSuchField: ", "staticPodURL: ", "volumePluginDir: ", "clusterDNS: "],
            "staticPodURL,volumePluginDir",
        ),
    ],
)
def test_everything_else_is_refused_at_once_with_its_path(text, problems, flag):
    with pytest.raises(RefusedFields) as refused:
        read(text)
    told = refused.value.detail.splitlines()
    assert len(told) == len(problems)
    assert [one for one, begin in zip(told, problems, strict=True) if not one.startswith(begin)] == []
    assert refused.value.flag == (f"--accept-kubelet-fields={flag}" if flag else "")
    assert refused.value.flag in refused.value.remedy
    if flag and len(problems) == 1:
        assert read(text, *flag.split(",")) == yaml.load(text)


def test_accepting_a_struct_accepts_its_fields_and_types_are_still_checked():
    assert read("tracing: {endpoint: 'x:1', samplingRatePerMillion: 1}", "tracing") == {
        "tracing": {"endpoint": "x:1", "samplingRatePerMillion": 1}
    }
    with pytest.raises(RefusedFields, match="readOnlyPort: 70000 must be between 1 and 65535"):
        read("readOnlyPort: 70000", "readOnlyPort")
    with pytest.raises(RefusedFields, match="clusterDNS"):
        read("clusterDNS: [x]", "clusterDNS")


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("staticPodPaht", 'has no field "staticPodPaht"; did you mean "staticPodPath"?'),
        ("tlsCertFile", "cannot be left to a hub"),
        ("authentication", "cannot be left to a hub"),
        ("containerRuntimeEndpoint", "cannot be left to a hub"),
    ],
)
def test_fields_that_cannot_be_accepted_are_reported(name, error):
    with pytest.raises(UsageError, match=re.escape(error)):
        kubelet_fields.consent([name])


def test_control_characters_are_refused_even_in_accepted_fields():
    for text in ('staticPodPath: "/a\\0b"', 'evictionHard: {"a\\nb": 1Gi}'):
        with pytest.raises(UnsafeText, match="holds a control character"):
            read(text, "staticPodPath")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99999) | st.sampled_from(["", "x", "0s", "1m", "/etc/passwd", "10.0.0.1"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["enabled", "mode", "webhook", "memory"]), inner, max_size=2)
    ),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([field.name for field in KUBELET.fields]), VALUES, max_size=4))
def test_only_fields_of_the_table_are_taken_from_any_document(document):
    try:
        found = kubelet_fields.read(document)
    except RefusedFields:
        return
    for name, value in found.items():
        assert any(path == name or path.startswith(f"{name}.") for path in ROWS)
        assert value not in (None, "", [], {})
    assert kubelet_fields.read(found) == found


def test_the_guide_lists_every_field_by_purpose():
    section = GUIDE.read_text().partition("### What the hub may set on a node")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| (`[^|]+`) \|$", section, re.MULTILINE)
    named = {purpose: re.findall(r"`([^`]+)`", fields) for purpose, fields in rows}
    assert named == {purpose: [field.partition("=")[0] for field in fields.split()] for purpose, fields in FIELDS.items()}
    assert sum(map(len, named.values())) == len(ROWS)
