"""All kinds of a file together: migration, v1beta3, and relations between the kinds of one file."""

from __future__ import annotations

import pytest
from apis_documents import ALL_CASES, KUBE_PROXY, KUBELET, MACHINE, REFERENCE, V1BETA4, cluster, documents, init
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import parts
from kubewright.apis.kubeadm.whole_files import WholeFile, load_whole
from kubewright.base.errors import ValidationError
from kubewright.base.yaml import dump_all, load_all

_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=6)
V1BETA3 = "kubeadm.k8s.io/v1beta3"
JOIN = {
    "apiVersion": V1BETA4,
    "kind": "JoinConfiguration",
    "discovery": {
        "bootstrapToken": {"token": "abcdef.0123456789abcdef", "apiServerEndpoint": "a.b:6443", "unsafeSkipCAVerification": True}
    },
}
RESET = {"apiVersion": V1BETA4, "kind": "ResetConfiguration"}
UPGRADE = {"apiVersion": V1BETA4, "kind": "UpgradeConfiguration"}


def whole(*values: dict[str, object], **keywords: object) -> WholeFile:
    return load_whole(documents(*values), detected=MACHINE, **keywords)


def errors(*values: dict[str, object]) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as caught:
        whole(*values)
    return [(error.path.text, error.type.value) for error in caught.value.errors]


def old(document):
    return {**document, "apiVersion": V1BETA3}


@pytest.mark.parametrize("name", ["v1beta3", "reset"])
def test_migrations_equal_those_of_kubeadm_byte_for_byte(name):
    text = (REFERENCE / "config-migrate" / f"{name}-input.yaml").read_text()
    found = load_whole(load_all(text), detected=MACHINE, detect_runtime=True)
    assert dump_all(found.documents()) == (REFERENCE / "config-migrate" / f"{name}-output.yaml").read_text()


def test_printed_upgrade_defaults_are_a_fixed_point():
    text = (REFERENCE / "config-print" / "upgrade-defaults.yaml").read_text()
    assert dump_all(load_whole(load_all(text), detected=MACHINE).documents()) == text


def test_kinds_are_written_in_the_order_of_kubeadm_and_components_are_dropped():
    found = whole(UPGRADE, KUBELET, RESET, JOIN, KUBE_PROXY, cluster(), init())
    assert [document["kind"].removesuffix("Configuration") for document in found.documents()] == [
        "Init",
        "Cluster",
        "Join",
        "Reset",
        "Upgrade",
    ]
    assert found.warnings == []


def test_a_file_without_documents_is_valid_and_writes_nothing():
    found = whole()
    assert list(found.documents()) == []
    assert found.warnings == []


def test_errors_of_all_kinds_are_reported_together():
    found = errors(
        cluster(clusterNam="x"),
        {**JOIN, "caCertPath": "ca.crt"},
        {**RESET, "unmountFlags": ["MNT_NONE", "MNT_FORCE", "x"]},
        {**UPGRADE, "apply": {"patches": {}}, "node": {"imagePullPolicy": "never"}},
    )
    assert found == [
        ("clusterNam", "Unknown field"),
        ("caCertPath", "Invalid value"),
        ("unmountFlags", "Invalid value"),
        ("unmountFlags", "Invalid value"),
        ("apply.patches.directory", "Invalid value"),
        ("node.imagePullPolicy", "Invalid value"),
    ]


def test_component_documents_alone_are_accepted_but_their_errors_reported():
    assert whole({**KUBELET, "maxPodz": 1}).warnings == ['kubeadm.yaml:1: maxPodz: Unknown field: did you mean "maxPods"?']


@pytest.mark.parametrize(
    ("given", "expected"), [("6m", "6m0s"), ("4m", "4m0s"), ("0s", "4m0s"), (None, "4m0s")], ids=["longer", "default", "zero", "unset"]
)
def test_a_v1beta3_timeout_for_the_control_plane_applies_to_init_and_join(given, expected):
    found = list(whole(old(cluster(apiServer={"timeoutForControlPlane": given})), JOIN).documents())
    assert [one["timeouts"]["controlPlaneComponentHealthCheck"] for one in (found[0], found[2])] == [expected, expected]
    assert found[1]["apiServer"] == {}


def test_a_component_timeout_of_v1beta4_survives_migration():
    [first, _] = whole(init(timeouts={"controlPlaneComponentHealthCheck": "7m"}), cluster()).documents()
    assert first["timeouts"]["controlPlaneComponentHealthCheck"] == "7m0s"


def test_a_v1beta3_discovery_timeout_becomes_one_of_the_timeouts():
    discovery = {**JOIN["discovery"], "timeout": "3m"}
    [found] = whole(old({**JOIN, "discovery": discovery})).documents()
    assert found["timeouts"]["discovery"] == "3m0s"
    assert "timeout" not in found["discovery"]


