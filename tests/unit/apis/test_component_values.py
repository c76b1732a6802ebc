"""Values of component documents that the component would refuse when it starts: warnings, one for each, and none for good values."""

from __future__ import annotations

import pytest
from apis_documents import KUBE_PROXY, KUBELET, MACHINE, cluster, init, load
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import parts
from kubewright.apis import feature_gates, kubelet, kubelet_rules, kubeproxy
from kubewright.apis.findings import Findings
from kubewright.apis.kubeadm.whole_files import load_whole
from kubewright.base.yaml import load_all

# For each row of the table: a value that is refused, and one that is not.
KUBELET_VALUES = {
    "nodeLeaseDurationSeconds": (-1, 40),
    "maxParallelImagePulls": (-1, 1),
    "containerLogMaxWorkers": (-1, 1),
    "eventBurst": (-1, 100),
    "eventRecordQPS": (-1, 0),
    "kubeAPIBurst": (-1, 1),
    "kubeAPIQPS": (-1, 0),
    "maxOpenFiles": (-1, 1),
    "maxPods": (-1, 110),
    "podsPerCore": (-1, 1),
    "registryBurst": (-1, 1),
    "registryPullQPS": (-1, 0),
    "healthzPort": (65536, 10248),
    "port": (-1, 10250),
    "readOnlyPort": (70000, 0),
    "imageGCHighThresholdPercent": (101, 100),
    "imageGCLowThresholdPercent": (-1, 0),
    "iptablesDropBit": (32, 31),
    "iptablesMasqueradeBit": (-1, 0),
    "imageMinimumGCAge": ("-1s", "2m"),
    "imageMaximumGCAge": ("-1s", "1h"),
    "shutdownGracePeriod": ("1ms", "30s"),
    "nodeStatusMaxImages": (-2, -1),
    "oomScoreAdj": (-1001, -999),
    "cpuCFSQuotaPeriod": ("2s", "100ms"),
    "containerLogMonitorInterval": ("2s", "3s"),
    "containerLogMaxFiles": (1, 2),
    "runOnce": (True, False),
    "topologyManagerPolicy": ("best", "restricted"),
    "topologyManagerScope": ("node", "pod"),
    "memorySwap": ({"swapBehavior": "UnlimitedSwap"}, {"swapBehavior": "NoSwap"}),
    "hairpinMode": ("hairpin", "hairpin-veth"),
    "imagePullCredentialsVerificationPolicy": ("Never", "AlwaysVerify"),
    "enforceNodeAllocatable": (["pods", "pods"], ["pods"]),
    "memoryReservationPolicy": ("none", "None"),
    "memoryThrottlingFactor": (1.5, 0.9),
    "podLogsDir": ("logs", "/var/log/pods"),
    "logging": ({"format": "xml"}, {"format": "json"}),
    "crashLoopBackOff": ({"maxContainerRestartPeriod": "301s"}, {"maxContainerRestartPeriod": "1m"}),
    "userNamespaces": ({"idsPerPod": 1000}, {"idsPerPod": 131072}),
    "reservedSystemCPUs": ("3-1", "0-1,4"),
    "showHiddenMetricsForVersion": ("1.34", "1.35"),
    "tracing": ({"samplingRatePerMillion": -1}, {"samplingRatePerMillion": 100, "endpoint": "localhost:4317"}),
}
KUBE_PROXY_VALUES = {
    "mode": ("userspace", "ipvs"),
    "detectLocalMode": ("Local", "NodeCIDR"),
    "bindAddress": ("localhost", "0.0.0.0"),
    "healthzBindAddress": ("0.0.0.0", "0.0.0.0:10256"),
    "metricsBindAddress": ("localhost:1", "127.0.0.1:10249"),
    "iptables": ({"masqueradeBit": 32}, {"masqueradeBit": 14}),
    "oomScoreAdj": (1001, 1000),
    "conntrack": ({"min": -1}, {"min": 0, "tcpEstablishedTimeout": "24h"}),
    "clientConnection": ({"burst": -1}, {"burst": 10}),
    "configSyncPeriod": ("-1s", "15m"),
    "nodePortAddresses": (["10.0.0.1"], ["primary"]),
    "logging": ({"format": "xml"}, {"format": "text"}),
    "showHiddenMetricsForVersion": ("1.36", "1.35"),
}
_TOGETHER = [
    ({"imageGCLowThresholdPercent": 85}, "imageGCLowThresholdPercent"),
    ({"imageMinimumGCAge": "2h", "imageMaximumGCAge": "1h"}, "imageMaximumGCAge"),
    ({"shutdownGracePeriod": "1s", "shutdownGracePeriodCriticalPods": "2s"}, "shutdownGracePeriodCriticalPods"),
    ({"shutdownGracePeriod": "1s", "shutdownGracePeriodCriticalPods": "1ms"}, "shutdownGracePeriodCriticalPods"),
    (
        {"shutdownGracePeriod": "1s", "shutdownGracePeriodByPodPriority": [{"priority": 1, "shutdownGracePeriodSeconds": 1}]},
        "shutdownGracePeriodByPodPriority",
    ),
    ({"systemCgroups": "/s"}, "systemCgroups"),
    ({"enforceNodeAllocatable": ["kube-reserved"]}, "enforceNodeAllocatable"),
    ({"enforceNodeAllocatable": ["pods", "none"]}, "enforceNodeAllocatable"),
    (
        {"enforceNodeAllocatable": ["kube-reserved", "kube-reserved-compressible"], "kubeReservedCgroup": "/k"},
        "enforceNodeAllocatable",
    ),
    ({"enforceNodeAllocatable": ["pods"], "cgroupsPerQOS": False}, "enforceNodeAllocatable"),
    ({"reservedSystemCPUs": "0-1", "kubeReservedCgroup": "/k"}, "reservedSystemCPUs"),
    ({"maxParallelImagePulls": 2}, "maxParallelImagePulls"),
    ({"enableSystemLogQuery": True, "enableSystemLogHandler": False}, "enableSystemLogQuery"),
    ({"preloadedImagesVerificationAllowlist": ["a"]}, "preloadedImagesVerificationAllowlist"),
    (
        {"registerWithTaints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2030-01-01T00:00:00Z"}]},
        "registerWithTaints[0].timeAdded",
    ),
    ({"registerWithTaints": [{"key": "a b", "effect": "NoSchedule"}]}, "registerWithTaints[0].key"),
    ({"registerWithTaints": [{"key": "A.b/c", "effect": "NoSchedule"}]}, "registerWithTaints[0].key"),
    ({"registerWithTaints": [{"key": "a.b/c", "value": "x y", "effect": "NoSchedule"}]}, "registerWithTaints[0].value"),
    ({"registerWithTaints": [{"key": "k"}, {"key": "k", "effect": "NoShedule"}]}, "registerWithTaints[1].effect"),
    ({"reservedMemory": [{"numaNode": 0, "limits": {"cpu": "1"}}]}, "reservedMemory[0].limits[cpu]"),
    ({"reservedMemory": [{"numaNode": 0, "limits": {"memory": "0"}}]}, "reservedMemory[0].limits[memory]"),
    ({"reservedMemory": [{"numaNode": 1, "limits": {"memory": "1Gi"}}] * 2}, "reservedMemory[1].limits[memory]"),
    ({"memoryReservationPolicy": "TieredReservation"}, "memoryReservationPolicy"),
    ({"serverTLSBootstrap": True, "featureGates": {"RotateKubeletServerCertificate": False}}, "serverTLSBootstrap"),
    ({"logging": {"flushFrequency": -1}}, "logging.flushFrequency"),
    ({"logging": {"verbosity": 1 << 31}}, "logging.verbosity"),
    ({"logging": {"format": "json", "vmodule": [{"filePattern": "a"}]}}, "logging.vmodule"),
    ({"logging": {"vmodule": [{"filePattern": "a"}, {"filePattern": "a=b"}]}}, "logging.vmodule[1].filePattern"),
    ({"logging": {"options": {"json": {"splitStream": True}}}}, "logging.options.json.splitStream"),
    ({"tracing": {"endpoint": "http://h:1"}}, "tracing.endpoint"),
    (
        {"imagePullCredentialsVerificationPolicy": "NeverVerifyAllowlistedImages", "preloadedImagesVerificationAllowlist": ["a.b/c:v1"]},
        "preloadedImagesVerificationAllowlist",
    ),
    (
        {"imagePullCredentialsVerificationPolicy": "NeverVerifyAllowlistedImages", "preloadedImagesVerificationAllowlist": ["a*/b"]},
        "preloadedImagesVerificationAllowlist",
    ),
    *(({name: value}, name) for name, value in {"maxParallelImagePulls": 0, "containerLogMaxFiles": 0, "cpuCFSQuotaPeriod": "0s"}.items()),
    *(({name: value}, name) for name, value in {"containerLogMaxWorkers": 0, "containerLogMonitorInterval": "0s"}.items()),
    ({"userNamespaces": {"idsPerPod": 1 << 32}}, "userNamespaces.idsPerPod"),
    ({"podLogsDir": "/var//log"}, "podLogsDir"),
    ({"podLogsDir": "/var/lög"}, "podLogsDir"),
]


