"""KubeletConfiguration and KubeProxyConfiguration: users' values survive in the form that Go writes, kubeadm's defaults fill the rest."""

from __future__ import annotations

import pytest
from apis_documents import KUBE_PROXY, KUBELET, cluster, field_errors, init, load, load_case

from kubewright.apis import kubelet, kubeproxy, scalars, schema
from kubewright.apis.findings import Findings
from kubewright.apis.kubelet import KUBELET as KUBELET_FIELDS
from kubewright.apis.kubeproxy import KUBE_PROXY as KUBE_PROXY_FIELDS
from kubewright.apis.scalars import Amount


def _kubelet(**fields: object):
    loaded = load(cluster(), {**KUBELET, **fields})
    return loaded.configuration.kubelet.document, loaded.warnings


def _proxy(*, podSubnet: str = "", **fields: object):  # noqa: N803 - named as in the document
    loaded = load(cluster(networking={"podSubnet": podSubnet}), {**KUBE_PROXY, **fields})
    return loaded.configuration.kube_proxy.document, loaded.warnings


def _sample(kind):
    """Create a non-zero value of a kind."""
    if isinstance(kind, schema.Plain):
        return {field.name: _sample(field.kind) for field in kind.fields}
    if isinstance(kind, schema.Pointer):
        return _sample(kind.inner)
    if isinstance(kind, schema.List):
        return [_sample(kind.inner)]
    if isinstance(kind, schema.Map):
        return {"key": _sample(kind.inner)}
    return _SAMPLES[type(kind)]


_SAMPLES = {
    scalars.Text: "text",
    scalars.Flag: True,
    scalars.Integer: 7,
    scalars.Float: 0.5,
    scalars.Span: "1h30m0s",
    scalars.LogSpan: "5s",
    scalars.Moment: "2030-01-01T00:00:00Z",
    Amount: "2Mi",
}


def test_documents_without_user_values_are_marked_as_generated():
    configuration = load(cluster()).configuration
    assert not configuration.kubelet.user_supplied
    assert not configuration.kube_proxy.user_supplied
    given = load(cluster(), KUBELET, KUBE_PROXY).configuration
    assert given.kubelet.user_supplied
    assert given.kube_proxy.user_supplied
    assert given.kubelet.document == configuration.kubelet.document
    assert given.kube_proxy.document == configuration.kube_proxy.document


@pytest.mark.parametrize(
    ("head", "fields", "count"),
    [(KUBELET, KUBELET_FIELDS, 125), (KUBE_PROXY, KUBE_PROXY_FIELDS, 24)],
)
def test_every_field_of_a_user_survives(head, fields, count):
    given = _sample(fields)
    assert len(given) == count
    loaded = load(cluster(), {**head, **given}, strict=True)
    written = loaded.configuration.kubelet if head is KUBELET else loaded.configuration.kube_proxy
    assert written.document == {**head, **given}


@pytest.mark.parametrize(("head", "fields"), [(KUBELET, KUBELET_FIELDS), (KUBE_PROXY, KUBE_PROXY_FIELDS)])
def test_zero_values_are_written_as_by_go(head, fields):
    zero = {name: value for name, value in fields.encode(fields.zero()).items() if value is not None}
    generated = load(cluster()).configuration
    written = load(cluster(), {**head, **zero}).configuration
    assert (written.kubelet.document, written.kube_proxy.document) == (generated.kubelet.document, generated.kube_proxy.document)


def test_nested_values_of_a_user_are_merged_into_the_full_form():
    document, warnings = _kubelet(maxPods=42, authentication={"webhook": {"cacheTTL": "2m"}}, logging={"verbosity": 3})
    assert document["maxPods"] == 42
    assert document["authentication"] == {
        "anonymous": {"enabled": False},
        "webhook": {"cacheTTL": "2m0s", "enabled": True},
        "x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"},
    }
    assert document["logging"]["verbosity"] == 3
    assert document["logging"]["options"]["json"] == {"infoBufferSize": "0"}
    assert document["syncFrequency"] == "0s"
    assert warnings == []


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"staticPodPath": "/x"}, "staticPodPath"),
        ({"clusterDNS": ["1.1.1.1"]}, "clusterDNS"),
        ({"clusterDNS": []}, "clusterDNS"),
        ({"clusterDomain": "x.y"}, "clusterDomain"),
        ({"authentication": {"x509": {"clientCAFile": "/x"}}}, "authentication.x509.clientCAFile"),
        ({"authentication": {"anonymous": {"enabled": True}}}, "authentication.anonymous.enabled"),
        ({"authentication": {"webhook": {"enabled": False}}}, "authentication.webhook.enabled"),
        ({"authorization": {"mode": "AlwaysAllow"}}, "authorization.mode"),
        ({"healthzBindAddress": "0.0.0.0"}, "healthzBindAddress"),
        ({"healthzPort": 0}, "healthzPort"),
        ({"readOnlyPort": 10255}, "readOnlyPort"),
    ],
)
def test_a_kubelet_value_against_the_advice_of_kubeadm_is_kept_with_a_warning(fields, path):
    document, warnings = _kubelet(**fields)
    assert len(warnings) == 1
    assert f"the recommended value for {path} is" in warnings[0]
    [(name, value)] = fields.items()
    assert document.get(name, []) == value or path.count(".")


def test_values_without_advice_are_kept_silently_and_rotation_is_forced():
    document, warnings = _kubelet(cgroupDriver="cgroupfs", rotateCertificates=False, clusterDNS=["10.96.0.10"])
    assert (document["cgroupDriver"], document["rotateCertificates"], warnings) == ("cgroupfs", True, [])


