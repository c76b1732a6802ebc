"""Static pods beyond the reference: local machines, overrides, the user's arguments, mounts, probes, environment."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manifest_cases import COMPONENTS, HOST, configuration_of, places

from kubewright.apis.kubeadm.types import Arg, Configuration, EnvVar, ExternalEtcd, HostPathMount
from kubewright.apis.machine import Addresses, Detected, Layout, Ports
from kubewright.base import yaml
from kubewright.base.durations import MINUTE, SECOND, Duration
from kubewright.base.records import fields, replace
from kubewright.manifests import static_pods
from kubewright.manifests.pods import external_etcd

LOCAL_PORTS = Ports(
    api_server=16443,
    etcd_client=12379,
    etcd_peer=12380,
    etcd_metrics=12381,
    controller_manager=20257,
    scheduler=20259,
    kubelet=20250,
    kubelet_health=20248,
)
LOCAL = Addresses(advertise="127.0.0.11", loopback="127.0.0.11", etcd_loopback="127.0.0.11", ports=LOCAL_PORTS)
LOCAL_LAYOUT = Layout.below(PurePosixPath("/tmp/x"))
NO_FACTS = Detected(host_name="node1")


def minimal() -> Configuration:
    return configuration_of("ipv4-minimal")


def with_settings(component: str, **settings: object) -> Configuration:
    """The minimal configuration with settings of one component."""
    configuration = minimal()
    cluster = configuration.cluster
    if component == "etcd":
        local = replace(cluster.etcd.local, **settings)
        return replace(configuration, cluster=replace(cluster, etcd=replace(cluster.etcd, local=local)))
    name = {"kube-apiserver": "api_server", "kube-controller-manager": "controller_manager", "kube-scheduler": "scheduler"}[component]
    changed = replace(getattr(cluster, name), **settings)
    return replace(configuration, cluster=replace(cluster, **{name: changed}))


def rendered(component: str, configuration: Configuration, **options: Any):
    layout, addresses = places(configuration)
    return static_pods.render(component, configuration, layout, addresses, options.pop("detected", HOST), **options)


def container(component: str, configuration: Configuration, **options: Any):
    return rendered(component, configuration, **options)["spec"]["containers"][0]


def local_text(component: str) -> str:
    return yaml.dump(static_pods.render(component, minimal(), LOCAL_LAYOUT, LOCAL, NO_FACTS))


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_local_machine_has_no_default_path_address_or_port(component):
    text = local_text(component)
    kubeadms = Layout()
    for place in (kubeadms.kubernetes, kubeadms.etcd_data, kubeadms.kubelet, kubeadms.run):
        assert str(place) not in text
    assert "127.0.0.1" not in text.replace("127.0.0.11", "")
    assert not set(map(int, re.findall(r"(?<![\d.])\d{4,5}(?![\d.])", text))) & set(ports_of(Ports()))
    assert "::1" not in text


def ports_of(ports: Ports) -> list[int]:
    return [getattr(ports, one.name) for one in fields(ports)]


def test_each_component_of_a_local_machine_is_probed_at_its_own_port():
    pods = {name: static_pods.render(name, minimal(), LOCAL_LAYOUT, LOCAL, NO_FACTS) for name in COMPONENTS}
    found = {name: (pod["spec"]["containers"][0]["ports"][0]["containerPort"], probe_of(pod)["host"]) for name, pod in pods.items()}
    assert found == {
        "kube-apiserver": (16443, "127.0.0.11"),
        "kube-controller-manager": (20257, "127.0.0.11"),
        "kube-scheduler": (20259, "127.0.0.11"),
        "etcd": (12381, "127.0.0.11"),
    }
    commands = {name: pod["spec"]["containers"][0]["command"] for name, pod in pods.items()}
    assert "--secure-port=20257" in commands["kube-controller-manager"]
    assert "--secure-port=20259" in commands["kube-scheduler"]
    assert "--etcd-servers=https://127.0.0.11:12379" in commands["kube-apiserver"]
    assert "--listen-client-urls=https://127.0.0.11:12379" in commands["etcd"]
    assert "--initial-cluster=node1=https://127.0.0.11:12380" in commands["etcd"]


def probe_of(pod):
    return pod["spec"]["containers"][0]["livenessProbe"]["httpGet"]


def test_overrides_replace_and_add_defaults_in_the_order_of_names():
    command = container("kube-scheduler", minimal(), overrides={"leader-elect": "false", "kube-api-qps": "1000"})["command"]
    assert command == [
        "kube-scheduler",
        "--authentication-kubeconfig=/etc/kubernetes/scheduler.conf",
        "--authorization-kubeconfig=/etc/kubernetes/scheduler.conf",
        "--bind-address=127.0.0.1",
        "--kube-api-qps=1000",
        "--kubeconfig=/etc/kubernetes/scheduler.conf",
        "--leader-elect=false",
    ]


def test_arguments_of_the_user_override_and_come_last_in_their_order():
    configuration = with_settings(
        "kube-scheduler", extra_args=(Arg(name="v", value="2"), Arg(name="leader-elect", value=""), Arg(name="leader-elect", value="maybe"))
    )
    command = container("kube-scheduler", configuration, overrides={"leader-elect": "false", "v": "9"})["command"]
    assert command[-3:] == ["--v=2", "--leader-elect=", "--leader-elect=maybe"]
    assert sum(argument.startswith(("--leader-elect", "--v=")) for argument in command) == 3


def test_the_metrics_address_of_etcd_decides_about_its_probes_override_or_argument():
    overridden = {"listen-metrics-urls": "https://127.0.0.11:2381"}
    plain = container("etcd", minimal(), overrides=overridden)
    assert plain["livenessProbe"]["httpGet"] == {"host": "127.0.0.11", "path": "/livez", "port": "probe-port", "scheme": "HTTPS"}
    mine = with_settings("etcd", extra_args=(Arg(name="listen-metrics-urls", value="http://10.0.0.5:9999"),))
    asked = container("etcd", mine, overrides=overridden)
    assert (asked["livenessProbe"]["httpGet"]["host"], asked["ports"][0]["containerPort"]) == ("10.0.0.5", 9999)


@pytest.mark.parametrize(
    ("value", "host", "port", "scheme"),
    [
        ("https://[::]:9379", "::", 9379, "HTTPS"),
        ("http://localhost", "localhost", 2381, "HTTP"),
        ("https://", "127.0.0.1", 2381, "HTTPS"),
        ("http://a:99999", "127.0.0.1", 2381, "HTTP"),
        ("http://[::1", "127.0.0.1", 2381, "HTTP"),
        ("", "127.0.0.1", 2381, "HTTP"),
    ],
)
def test_unset_parts_of_a_metrics_url_are_those_of_kubeadm(value, host, port, scheme):
    found = container("etcd", with_settings("etcd", extra_args=(Arg(name="listen-metrics-urls", value=value),)))
    probe = found["readinessProbe"]["httpGet"]
    assert (probe["host"], found["ports"][0]["containerPort"], probe["scheme"]) == (host, port, scheme)


@pytest.mark.parametrize(
    ("address", "host"), [("0.0.0.0", None), ("::", None), ("", None), ("10.0.0.1", "10.0.0.1"), ("127.0.0.1", "127.0.0.1")]
)
@pytest.mark.parametrize("component", ["kube-controller-manager", "kube-scheduler"])
def test_the_last_bind_address_decides_the_address_of_probes(component, address, host):
    arguments = (Arg(name="bind-address", value="192.0.2.1"), Arg(name="bind-address", value=address))
    probe = container(component, with_settings(component, extra_args=arguments))["startupProbe"]["httpGet"]
    assert probe.get("host") == host


@pytest.mark.parametrize(("component", "otherwise"), [("kube-controller-manager", 10257), ("kube-scheduler", 10259)])
@pytest.mark.parametrize(("port", "moves"), [("20257", True), ("1", True), ("0", False), ("65536", False), ("x", False), ("", False)])
def test_probes_follow_the_port_that_a_user_gives(component, otherwise, port, moves):
    found = container(component, with_settings(component, extra_args=(Arg(name="secure-port", value=port),)))
    [named] = found["ports"]
    assert named["containerPort"] == (int(port) if moves else otherwise)
    assert {found[probe]["httpGet"]["port"] for probe in ("livenessProbe", "startupProbe")} == {named["name"]}


@pytest.mark.parametrize(
    ("patience", "tries"), [(4 * MINUTE, 24), (5 * MINUTE + 5 * SECOND, 31), (1, 1), (10 * SECOND, 1), (0, None), (-5 * SECOND, None)]
)
def test_startup_probes_have_as_many_tries_as_the_timeout_needs(patience, tries):
    configuration = minimal()
    timeouts = replace(configuration.init.timeouts, control_plane_component_health_check=Duration(patience))
    configuration = replace(configuration, init=replace(configuration.init, timeouts=timeouts))
    probe = container("kube-apiserver", configuration)["startupProbe"]
    assert probe.get("failureThreshold") == tries


def test_an_authorization_config_replaces_the_mode():
    configuration = with_settings("kube-apiserver", extra_args=(Arg(name="authorization-config", value="/a.yaml"),))
    command = container("kube-apiserver", configuration)["command"]
    assert not [argument for argument in command if argument.startswith("--authorization-mode")]


@pytest.mark.parametrize(
    ("names", "mounted"),
    [
        (("/opt/etcd/ca/a.crt", "/opt/etcd/b.crt", "/srv/k/c.key"), ["/opt/etcd", "/srv/k"]),
        (("/opt/etcd/b.crt", "/opt/etcd/ca/a.crt", "/opt/etcd/c.key"), ["/opt/etcd"]),
        (("/etc/kubernetes/pki/etcd/a.crt", "/etc/ssl/certs/b.crt", "/etc/pki/tls/certs/x/c.key"), []),
        (("/srv/etcd/a.crt", "/srv/etcd-old/b.crt", ""), ["/srv/etcd"]),
        (("/srv//etcd/../x/a.crt", "", ""), ["/srv/x"]),
        (("a.crt", "", ""), []),
    ],
)
def test_directories_of_an_external_etcd_are_mounted_once(names, mounted):
    ca, certificate, key = names
    found = external_etcd(ExternalEtcd(ca_file=ca, cert_file=certificate, key_file=key), PurePosixPath("/etc/kubernetes/pki"))
    assert [(mount.name, mount.host_path) for mount in found] == [(f"etcd-certs-{i}", path) for i, path in enumerate(mounted)]


def test_files_of_an_external_etcd_that_are_not_given_are_no_flags():
    configuration = configuration_of("external-etcd")
    external = ExternalEtcd(endpoints=("http://a:2379",))
    etcd = replace(configuration.cluster.etcd, external=external)
    configuration = replace(configuration, cluster=replace(configuration.cluster, etcd=etcd))
    flags = [argument for argument in container("kube-apiserver", configuration)["command"] if argument.startswith("--etcd")]
    assert flags == ["--etcd-servers=http://a:2379"]
    with pytest.raises(ValueError, match="external"):
        rendered("etcd", configuration)


def test_the_last_volume_of_a_name_is_used_even_against_defaults():
    first = HostPathMount(name="k8s-certs", host_path="/a", mount_path="/a")
    second = HostPathMount(name="k8s-certs", host_path="/b", mount_path="/c", path_type="Directory")
    pod = rendered("kube-apiserver", with_settings("kube-apiserver", extra_volumes=(first, second)), detected=NO_FACTS)
    assert pod["spec"]["volumes"][1] == {"hostPath": {"path": "/b", "type": "Directory"}, "name": "k8s-certs"}
    assert pod["spec"]["containers"][0]["volumeMounts"][1] == {"mountPath": "/c", "name": "k8s-certs"}
    assert len(pod["spec"]["volumes"]) == 2


def test_proxy_variables_reach_all_but_etcd_and_those_of_the_user_override_them():
    detected = Detected(host_name="node1", proxy_environment={"no_proxy": "a", "HTTP_PROXY": "b"})
    extra = (EnvVar(name="no_proxy", value="mine"), EnvVar(name="EMPTY"))
    found = {name: container(name, with_settings(name, extra_envs=extra), detected=detected).get("env") for name in COMPONENTS}
    expected = [{"name": "EMPTY"}, {"name": "HTTP_PROXY", "value": "b"}, {"name": "no_proxy", "value": "mine"}]
    assert found == {**dict.fromkeys(COMPONENTS, expected), "etcd": [expected[0], expected[2]]}


def test_renderers_share_nothing_between_calls():
    first, second = rendered("etcd", minimal()), rendered("etcd", minimal())
    first["spec"]["containers"][0]["command"].append("--changed")
    first["metadata"]["labels"]["changed"] = "yes"
    assert second == rendered("etcd", minimal())


def test_an_unknown_component_is_refused():
    with pytest.raises(KeyError):
        rendered("kubelet", minimal())


NEVER_READ = "\x7f\ufffe\uffff" + "".join(map(chr, {*range(0x80, 0xA0)} - {0x85}))
"""Characters that no YAML parser of Kubernetes accepts, and that are refused when they are written."""
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=NEVER_READ), max_size=30)
arguments = st.builds(Arg, name=texts, value=texts)
mounts = st.builds(HostPathMount, name=texts, host_path=texts, mount_path=texts, read_only=st.booleans(), path_type=texts)
variables = st.builds(EnvVar, name=texts, value=texts)


@given(
    st.sampled_from(COMPONENTS[:3]),
    st.lists(arguments, max_size=4),
    st.lists(mounts, max_size=3),
    st.lists(variables, max_size=3),
    st.dictionaries(texts, texts, max_size=3),
)
def test_any_manifest_is_read_back_equal(component, args, extra, env, overrides):
    configuration = with_settings(component, extra_args=tuple(args), extra_volumes=tuple(extra), extra_envs=tuple(env))
    pod = rendered(component, configuration, overrides=overrides)
    assert yaml.load(yaml.dump(pod)) == pod
    command = pod["spec"]["containers"][0]["command"]
    assert command[len(command) - len(args) :] == [f"--{arg.name}={arg.value}" for arg in args]