def test_fields_that_v1beta3_does_not_have_are_unknown_in_it():
    found = errors(
        old(init(dryRun=True, timeouts={}, nodeRegistration={"imagePullSerial": True})),
        old(cluster(encryptionAlgorithm="RSA-2048", proxy={}, dns={"disabled": True}, apiServer={"extraEnvs": []})),
    )
    cluster_names = ("apiServer.extraEnvs", "dns.disabled", "encryptionAlgorithm", "proxy")
    assert sorted(found) == sorted(
        (name, "Unknown field") for name in (*cluster_names, "dryRun", "timeouts", "nodeRegistration.imagePullSerial")
    )


def test_a_list_of_arguments_is_no_v1beta3_map_and_vice_versa():
    assert errors(old(cluster(scheduler={"extraArgs": [{"name": "v", "value": "1"}]}))) == [("scheduler.extraArgs", "Wrong type")]
    assert errors(cluster(scheduler={"extraArgs": {"v": "1"}})) == [("scheduler.extraArgs", "Wrong type")]


def test_kinds_that_v1beta3_does_not_have_are_unknown():
    with pytest.raises(Exception, match="ResetConfiguration is an unknown kind"):
        whole(old(RESET))


def test_deprecation_is_silent_if_it_is_allowed():
    assert len(whole(old(init()), old(cluster())).warnings) == 2
    assert whole(old(init()), old(cluster()), allow_deprecated=True).warnings == []


def test_a_file_url_of_discovery_becomes_a_path():
    discovery = {"file": {"kubeConfigPath": "file:///etc/a%20b.conf"}}
    found = whole({**JOIN, "discovery": discovery}, exists=lambda path: path == "/etc/a b.conf")
    assert found.join.discovery.file.kube_config_path == "/etc/a b.conf"


def test_only_a_joining_control_plane_gets_a_taint_and_an_address():
    worker = whole(JOIN).join
    plane = whole({**JOIN, "controlPlane": {}}).join
    assert (worker.node_registration.taints, worker.control_plane) == (None, None)
    assert [taint["key"] for taint in plane.node_registration.taints] == ["node-role.kubernetes.io/control-plane"]
    assert (plane.control_plane.local_api_endpoint.advertise_address, plane.control_plane.local_api_endpoint.bind_port) == (
        "10.98.0.11",
        6443,
    )


def test_errors_about_tokens_do_not_show_them():
    with pytest.raises(ValidationError) as caught:
        whole({**JOIN, "discovery": {"bootstrapToken": {"token": "geheim", "apiServerEndpoint": "a:1", "unsafeSkipCAVerification": True}}})
    assert len(caught.value.errors) == 2
    assert "geheim" not in str(caught.value)


def test_a_token_with_expires_has_no_ttl():
    token = {"token": "abcdef.0123456789abcdef", "expires": "2030-01-01T00:00:00Z"}
    [first, _] = whole(init(bootstrapTokens=[token]), cluster()).documents()
    assert first["bootstrapTokens"][0]["expires"] == "2030-01-01T00:00:00Z"
    assert "ttl" not in first["bootstrapTokens"][0]
    assert errors(init(bootstrapTokens=[{**token, "ttl": "1h"}]), cluster()) == [("bootstrapTokens.0", "Invalid value")]


@settings(max_examples=parts.given(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    join=st.fixed_dictionaries({}, optional={"dryRun": st.booleans(), "skipPhases": st.lists(_TEXT), "controlPlane": st.just({})}),
    reset=st.fixed_dictionaries(
        {}, optional={"force": st.booleans(), "criSocket": st.just("unix:///x"), "ignorePreflightErrors": st.lists(_TEXT)}
    ),
    upgrade=st.fixed_dictionaries(
        {}, optional={"dryRun": st.none() | st.booleans(), "printConfig": st.booleans(), "skipPhases": st.lists(_TEXT)}
    ),
)
def test_written_documents_are_read_back_unchanged(join, reset, upgrade):
    first = whole({**JOIN, **join}, {**RESET, **reset}, {**UPGRADE, "apply": upgrade})
    text = dump_all(first.documents())
    again = load_whole(load_all(text), detected=MACHINE)
    assert (again.join, again.reset, again.upgrade) == (first.join, first.reset, first.upgrade)
    assert dump_all(again.documents()) == text


def test_every_document_of_the_reference_is_asserted_somewhere():
    """A new file fails here until a test compares it: here and in tests/compat/test_config_commands.py they are named one by one."""
    printed = {"init-defaults.component-configs", "init-defaults", "join-defaults", "reset-defaults", "upgrade-defaults"}
    assert {path.stem for path in (REFERENCE / "config-print").iterdir()} == printed
    migrated = {"reset-input", "reset-output", "v1beta3-input", "v1beta3-output"}
    assert {path.stem for path in (REFERENCE / "config-migrate").iterdir()} == migrated
    assert {path.name for path in (REFERENCE / "cases").iterdir()} == set(ALL_CASES)