def warnings(decode, **fields: object) -> list[str]:
    findings = Findings()
    decode(fields, findings.root)
    assert findings.errors == findings.surplus == []
    return [warning.split(": ")[1] for warning in findings.warnings]


@pytest.mark.parametrize("name", KUBELET_VALUES)
def test_a_value_that_the_kubelet_refuses_gives_one_warning(name):
    bad, good = KUBELET_VALUES[name]
    assert [path.partition(".")[0] for path in warnings(kubelet.decode, **{name: bad})] == [name]
    assert warnings(kubelet.decode, **{name: good}) == []


@pytest.mark.parametrize("name", KUBE_PROXY_VALUES)
def test_a_value_that_kube_proxy_refuses_gives_one_warning(name):
    bad, good = KUBE_PROXY_VALUES[name]
    assert [path.partition(".")[0] for path in warnings(kubeproxy.decode, **{name: bad})] == [name]
    assert warnings(kubeproxy.decode, **{name: good}) == []


@pytest.mark.parametrize("decode", [kubelet.decode, kubeproxy.decode])
def test_feature_gates_that_components_refuse_give_a_warning(decode):
    gates = {"NodeSwaps": True, "NodeSwap": False, "NodeLogQuery": True, "AllAlpha": True, "Zzz": False}
    assert warnings(decode, featureGates=gates) == ["featureGates[NodeSwaps]", "featureGates[NodeSwap]", "featureGates[Zzz]"]
    assert warnings(decode, featureGates=dict(feature_gates.LOCKED)) == []
    assert feature_gates.LOCKED.keys() <= feature_gates.KNOWN
    assert [reason for _, reason in feature_gates.gate_rules(gates)] == [
        'there is no such feature gate; did you mean "NodeSwap"?',
        "it is locked to true; leave it out",
        "there is no such feature gate",
    ]


