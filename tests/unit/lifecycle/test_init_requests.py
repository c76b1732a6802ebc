"""From flags and documents to the configuration: coupling of add-ons and phases, refusals, deprecated flags."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from init_kit import DETECTED, asked

import kubewright
from kubewright.apis.kubeadm.overrides import InitOverrides, feature_gates
from kubewright.apis.kubeadm.types import Arg
from kubewright.base.durations import Duration
from kubewright.base.errors import DocumentError, UsageError, ValidationError
from kubewright.base.randomness import SeededRandom
from kubewright.cli.handlers import operation_requests as command
from kubewright.cli.main import main
from kubewright.cli.parsing.parser import parse
from kubewright.cli.rows import commands
from kubewright.lifecycle.init import request
from kubewright.lifecycle.init.request import configure


def configured(asked_for, detected=DETECTED):
    return configure(asked_for, detected=detected, random=SeededRandom())


def of(*argv: str):
    """The request that a command line makes."""
    parsed = parse(["init", *argv], program="kubewright")
    return command.init_request(parsed, only=())


@pytest.mark.parametrize(
    ("skip", "dns", "proxy"),
    [
        ((), False, False),
        (("addon",), True, True),
        (("addon/coredns",), True, False),
        (("addon/kube-proxy", "certs"), False, True),
        (("certs", "kubeconfig"), False, False),
    ],
)
def test_skipping_an_add_on_disables_it_in_the_uploaded_configuration(skip, dns, proxy):
    cluster = configured(asked(overrides=InitOverrides(skip_phases=skip))).configuration.cluster
    assert (cluster.dns.disabled, cluster.proxy.disabled) == (dns, proxy)


def test_strict_serving_certificates_are_requested_and_verified_on_every_machine_of_the_cluster():
    found = configured(of("--serving-certificates", "strict", "--cert-dir", "/pki", "--kubernetes-version", "v1.36.3")).configuration
    assert (found.kubelet.document["serverTLSBootstrap"], found.kubelet.user_supplied) == (True, True)
    assert found.cluster.api_server.extra_args == (Arg(name="kubelet-certificate-authority", value="/pki/ca.crt"),)
    assert of("--serving-certificates", "strict").controllers_image == f"localhost/kubewright:{kubewright.__version__}"
    assert of("--controllers-image", "registry.example/k:1").controllers_image == "registry.example/k:1"
    stock = configured(of("--kubernetes-version", "v1.36.3")).configuration
    assert ("serverTLSBootstrap" in stock.kubelet.document, stock.cluster.api_server.extra_args) == (False, ())


def test_options_of_the_approver_need_it_and_reach_the_request():
    made = of("--serving-certificates=strict", "--client-certificates=strict", "--node-cidrs=10.98.0.0/24,2001:db8::/64")
    assert (made.client_certificates, made.node_cidrs) == ("strict", ("10.98.0.0/24", "2001:db8::/64"))
    assert configured(of("--serving-certificates=strict", "--client-certificates=strict", "--kubernetes-version", "v1.36.3"))
    for flag in ("--client-certificates=strict", "--node-cidrs=10.98.0.0/24"):
        with pytest.raises(UsageError, match=f"{flag.partition('=')[0]}.* needs the approver of certificates"):
            configured(of(flag))
    with pytest.raises(UsageError, match=r'"10\.98\.0\.7" is not a CIDR'):
        of("--node-cidrs=10.98.0.7")
    assert configured(of("--client-certificates=stock", "--kubernetes-version", "v1.36.3"))


WRONG = {
    "--apiserver-advertise-address": "x",
    "--apiserver-bind-port": "70000",
    "--apiserver-cert-extra-sans": "%%",
    "--cert-dir": "rel",
    "--certificate-key": "xyz",
    "--control-plane-endpoint": ":x",
    "--cri-socket": "tcp://%",
    "--feature-gates": "X=true",
    "--ignore-preflight-errors": "all,Swap",
    "--kubernetes-version": "1.36",
    "--node-name": "A_B",
    "--pod-network-cidr": "ten",
    "--service-cidr": "ten",
    "--service-dns-domain": "UP",
    "--token": "abc",
}
"""A value that `init` refuses, by the flag."""


@pytest.mark.parametrize(("flag", "value"), WRONG.items())
def test_a_flag_with_a_value_that_no_field_takes_is_named_as_a_flag(flag, value):
    with pytest.raises(ValidationError) as caught:
        configured(of(flag, value))
    assert caught.value.what == "the command line is not valid"
    assert [error.path.text for error in caught.value.errors] == [flag]
    assert caught.value.remedy == "correct the flags named above"


@pytest.mark.parametrize(
    ("argv", "flags"),
    [
        (("reset", "--cert-dir", "rel", "--plan"), ["--cert-dir"]),
        (("reset", "--cri-socket", "tcp://%", "--plan"), ["--cri-socket"]),
        (("token", "create", "--usages", "x", "--dry-run"), ["--usages", "--groups"]),
        (("token", "create", "--groups", "x", "--dry-run"), ["--groups"]),
        (("config", "images", "list", "--kubernetes-version", "1.36"), ["--kubernetes-version"]),
    ],
)
def test_so_is_one_of_other_commands(capsys, argv, flags):
    assert main([*argv]) != 0
    error, *told, hint, how_to_trace = capsys.readouterr().err.splitlines()
    assert error == "error: the command line is not valid"
    assert [line.split()[0].removesuffix(":") for line in told] == flags
    assert hint == "hint: correct the flags named above"
    assert how_to_trace == "To see the stack trace of this error execute with --v=5 or higher"


def test_errors_name_flags_as_flags_and_fields_of_the_file_as_fields():
    wrong = asked(cluster="networking: {podSubnet: ten}\n", overrides=InitOverrides(node_name="A_B"))
    with pytest.raises(ValidationError) as caught:
        configured(wrong)
    assert {error.path.text for error in caught.value.errors} == {"--node-name", "networking.podSubnet"}
    assert caught.value.remedy == "correct the fields and flags named above"


@pytest.mark.parametrize(
    ("cluster", "skipped"),
    [
        ("dns: {disabled: true}\n", ("addon/coredns",)),
        ("proxy: {disabled: true}\n", ("addon/kube-proxy",)),
        ("dns: {disabled: true}\nproxy: {disabled: true}\n", ("addon/coredns", "addon/kube-proxy")),
        ("", ()),
    ],
)
def test_a_disabled_add_on_skips_its_phase(cluster, skipped):
    assert tuple(configured(asked(cluster=cluster)).configuration.init.skip_phases) == skipped


@pytest.mark.parametrize(("flag", "used"), [((), ("certs",)), (("addon",), ("addon",))])
def test_skipped_phases_of_the_file_count_only_if_the_flag_is_empty(flag, used):
    loaded = configured(asked(init="skipPhases: [certs]\n", overrides=InitOverrides(skip_phases=flag)))
    assert tuple(loaded.configuration.init.skip_phases) == used


def test_a_command_that_detects_no_runtime_uses_the_default_socket():
    crio = DETECTED.__class__(host_name="node1", default_ipv4="10.0.0.1", cri_sockets=("unix:///var/run/crio/crio.sock",))
    sockets = [configured(asked(looks_for_runtime=looks), crio).configuration.init.node_registration.cri_socket for looks in (True, False)]
    assert sockets == ["unix:///var/run/crio/crio.sock", "unix:///var/run/containerd/containerd.sock"]


def test_an_unknown_field_is_a_warning_as_it_is_for_kubeadm():
    loaded = configured(asked(cluster="clusterNamee: x\n"))
    assert len(loaded.warnings) == 1
    assert "clusterNamee" in loaded.warnings[0]


def test_a_wrong_type_is_an_error():
    with pytest.raises(ValidationError):
        configured(asked(cluster="networking: []\n"))


def test_a_version_label_is_not_looked_up_and_means_our_own_version():
    loaded = configured(of("--kubernetes-version", "stable-1"))
    assert loaded.configuration.cluster.kubernetes_version == "v1.36.3"
    assert loaded.warnings == ["kubernetesVersion: stable-1 is not looked up: v1.36.3 is used, the version of this program"]


@pytest.mark.parametrize("text", ["PublicKeysECDSA", "=true", "PublicKeysECDSA=maybe", "a=true,b"])
def test_a_malformed_feature_gate_is_reported(text):
    if text == "=true":
        with pytest.raises(ValidationError):
            configured(of("--feature-gates", text))
        return
    with pytest.raises(UsageError, match="feature-gates"):
        of("--feature-gates", text)


@given(st.dictionaries(st.text("abcXYZ", min_size=1), st.booleans()))
def test_feature_gates_are_read_as_they_are_written(gates):
    assert feature_gates(",".join(f"{name}={str(value).lower()}" for name, value in gates.items())) == gates


@given(st.text(max_size=30))
def test_any_text_for_feature_gates_is_read_or_refused(text):
    try:
        assert all(isinstance(value, bool) for value in feature_gates(text).values())
    except UsageError as error:
        assert error.remedy


FLAGS = {
    "kubernetes-version": ("v1.36.1", lambda c: c.cluster.kubernetes_version, "v1.36.1"),
    "node-name": ("Node7", lambda c: c.init.node_registration.name, "node7"),
    "apiserver-advertise-address": ("192.0.2.7", lambda c: c.init.local_api_endpoint.advertise_address, "192.0.2.7"),
    "apiserver-bind-port": ("7443", lambda c: c.init.local_api_endpoint.bind_port, 7443),
    "apiserver-cert-extra-sans": ("a.example,192.0.2.1", lambda c: tuple(c.cluster.api_server.cert_sans), ("a.example", "192.0.2.1")),
    "cert-dir": ("/pki", lambda c: c.cluster.certificates_dir, "/pki"),
    "certificate-key": ("ab" * 32, lambda c: c.init.certificate_key, "ab" * 32),
    "control-plane-endpoint": ("lb.example:443", lambda c: c.cluster.control_plane_endpoint, "lb.example:443"),
    "cri-socket": ("unix:///x.sock", lambda c: c.init.node_registration.cri_socket, "unix:///x.sock"),
    "feature-gates": ("PublicKeysECDSA=true", lambda c: dict(c.cluster.feature_gates), {"PublicKeysECDSA": True}),
    "ignore-preflight-errors": (
        "Swap,Mem",
        lambda c: sorted(n.lower() for n in c.init.node_registration.ignore_preflight_errors),
        ["mem", "swap"],
    ),
    "image-repository": ("registry.example/k8s", lambda c: c.cluster.image_repository, "registry.example/k8s"),
    "pod-network-cidr": ("10.244.0.0/16", lambda c: c.cluster.networking.pod_subnet, "10.244.0.0/16"),
    "service-cidr": ("10.97.0.0/16", lambda c: c.cluster.networking.service_subnet, "10.97.0.0/16"),
    "service-dns-domain": ("corp.local", lambda c: c.cluster.networking.dns_domain, "corp.local"),
    "skip-phases": ("certs", lambda c: tuple(c.init.skip_phases), ("certs",)),
    "token": ("abcdef.0123456789abcdef", lambda c: c.init.bootstrap_tokens[0].token, "abcdef.0123456789abcdef"),
    "token-ttl": ("1h", lambda c: c.init.bootstrap_tokens[0].ttl, Duration.parse("1h")),
    "dry-run": ("true", lambda c: c.init.dry_run, True),
    "serving-certificates": ("strict", lambda c: c.kubelet.document["serverTLSBootstrap"], True),
}


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_reaches_the_configuration(flag):
    text, value, wanted = FLAGS[flag]
    assert value(configured(of(f"--{flag}={text}")).configuration) == wanted


def test_every_flag_of_init_is_tested_or_in_the_request():
    placed = {
        "config",
        "upload-certs",
        "skip-token-print",
        "skip-certificate-key-print",
        "plan",
        "output",
        "patches",
        "adopt",
        "controllers-image",
        "node-cidrs",
        "client-certificates",
    }
    assert {flag.name for flag in commands.TABLE.command("init").flags} == {*FLAGS, *placed}


def test_the_rest_of_the_flags_are_in_the_request():
    made = of("--upload-certs", "--skip-token-print", "--skip-certificate-key-print", "--adopt")
    assert (made.upload_certs, made.skip_token_print, made.skip_certificate_key_print, made.from_file, made.adopt) == (
        True,
        True,
        True,
        False,
        True,
    )
    made = of()
    assert (made.upload_certs, made.skip_token_print, made.skip_certificate_key_print, made.adopt) == (False, False, False, False)
    assert made.overrides == InitOverrides()


def test_the_default_token_of_flags_has_the_description_of_kubeadm():
    (token,) = configured(of()).configuration.init.bootstrap_tokens
    assert token.description == "The default bootstrap token generated by 'kubeadm init'."
    (token,) = configured(asked()).configuration.init.bootstrap_tokens
    assert token.description == ""


def test_flags_that_conflict_with_a_file_are_refused_all_at_once(tmp_path):
    path = tmp_path / "kubeadm.yaml"
    path.write_text("")
    with pytest.raises(UsageError) as caught:
        of("--config", str(path), "--token-ttl=1h", "--cri-socket=unix:///x", "--node-name=n", "--skip-phases=certs", "--plan", "-o=json")
    assert caught.value.what == "--config cannot be combined with --cri-socket, --token-ttl"


def test_plan_and_dry_run_exclude_each_other(capsys):
    assert main(["init", "--plan", "--dry-run"]) == 1
    assert "exclude each other" in capsys.readouterr().err


def test_a_missing_discovery_file_is_reported_by_name(tmp_path):
    with pytest.raises(DocumentError, match="cannot read"):
        of("--config", str(tmp_path / "none.yaml"))


def test_deprecated_flags_set_extra_arguments():
    parsed = parse(
        ["init", "phase", "control-plane", "all", "--apiserver-extra-args=v=4,audit-log-path=/a", "--scheduler-extra-args=v=2"],
        program="kubewright",
    )
    cluster = configured(command.init_request(parsed, only=("control-plane/all",))).configuration.cluster
    found = [
        [(arg.name, arg.value) for arg in part.extra_args] for part in (cluster.api_server, cluster.controller_manager, cluster.scheduler)
    ]
    assert found == [[("v", "4"), ("audit-log-path", "/a")], [], [("v", "2")]]


def test_a_malformed_extra_argument_is_reported():
    with pytest.raises(UsageError, match='apiserver-extra-args: "v" is not name=value'):
        request.extra_arguments({"apiserver": ["v"]})


def test_paths_of_kubeconfigs_are_made_absolute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    parsed = parse(["init", "phase", "kubeconfig", "admin", "--kubeconfig-dir=sub/../here"], program="kubewright")
    assert command.init_request(parsed, only=("kubeconfig/admin",)).kubeconfig_directory == f"{tmp_path}/here"
