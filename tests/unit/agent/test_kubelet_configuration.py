"""The kubelet's flags and files: how each is treated, and the effect of those that are honoured."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from kubewright.agent.configuration import fields, flags, options, reading
from kubewright.agent.configuration.kubelet_api import openssl_cipher
from kubewright.agent.configuration.options import NO_PODS, UNINITIALIZED, AgentOptions, Own
from kubewright.agent.status import resources
from kubewright.apis.kubelet import KUBELET
from kubewright.base import yaml
from kubewright.base.errors import DocumentError, KubewrightError, UsageError, ValidationError
from kubewright.host.facts import MachineInfo

GIB = 1 << 30
MACHINE = MachineInfo(cores=4, memory=8 * GIB, huge_pages={2 << 20: 512}, architecture="amd64", kernel="6.1", os_image="Debian", swap=GIB)
HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


def configuration(*texts: str, **given: object) -> reading.AgentConfiguration:
    documents = [yaml.load_one((HEAD + text).encode(), source=f"{number}.yaml") for number, text in enumerate(texts)]
    config, drop_ins = (documents[0], documents[1:]) if documents else (None, [])
    return reading.read(config, {name.replace("_", "-"): value for name, value in given.items()}, drop_ins=drop_ins)


def chosen(*texts: str, own: dict[str, Any] | None = None, **given: object) -> AgentOptions:
    return options.options_of(configuration(*texts, **given), Own(kubeconfig="/k", **(own or {})), host_name="Node-1 ")


def test_every_field_of_the_kubelet_has_exactly_one_row():
    rows = [*fields.HONOURED, *fields.IGNORED, *fields.REFUSED]
    assert sorted(rows) == sorted(field.name for field in KUBELET.fields)
    assert len(rows) == 125


def test_every_flag_names_an_existing_field_or_has_its_own_treatment():
    paths = {field.name for field in KUBELET.fields}
    assert {flag.name for flag in flags.FLAGS if flag.field and flag.field.partition(".")[0] not in paths} == set()
    assert {flag.name for flag in flags.FLAGS if bool(flag.field) == bool(flag.standing)} == set()
    assert {flag.kind for flag in flags.FLAGS} <= set(flags.KINDS)
    assert len({flag.name for flag in flags.FLAGS}) == len(flags.FLAGS) == 145


HONOURED: dict[str, tuple[str, Any]] = {
    "address": ("127.0.0.9", lambda found: found.kubelet_api.address),
    "authentication": ({"anonymous": {"enabled": True}}, lambda found: found.kubelet_api.rules),
    "authorization": ({"mode": "AlwaysAllow"}, lambda found: found.kubelet_api.rules),
    "containerRuntimeEndpoint": ("unix:///run/x.sock", lambda found: found.runtime),
    "enableControllerAttachDetach": (False, lambda found: facts(found).attach_detach),
    "enableDebuggingHandlers": (False, lambda found: found.kubelet_api.debugging),
    "enableServer": (False, lambda found: found.kubelet_api),
    "evictionHard": ({"memory.available": "1Gi"}, lambda found: facts(found).profile.hard_eviction),
    "evictionMinimumReclaim": ({"memory.available": "1Gi"}, lambda found: found.observation.thresholds),
    "evictionPressureTransitionPeriod": ("1m0s", lambda found: found.observation.hold),
    "evictionSoft": ({"memory.available": "2Gi"}, lambda found: found.observation.thresholds),
    "evictionSoftGracePeriod": ({"memory.available": "1h30m"}, None),
    "healthzBindAddress": ("127.0.0.2", lambda found: found.health),
    "healthzPort": (0, lambda found: found.health),
    "kubeReserved": ({"cpu": "1"}, lambda found: facts(found).profile.reserved),
    "localStorageCapacityIsolation": (False, lambda found: facts(found).isolates_storage),
    "maxPods": (7, lambda found: facts(found).profile.max_pods),
    "mergeDefaultEvictionSettings": (True, None),
    "nodeLeaseDurationSeconds": (80, lambda found: found.timings.lease_duration),
    "nodeStatusMaxImages": (-1, lambda found: facts(found).max_images),
    "nodeStatusReportFrequency": ("1m0s", lambda found: found.timings.status_report),
    "nodeStatusUpdateFrequency": ("20s", lambda found: found.timings.status_update),
    "podsPerCore": (3, lambda found: facts(found).profile.pods_per_core),
    "port": (10251, lambda found: facts(found).kubelet_port),
    "providerID": ("cloud://1", lambda found: facts(found).provider_id),
    "registerNode": (False, lambda found: found.duties.registers),
    "registerWithTaints": ([{"key": "a", "effect": "NoExecute"}], lambda found: facts(found).taints),
    "reservedSystemCPUs": ("0-1", lambda found: facts(found).profile.reserved),
    "rotateCertificates": (True, lambda found: found.duties.rotates),
    "runtimeRequestTimeout": ("9s", lambda found: found.runtime_timeout),
    "serverTLSBootstrap": (True, lambda found: found.kubelet_api.requested),
    "systemReserved": ({"memory": "1Gi"}, lambda found: facts(found).profile.reserved),
    "tlsCertFile": ("/c", lambda found: found.kubelet_api.files),
    "tlsCipherSuites": (["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"], lambda found: found.kubelet_api.ciphers),
    "tlsMinVersion": ("VersionTLS13", lambda found: found.kubelet_api.oldest_tls),
    "tlsPrivateKeyFile": ("/k", lambda found: found.kubelet_api.files),
}
"""A value of each honoured field, and where it has an effect; None: tested separately."""


NEEDED = {
    "evictionSoft": "evictionSoftGracePeriod: {memory.available: 1m}\n",
    "tlsCertFile": "tlsPrivateKeyFile: /k\n",
    "tlsPrivateKeyFile": "tlsCertFile: /c\n",
}
"""Fields that another field requires."""


def facts(found: AgentOptions) -> Any:
    return found.facts(MACHINE, storage=100 * GIB)


def test_a_node_that_does_not_isolate_local_storage_reports_none():
    found = facts(chosen("localStorageCapacityIsolation: false"))
    assert not found.isolates_storage
    for amounts in (resources.capacity(found.profile), resources.allocatable(found.profile)):
        assert sorted(amounts) == ["cpu", "hugepages-2Mi", "memory", "pods"]


@pytest.mark.parametrize("name", sorted(fields.HONOURED))
def test_an_honoured_field_has_an_effect(name):
    value, seen = HONOURED[name]
    text = yaml.dump({name: value}) + NEEDED.get(name, "")
    if seen is None:
        assert name in configuration(text).kubelet
    elif name == "evictionMinimumReclaim":
        text += "evictionHard: {memory.available: 1Mi}\n"
        assert seen(chosen("evictionHard: {memory.available: 1Mi}")) != seen(chosen(text))
    else:
        assert seen(chosen()) != seen(chosen(text))
    assert not [note for note in configuration(text).notes if name in note]


def test_the_table_of_this_test_is_complete():
    assert sorted(HONOURED) == sorted(fields.HONOURED)


@pytest.mark.parametrize(("name", "value"), [("runOnce", True), ("tlsCurvePreferences", [29])])
def test_a_refused_field_is_an_error_with_its_reason_and_may_be_left_empty(name, value):
    assert name in fields.REFUSED
    with pytest.raises(ValidationError, match=name) as error:
        configuration(yaml.dump({name: value}))
    assert [one.path.text for one in error.value.errors] == [name]
    configuration(yaml.dump({name: type(value)()}))


def test_every_refused_field_is_tried():
    assert sorted(fields.REFUSED) == ["runOnce", "tlsCurvePreferences"]


def test_ignored_fields_are_reported_once_for_each_reason():
    found = configuration(
        "clusterDNS: [10.96.0.10]\nclusterDomain: c\nfileCheckFrequency: 0s\ncgroupDriver: systemd\n", lock_file="/l", pod_cidr="x"
    )
    assert found.notes == (
        "ignored, because it runs no pods: clusterDNS, clusterDomain, --pod-cidr",
        "ignored, because it makes no cgroups: cgroupDriver",
        "ignored, because it has its own lock: --lock-file",
    )


def test_drop_ins_are_merged_in_order_and_flags_override_them():
    found = configuration(
        "maxPods: 1\nsystemReserved: {cpu: 1}\nregisterWithTaints: [{key: a, effect: NoSchedule}]\n".replace("cpu: 1", "cpu: '1'"),
        "maxPods: 2\nsystemReserved: {memory: 1Gi}\nregisterWithTaints: []\n",
        max_pods=3,
    )
    assert found.kubelet["maxPods"] == 3
    assert found.kubelet["systemReserved"] == {"cpu": "1", "memory": "1Gi"}
    assert not found.kubelet["registerWithTaints"]


def test_flags_have_the_formats_of_the_kubelet():
    found = configuration(
        eviction_hard=("memory.available<1Gi", "nodefs.available<5%"),
        register_with_taints="a.example/b=c:NoSchedule,d:NoExecute",
        system_reserved=("cpu=100m", "memory=1Gi"),
        node_status_update_frequency="20s",
    ).kubelet
    assert found["evictionHard"] == {"memory.available": "1Gi", "nodefs.available": "5%"}
    assert [(one["key"], one["value"], one["effect"]) for one in found["registerWithTaints"]] == [
        ("a.example/b", "c", "NoSchedule"),
        ("d", "", "NoExecute"),
    ]
    assert found["systemReserved"] == {"cpu": "100m", "memory": "1Gi"}
    assert found["nodeStatusUpdateFrequency"].seconds == 20


@pytest.mark.parametrize(
    ("name", "value"), [("eviction_hard", ("memory.available=1Gi",)), ("register_with_taints", "a=b"), ("kube_reserved", ("cpu",))]
)
def test_an_invalid_flag_is_reported_with_its_format(name, value):
    with pytest.raises(UsageError) as error:
        configuration(**{name: value})
    assert "write " in error.value.remedy


@pytest.mark.parametrize(
    "text",
    [
        "maxPods: -1",
        "evictionHard: {memory.free: 1Gi}",
        "evictionHard: {memory.available: 101%}",
        "evictionHard: {memory.available: much}",
        "evictionSoft: {memory.available: 1Gi}",
        "evictionSoftGracePeriod: {memory.available: 1Gi}",
        "evictionSoftGracePeriod: {memory.available: -1m}",
        "evictionHard: {memory.available: '0'}",
        "evictionHard: {memory.available: 0Mi}",
        "evictionHard: {memory.available: 1_0%}",
        "evictionHard: {memory.available: ' 10%'}",
        "evictionMinimumReclaim: {memory.available: 0%}",
        "kubeReserved: {hugepages-2Mi: 1Gi}",
        "systemReserved: {example.com/dongle: '1'}",
        "systemReserved: {cpu: many}",
        "registerWithTaints: [{key: a, effect: Never}]",
        "maxPods: many",
    ],
)
def test_values_that_the_kubelet_refuses_are_refused_for_honoured_fields(text):
    with pytest.raises(ValidationError) as error:
        configuration(text)
    assert len(error.value.errors) == 1


def test_a_minimum_reclaim_may_be_zero_bytes_or_more_than_everything():
    found = chosen(
        "evictionHard: {memory.available: 1Mi, pid.available: '1'}\nevictionMinimumReclaim: {memory.available: '0', pid.available: 120%}"
    )
    assert {one.signal: one.reclaim for one in found.observation.thresholds} == {"memory.available": "0", "pid.available": "120%"}


def test_an_ignored_field_may_be_wrong_and_an_unknown_one_is_reported():
    assert configuration("cpuManagerPolicy: none-such\n").notes == ("ignored, because it runs no pods: cpuManagerPolicy",)
    [note] = configuration("maxPod: 3\n").notes
    assert "maxPod" in note


def test_a_file_of_another_kind_is_refused_by_name():
    document = yaml.load_one(b"apiVersion: v1\nkind: Pod\n", source="x.yaml")
    with pytest.raises(DocumentError, match=r"x\.yaml"):
        reading.read(document, {})


def test_hard_thresholds_replace_the_defaults_unless_they_are_merged():
    assert len(options.hard_eviction(configuration().kubelet)) == 5
    assert options.hard_eviction(configuration("evictionHard: {memory.available: 1Gi}").kubelet) == {"memory.available": "1Gi"}
    merged = options.hard_eviction(configuration("evictionHard: {memory.available: 1Gi}\nmergeDefaultEvictionSettings: true").kubelet)
    assert len(merged) == 5
    assert merged["memory.available"] == "1Gi"


@pytest.mark.parametrize(
    ("text", "flags", "word"),
    [
        ("maxPods: 4\nmaxPods: 5", {}, "given twice"),
        ("maxPods: 4\n---\nmaxPods: 5", {}, "2 documents"),
        ("nodeStatusUpdateFrequency: -5s", {}, "nodeStatusUpdateFrequency"),
        ("", {"node_status_update_frequency": "0s"}, "nodeStatusUpdateFrequency"),
        ("", {"runtime_request_timeout": "0s"}, "runtimeRequestTimeout"),
    ],
)
def test_values_that_a_kubelet_accepts_by_mistake_are_refused(text, flags, word):
    with pytest.raises(KubewrightError) as error:
        configuration(text, **flags)
    assert word in f"{error.value} {error.value.detail}"


def test_without_a_file_the_hard_thresholds_are_those_of_a_file():
    assert chosen().observation.thresholds == chosen("").observation.thresholds
    assert len(chosen().observation.thresholds) == 5


def test_reserved_cores_are_all_of_the_cpu_that_is_reserved():
    text = "systemReserved: {cpu: 100m, memory: 1Gi, pid: '1000'}\nkubeReserved: {cpu: 200m, memory: 1Gi}\n"
    assert options.reserved(configuration(text).kubelet) == {"cpu": 300, "memory": 2 * GIB}
    for cores in ("0-1,3", "0-1,1,3,0"):
        assert options.reserved(configuration(text + f"reservedSystemCPUs: {cores}").kubelet) == {"cpu": 3000, "memory": 2 * GIB}


def test_the_update_frequency_alone_also_sets_the_report_frequency():
    for text in ("nodeStatusUpdateFrequency: 20s", "nodeStatusUpdateFrequency: 20s\nnodeStatusReportFrequency: 0s"):
        assert chosen(text).timings.status_report == 20
    assert chosen().timings.status_report == 300


def test_the_first_registration_attempt_is_immediate_and_further_ones_wait_as_in_the_kubelet():
    assert [chosen().timings.registration_wait(attempt) for attempt in range(1, 5)] == pytest.approx([0.0, 0.1, 0.2, 0.4])


def test_an_update_flag_alone_does_not_change_the_report_frequency():
    """The kubelet sets defaults when it has read its file, and applies flags after that."""
    found = chosen(node_status_update_frequency="20s").timings
    assert (found.status_update, found.status_report) == (20, 300)


def test_the_machine_becomes_the_profile_of_the_node():
    found = facts(chosen())
    assert (found.name, found.needs_pod_range, found.taints) == ("node-1", False, (NO_PODS,))
    assert found.profile.huge_pages == {"2Mi": GIB}
    assert (found.profile.cpu_millis, found.profile.memory, found.profile.swap) == (4000, 8 * GIB, GIB)
    assert found.profile.simulated == ""


def test_an_external_cloud_is_one_more_taint_and_others_are_refused():
    found = facts(chosen(own={"cloud_provider": "external", "node_ips": ("10.0.0.1",)}))
    assert (found.taints, found.external_cloud, found.specified_ips) == ((UNINITIALIZED, NO_PODS), True, ("10.0.0.1",))
    assert facts(chosen()).external_cloud is False
    with pytest.raises(UsageError, match="cloud-provider"):
        chosen(own={"cloud_provider": "aws"})


@pytest.mark.parametrize(
    ("given", "addresses"),
    [
        (("2001:0DB8::1",), ("2001:db8::1",)),
        (("::ffff:10.0.0.1",), ("10.0.0.1",)),
        ((" 10.0.0.1", "fd00:0::1 "), ("10.0.0.1", "fd00::1")),
        (("010.0.0.1",), ("10.0.0.1",)),
        (("",), ()),
        (("10.0.0.1", ""), ("10.0.0.1",)),
    ],
)
def test_node_addresses_are_read_and_written_as_by_the_kubelet(given, addresses):
    assert chosen(own={"node_ips": given}).observation.node_ips == addresses


def test_paths_follow_the_root_directory():
    assert (str(chosen().root), str(chosen().pki)) == ("/var/lib/kubelet", "/var/lib/kubelet/pki")
    assert str(chosen(own={"root_dir": "/r"}).pki) == "/r/pki"
    assert str(chosen(own={"root_dir": "/r", "cert_dir": "/c"}).pki) == "/c"
    assert chosen().bootstrap is None


def test_own_flags_of_the_agent_are_read():
    found = chosen(own={"certificate_lifetime": 600.0, "exit_without_certificate": 300.0})
    assert (found.timings.certificate_lifetime, found.exit_after) == (600, 300)
    assert (chosen().timings.certificate_lifetime, chosen().exit_after) == (None, 0)
    assert [flag.name for flag in flags.OURS] == ["certificate-lifetime", "exit-without-certificate"]
    assert {flag.name for flag in flags.OURS} & {flag.name for flag in flags.FLAGS} == set()


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        ({"certificate_lifetime": 599.0}, "--certificate-lifetime"),
        ({"hostname_override": "under_score"}, "--hostname-override"),
        ({"node_ips": ("10.0.0.1", "10.0.0.2")}, "--node-ip"),
        ({"node_ips": ("10.0.0.1", "::")}, "--node-ip"),
        ({"node_ips": ("1", "2", "3")}, "--node-ip"),
        ({"node_ips": ("fd00::1%eth0",)}, "--node-ip"),
    ],
)
def test_impossible_values_are_refused_with_the_name_of_the_flag(own, reason):
    with pytest.raises(ValidationError, match=reason):
        chosen(own=own)


def test_without_a_kubeconfig_there_is_no_cluster():
    with pytest.raises(UsageError, match="no cluster"):
        options.options_of(configuration(), Own(), host_name="n")


def test_the_kubelet_api_is_closed_unless_the_configuration_opens_it():
    rules = chosen().kubelet_api.rules  # type: ignore[union-attr]
    assert (rules.anonymous, rules.tokens, rules.reviews) == (False, True, True)
    assert (rules.token_seconds, rules.allowed_seconds, rules.denied_seconds) == (120, 300, 30)
    text = "authentication: {webhook: {enabled: false, cacheTTL: 1m}, x509: {clientCAFile: /ca}}\n"
    api = chosen(text + "authorization: {webhook: {cacheAuthorizedTTL: 1m, cacheUnauthorizedTTL: 2m}}").kubelet_api
    assert api is not None
    assert (api.rules.tokens, api.rules.token_seconds, api.rules.allowed_seconds, api.rules.denied_seconds) == (False, 60, 60, 120)
    assert str(api.client_ca) == "/ca"


@pytest.mark.parametrize(
    ("suite", "name"),
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_AES_128_GCM_SHA256", ""),
        ("TLS_RSA_WITH_RC4_128_SHA", None),
        ("nonsense", None),
    ],
)
def test_cipher_suites_have_the_names_of_go(suite, name):
    assert openssl_cipher(suite) == name
    if name:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(name)


@pytest.mark.parametrize(
    "text",
    [
        "address: somewhere",
        "authorization: {mode: RBAC}",
        "tlsMinVersion: TLS13",
        "tlsCertFile: /c",
        "authentication: {x509: {clientCAFile: ca.crt}}",
        "tlsPrivateKeyFile: /k",
        "tlsCipherSuites: [TLS_RSA_WITH_RC4_128_SHA]",
    ],
)
def test_impossible_api_settings_are_refused_with_the_name_of_the_field(text):
    with pytest.raises(ValidationError) as error:
        chosen(text)
    assert len(error.value.errors) == 1
