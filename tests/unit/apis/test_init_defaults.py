"""kubeadm's defaults: node name, socket, address, tokens, endpoint, names in certificates, versions; flags that override them, and other layouts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

import pytest
from apis_documents import MACHINE, cluster, field_errors, init, load, load_case

from kubewright.apis.kubeadm.features import enabled, key_algorithm
from kubewright.apis.kubeadm.overrides import InitOverrides, refuse_flags_with_config
from kubewright.apis.machine import Detected, Layout
from kubewright.base.durations import Duration
from kubewright.base.errors import UsageError
from kubewright.base.randomness import SeededRandom
from kubewright.base.records import replace

_TOKEN = "abcdef.0123456789abcdef"
_BARE = Detected(host_name="Host.Example ", default_ipv4="10.98.0.11")


def _init(*values: Mapping[str, object], **keywords: object):
    return load(*values, **keywords).configuration.init


def _cluster(*values: Mapping[str, object], **keywords: object):
    return load(*values, **keywords).configuration.cluster


def test_the_node_name_is_the_host_name_trimmed_and_in_lower_case():
    assert _init(cluster(), detected=_BARE).node_registration.name == "host.example"
    assert _init(init(nodeRegistration={"name": " Node1\t"}), detected=_BARE).node_registration.name == "node1"


def test_a_machine_without_a_name_gets_a_hint_where_to_set_one():
    assert field_errors(cluster(), detected=Detected(host_name=" ", default_ipv4="10.0.0.1")) == [("nodeRegistration", "Required value")]


@pytest.mark.parametrize(
    ("found", "socket"),
    [
        ((), "unix:///var/run/containerd/containerd.sock"),
        (("unix:///var/run/crio/crio.sock",), "unix:///var/run/crio/crio.sock"),
    ],
)
def test_an_unset_socket_is_the_existing_one_or_that_of_containerd(found, socket):
    assert _init(cluster(), detected=replace(MACHINE, cri_sockets=found)).node_registration.cri_socket == socket


def test_several_sockets_are_an_error_unless_one_is_chosen_or_detection_is_off():
    several = replace(MACHINE, cri_sockets=("unix:///a", "unix:///b"))
    assert field_errors(cluster(), detected=several) == [("nodeRegistration.criSocket", "Invalid value")]
    assert _init(init(nodeRegistration={"criSocket": "unix:///b"}), detected=several).node_registration.cri_socket == "unix:///b"
    assert _init(cluster(), detected=several, validate_only=True).node_registration.cri_socket.endswith("containerd.sock")


def test_a_socket_without_scheme_gets_one_with_a_warning():
    loaded = load(init(nodeRegistration={"criSocket": "/run/x.sock"}))
    assert loaded.configuration.init.node_registration.cri_socket == "unix:///run/x.sock"
    assert [warning.split(": ")[1] for warning in loaded.warnings[:1]] == ["nodeRegistration.criSocket"]


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("", "10.98.0.11"),
        ("0.0.0.0", "10.98.0.11"),
        ("::", "fd00:98::11"),
        ("192.0.2.7", "192.0.2.7"),
        ("010.098.0.011", "10.98.0.11"),
        ("FD00:0::0001", "fd00::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
    ],
)
def test_the_advertise_address_follows_the_default_route_or_is_taken_as_it_is(given, address):
    assert _init(init(localAPIEndpoint={"advertiseAddress": given})).local_api_endpoint.advertise_address == address


def test_a_machine_with_one_family_uses_it():
    six = replace(MACHINE, default_ipv4=None)
    assert _init(cluster(), detected=six).local_api_endpoint.advertise_address == "fd00:98::11"
    four = replace(MACHINE, default_ipv6=None)
    assert _init(init(localAPIEndpoint={"advertiseAddress": "::"}), detected=four).local_api_endpoint.advertise_address == "10.98.0.11"


def test_a_machine_without_any_route_validates_with_a_warning_but_cannot_run():
    nowhere = Detected(host_name="n")
    loaded = load(cluster(), detected=nowhere, validate_only=True)
    assert loaded.configuration.init.local_api_endpoint.advertise_address == "0.0.0.0"
    assert len(loaded.warnings) == 1
    assert field_errors(cluster(), detected=nowhere) == [("localAPIEndpoint.advertiseAddress", "Invalid value")]


def test_a_loopback_address_is_replaced_by_a_global_one_of_the_loopback_interface():
    document = init(localAPIEndpoint={"advertiseAddress": "127.0.0.1"})
    assert field_errors(document, cluster()) == [("localAPIEndpoint.advertiseAddress", "Invalid value")]
    routed = replace(MACHINE, loopback_global="198.51.100.1")
    assert _init(document, cluster(), detected=routed).local_api_endpoint.advertise_address == "198.51.100.1"


def test_a_local_cluster_may_advertise_loopback():
    overrides = InitOverrides(advertise_address="127.0.0.11")
    found = _init(overrides=overrides, allow_loopback_advertise=True)
    assert found.local_api_endpoint.advertise_address == "127.0.0.11"


@pytest.mark.parametrize("address", ["224.0.0.1", "169.254.1.1", "fe80::1", "255.255.255.255"])
def test_unreachable_addresses_are_refused_when_init_runs(address):
    document = init(localAPIEndpoint={"advertiseAddress": address})
    assert field_errors(document, cluster()) == [("localAPIEndpoint.advertiseAddress", "Invalid value")]
    assert load(document, cluster(), validate_only=True).warnings == []


def test_all_together_with_names_of_checks_is_refused_when_init_runs():
    document = init(nodeRegistration={"ignorePreflightErrors": ["Swap"]})
    flags = InitOverrides(ignore_preflight_errors=["all"])
    assert field_errors(document, cluster(), overrides=flags) == [("nodeRegistration.ignorePreflightErrors", "Invalid value")]
    assert _init(init(), cluster(), overrides=flags).node_registration.ignore_preflight_errors == ("all",)


def test_tokens_get_the_defaults_of_kubeadm_and_a_random_value():
    [token] = _init(init(bootstrapTokens=[{"usages": [], "groups": []}]), cluster()).bootstrap_tokens
    assert re.fullmatch(r"[a-z0-9]{6}\.[a-z0-9]{16}", token.token)
    assert (str(token.ttl), token.usages, token.groups) == (
        "24h0m0s",
        ("signing", "authentication"),
        ("system:bootstrappers:kubeadm:default-node-token",),
    )
    again = _init(init(), cluster(), random=SeededRandom(1)).bootstrap_tokens[0].token
    assert again != token.token
    assert again == _init(init(), cluster(), random=SeededRandom(1)).bootstrap_tokens[0].token


def test_only_a_token_from_flags_has_the_description_of_kubeadm():
    text = "The default bootstrap token generated by 'kubeadm init'."
    assert [token.description for token in _init().bootstrap_tokens] == [text]
    assert [token.description for token in _init(init()).bootstrap_tokens] == [""]
    flags = InitOverrides(token=_TOKEN, token_ttl=Duration(0))
    [token] = _init(overrides=flags).bootstrap_tokens
    assert (token.token, token.ttl, token.description) == (_TOKEN, 0, text)


def test_the_control_plane_taint_is_the_default_and_an_empty_list_means_none():
    [taint] = _init(init()).node_registration.taints
    assert dict(taint) == {"effect": "NoSchedule", "key": "node-role.kubernetes.io/control-plane"}
    assert _init(init(nodeRegistration={"taints": []})).node_registration.taints == ()


@pytest.mark.parametrize(
    ("given", "endpoint"),
    [
        ("", ""),
        ("lb.example.com", "lb.example.com:8443"),
        ("a.b:", "a.b:8443"),
        ("10.0.0.1", "10.0.0.1:8443"),
        ("fd00::1", "[fd00::1]:8443"),
        ("FD00::1", "[FD00::1]:8443"),
        ("[fd00::1]:443", "[fd00::1]:443"),
        ("a.b:443", "a.b:443"),
    ],
)
def test_the_control_plane_endpoint_gets_the_bind_port_if_it_has_none(given, endpoint):
    found = _cluster(init(localAPIEndpoint={"bindPort": 8443}), cluster(controlPlaneEndpoint=given))
    assert found.control_plane_endpoint == endpoint


def test_names_in_the_certificate_of_the_api_server_are_lower_cased():
    assert _cluster(cluster(apiServer={"certSANs": ["A.Example", "*.B"]})).api_server.cert_sans == ("a.example", "*.b")


def test_external_etcd_is_reached_at_its_endpoints_by_default():
    external = {"endpoints": ["https://a:2379"]}
    assert _cluster(cluster(etcd={"external": external})).etcd.external.http_endpoints == ("https://a:2379",)
    external["httpEndpoints"] = ["http://a:2381"]
    assert _cluster(cluster(etcd={"external": external})).etcd.external.http_endpoints == ("http://a:2381",)


def test_a_field_reference_of_an_environment_variable_gets_its_version():
    sources = [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}, {"name": "B", "valueFrom": None}]
    first, second = _cluster(cluster(apiServer={"extraEnvs": sources})).api_server.extra_envs
    assert first.value_from == {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}
    assert second.value_from is None


def test_every_flag_overrides_the_file():
    flags = InitOverrides(
        kubernetes_version="v1.35.1",
        node_name="Flagged",
        advertise_address="192.0.2.9",
        bind_port=7443,
        cert_dir="/flag/pki",
        etcd_data_dir="/flag/etcd",
        control_plane_endpoint="flag.example",
        cri_socket="unix:///flag.sock",
        feature_gates={"PublicKeysECDSA": True},
        image_repository="flag.example/k8s",
        pod_network_cidr="10.10.0.0/16",
        service_cidr="10.20.0.0/16",
        service_dns_domain="flag.local",
        cert_sans=["Flag.SAN"],
        token=_TOKEN,
        certificate_key="00" * 32,
        patches="/flag/patches",
        skip_phases=["addon"],
        ignore_preflight_errors=["Mem"],
        dry_run=True,
    )
    configuration = load_case("custom-paths-sans", overrides=flags).configuration
    machine, found = configuration.init, configuration.cluster
    assert (found.kubernetes_version, found.certificates_dir, found.etcd.local.data_dir) == ("v1.35.1", "/flag/pki", "/flag/etcd")
    assert (found.control_plane_endpoint, found.image_repository) == ("flag.example:7443", "flag.example/k8s")
    assert (found.networking.pod_subnet, found.networking.service_subnet) == ("10.10.0.0/16", "10.20.0.0/16")
    assert (found.networking.dns_domain, found.api_server.cert_sans) == ("flag.local", ("flag.san",))
    assert key_algorithm(found) == "ECDSA-P256"
    assert (machine.node_registration.name, machine.node_registration.cri_socket) == ("flagged", "unix:///flag.sock")
    assert (machine.local_api_endpoint.advertise_address, machine.local_api_endpoint.bind_port) == ("192.0.2.9", 7443)
    assert (machine.certificate_key, machine.patches_directory, machine.dry_run) == ("00" * 32, "/flag/patches", True)
    assert (machine.skip_phases, machine.node_registration.ignore_preflight_errors) == (("addon",), ("Mem",))
    assert [token.token for token in machine.bootstrap_tokens] == [_TOKEN]
    assert found.etcd.local.server_cert_sans == ("etcd.example.com", "192.0.2.20")


def test_flags_that_are_not_given_change_nothing():
    empty = InitOverrides(node_name="", skip_phases=[], ignore_preflight_errors=(), feature_gates={}, cert_sans=())
    assert load_case("custom-paths-sans", overrides=empty) == load_case("custom-paths-sans")


def test_ignored_checks_of_file_and_flags_are_united():
    document = init(nodeRegistration={"ignorePreflightErrors": ["Swap", "Mem"]})
    flags = InitOverrides(ignore_preflight_errors=["Mem", "NumCPU"])
    assert _init(document, overrides=flags).node_registration.ignore_preflight_errors == ("Swap", "Mem", "NumCPU")


def test_ignored_checks_of_a_file_alone_stay_as_they_are():
    document = init(nodeRegistration={"ignorePreflightErrors": ["Swap", "Swap"]})
    assert _init(document).node_registration.ignore_preflight_errors == ("Swap", "Swap")


def test_flags_that_conflict_with_a_file_are_reported_together():
    refuse_flags_with_config(["config", "node-name", "skip-phases", "skip-token-print", "dry-run", "v"])
    with pytest.raises(UsageError, match="--cri-socket, --patches"):
        refuse_flags_with_config(["config", "cri-socket", "patches"])


def test_another_layout_moves_defaults_but_not_given_values():
    layout = Layout.below(PurePosixPath("/state"))
    configuration = load(cluster(), layout=layout, health_address="127.0.0.11", health_port=10249).configuration
    assert configuration.cluster.certificates_dir == "/state/kubernetes/pki"
    assert configuration.cluster.etcd.local.data_dir == "/state/etcd"
    kubelet = configuration.kubelet.document
    assert kubelet["staticPodPath"] == "/state/kubernetes/manifests"
    assert kubelet["authentication"]["x509"]["clientCAFile"] == "/state/kubernetes/pki/ca.crt"
    assert (kubelet["healthzBindAddress"], kubelet["healthzPort"]) == ("127.0.0.11", 10249)
    given = cluster(certificatesDir="/etc/kubernetes/pki", etcd={"local": {"dataDir": "/var/lib/etcd"}})
    kept = load(given, layout=layout).configuration.cluster
    assert (kept.certificates_dir, kept.etcd.local.data_dir) == ("/etc/kubernetes/pki", "/var/lib/etcd")


def test_feature_gates_have_defaults_and_one_of_them_chooses_the_key_algorithm():
    plain = _cluster(cluster(encryptionAlgorithm="ECDSA-P384"))
    assert (enabled(plain, "NodeLocalCRISocket"), enabled(plain, "RootlessControlPlane"), key_algorithm(plain)) == (
        True,
        False,
        "ECDSA-P384",
    )
    off = _cluster(cluster(encryptionAlgorithm="ECDSA-P384", featureGates={"PublicKeysECDSA": False, "NodeLocalCRISocket": True}))
    assert (enabled(off, "NodeLocalCRISocket"), key_algorithm(off)) == (True, "RSA-2048")