def test_every_gate_that_a_rule_names_is_known():
    assert {gate for _, gate in kubelet_rules.GATED} <= feature_gates.KNOWN


def test_every_row_of_the_kubelet_table_is_tested():
    tried = {row.path.partition(".")[0] for row in kubelet_rules.ROWS}
    together = {path for _, path in _TOGETHER}
    assert len(kubelet_rules.ROWS) == 46
    assert tried - set(KUBELET_VALUES) - together == set()
    assert {row.path.partition(".")[0] for row in kubeproxy.ROWS} == set(KUBE_PROXY_VALUES)


@pytest.mark.parametrize(("fields", "path"), _TOGETHER)
def test_conflicting_fields_give_one_warning(fields, path):
    assert warnings(kubelet.decode, **fields) == [path]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"iptables": {"syncPeriod": "1s", "minSyncPeriod": "2s"}}, "iptables.syncPeriod"),
        ({"iptables": {"minSyncPeriod": "31s"}}, "iptables.syncPeriod"),
        ({"mode": "nftables", "nftables": {"syncPeriod": "-1s"}}, "nftables.syncPeriod"),
        ({"mode": "nftables", "nftables": {"masqueradeBit": 32}}, "nftables.masqueradeBit"),
        ({"mode": "ipvs", "ipvs": {"excludeCIDRs": ["10.0.0.1"]}}, "ipvs.excludeCIDRs"),
        ({"mode": "ipvs", "ipvs": {"tcpTimeout": "-1s"}}, "ipvs.tcpTimeout"),
        ({"clusterCIDR": "10.0.0.0/8,11.0.0.0/8"}, "clusterCIDR"),
        ({"clusterCIDR": "10.0.0.0"}, "clusterCIDR"),
        ({"logging": {"vmodule": [{"filePattern": ""}]}}, "logging.vmodule[0].filePattern"),
        ({"detectLocalMode": "BridgeInterface"}, "detectLocal.bridgeInterface"),
        ({"nodePortAddresses": ["primary", "10.0.0.0/8"]}, "nodePortAddresses"),
    ],
)
def test_conflicting_fields_of_kube_proxy_give_one_warning(fields, path):
    assert warnings(kubeproxy.decode, **fields) == [path]