@pytest.mark.parametrize(
    ("subnet", "dns"),
    [("10.96.0.0/16,fd00:10:96::/112", "10.96.0.10"), ("fd00:10:96::/112", "fd00:10:96::a"), ("10.0.0.240/28", "10.0.0.250")],
)
def test_cluster_dns_is_the_tenth_address_of_the_first_service_subnet(subnet, dns):
    configuration = load(cluster(networking={"serviceSubnet": subnet})).configuration
    assert configuration.kubelet.document["clusterDNS"] == [dns]
    assert kubelet.cluster_dns(configuration.cluster) == dns


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"bindAddress": "::"}, "bindAddress"),
        ({"clientConnection": {"kubeconfig": "/x"}}, "clientConnection.kubeconfig"),
        ({"podSubnet": "10.244.0.0/16", "clusterCIDR": "10.0.0.0/8"}, "clusterCIDR"),
    ],
)
def test_a_kube_proxy_value_against_the_advice_of_kubeadm_is_kept_with_a_warning(fields, path):
    _, warnings = _proxy(**fields)
    assert len(warnings) == 1
    assert f"the recommended value for {path} is" in warnings[0]


def test_kube_proxy_binds_in_the_family_of_the_advertise_address_and_takes_the_pod_subnet():
    document, _ = _proxy(podSubnet="10.244.0.0/16")
    assert (document["bindAddress"], document["clusterCIDR"], document["mode"]) == ("0.0.0.0", "10.244.0.0/16", "")
    assert load_case("ipv6-only").configuration.kube_proxy.document["bindAddress"] == "::"


def test_a_cluster_cidr_without_pod_subnet_is_kept_silently():
    document, warnings = _proxy(clusterCIDR="10.0.0.0/8")
    assert (document["clusterCIDR"], warnings) == ("10.0.0.0/8", [])


def test_wrong_types_in_component_documents_are_errors_and_unknown_fields_only_when_strict():
    wrong = ({**KUBELET, "maxPods": "42", "syncFrequency": None, "x": 1}, {**KUBE_PROXY, "conntrack": {"min": 1.5}})
    assert field_errors(cluster(), *wrong, strict=False) == [
        ("maxPods", "Wrong type"),
        ("syncFrequency", "Wrong type"),
        ("conntrack.min", "Wrong type"),
    ]
    assert len(load(cluster(), {**KUBELET, "x": 1}, strict=False).warnings) == 1
    assert field_errors(cluster(), {**KUBELET, "x": 1}) == [("x", "Unknown field")]


@pytest.mark.parametrize(
    ("given", "written"),
    [(0.1, 0.1), (50, 50), (16777217, 16777216), (1.23456789012, 1.2345679), (1e10, 10000000000), (0, 0), (3.5e38, None), (True, None)],
)
def test_small_floats_are_rounded_and_written_as_go_writes_them(given, written):
    fields = {"clientConnection": {"qps": given}}
    if written is None:
        assert len(field_errors(cluster(), {**KUBE_PROXY, **fields})) == 1
    else:
        found = _proxy(**fields)[0]["clientConnection"]["qps"]
        assert (found, type(found)) == (written, type(written))


@pytest.mark.parametrize(("given", "written"), [("1.5Gi", "1536Mi"), (5000, "5k"), (0.5, "500m"), (None, "0")])
def test_quantities_are_written_in_canonical_form(given, written):
    document, _ = _kubelet(logging={"options": {"text": {"infoBufferSize": given}}})
    assert document["logging"]["options"]["text"] == {"infoBufferSize": written}


@pytest.mark.parametrize(("given", "written"), [("5s", "5s"), (5000000000, 5000000000), (None, 0)])
def test_the_flush_frequency_keeps_its_form(given, written):
    document, _ = _kubelet(logging={"flushFrequency": given})
    assert document["logging"]["flushFrequency"] == written


def test_resolv_conf_follows_systemd_resolved_only_on_the_machine_and_only_if_unset():
    document = load(cluster()).configuration.kubelet.document
    assert "resolvConf" not in document
    assert kubelet.for_machine(document, systemd_resolved=False) == document
    assert kubelet.for_machine(document, systemd_resolved=True)["resolvConf"] == "/run/systemd/resolve/resolv.conf"
    assert kubelet.for_machine({**document, "resolvConf": ""}, systemd_resolved=True)["resolvConf"] == ""


@pytest.mark.parametrize(("version", "mode"), [("v1.35.4", ""), ("v1.36.3", ""), ("v1.37.1", "iptables"), ("v1.99.0", "")])
def test_clusters_of_v1_37_store_the_mode_of_kube_proxy(version, mode):
    found = load(cluster(kubernetesVersion=version)).configuration
    assert found.kube_proxy.document["mode"] == mode
    proxy = kubeproxy.decode({"mode": "nftables"}, Findings().root)
    assert kubeproxy.defaulted(proxy, found.cluster, advertise_address="10.0.0.1")[0].document["mode"] == "nftables"


def test_defaulting_does_not_modify_the_document_of_the_user():
    findings = Findings()
    user = kubelet.decode({"maxPods": 1}, findings.root)
    found = load(init(), cluster()).configuration.cluster
    kubelet.defaulted(user, found)
    assert user == kubelet.decode({"maxPods": 1}, findings.root)
    proxy = kubeproxy.decode({}, findings.root)
    kubeproxy.defaulted(proxy, found, advertise_address="10.0.0.1")
    assert proxy == kubeproxy.decode({}, findings.root)
    assert findings.errors == []