@pytest.mark.parametrize("mode", ["", "iptables"])
def test_values_that_only_another_mode_refuses_give_no_warning(mode):
    fields = {"mode": mode, "ipvs": {"tcpTimeout": "-1s", "excludeCIDRs": ["x"]}, "nftables": {"masqueradeBit": 99, "syncPeriod": "-1s"}}
    assert warnings(kubeproxy.decode, **fields) == []
    assert warnings(kubeproxy.decode, mode=mode, detectLocalMode="NodeCIDR", clusterCIDR="10.0.0.0/8,11.0.0.0/8") == []


def test_a_warning_about_a_component_has_line_and_column():
    text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nlogging:\n  vmodule:\n  - {verbosity: 1, filePattern: a=b}\n"
    found = load_whole(load_all(text, source="f.yaml"), detected=MACHINE).warnings
    assert [warning.partition(" Kube")[0] for warning in found] == ["f.yaml:5:20:"]


def test_the_warnings_name_the_kind_and_reach_the_user():
    found = load(init(), cluster(), {**KUBELET, "maxPods": -1}, {**KUBE_PROXY, "mode": "userspace"}).warnings
    assert found == [
        "kubeadm.yaml:1: KubeletConfiguration: maxPods: -1 must be at least 0 (the component does not start with this)",
        'kubeadm.yaml:1: KubeProxyConfiguration: mode: "userspace" must be one of iptables, ipvs, nftables (the component does not start with this)',
    ]


_VALUES = (
    st.none() | st.booleans() | st.integers(-5, 70000) | st.text(max_size=5) | st.lists(st.sampled_from(["pods", "none", "x"]), max_size=3)
)


@settings(max_examples=parts.given(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fields=st.dictionaries(st.sampled_from([*KUBELET_VALUES, *KUBE_PROXY_VALUES]), _VALUES, max_size=6))
def test_no_document_raises_an_error_in_a_rule(fields):
    for decode in (kubelet.decode, kubeproxy.decode):
        findings = Findings()
        decode(fields, findings.root)
        assert len(findings.warnings) <= 3 * len(fields)
