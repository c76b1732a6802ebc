"""Reading documents strictly: every unknown field, wrong type and bad value at once, each with its path and line; scalars as Go reads them."""

from __future__ import annotations

import pytest
from apis_documents import MACHINE, cluster, field_errors, init, load, load_text

from kubewright.apis.findings import MOST_SHOWN
from kubewright.apis.kubeadm import explanations, node_types, types
from kubewright.apis.kubeadm.whole_files import load_whole
from kubewright.apis.schema import Struct
from kubewright.base import records
from kubewright.base.errors import ValidationError
from kubewright.base.yaml import dump, load_all

_WRONG = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localApiEndpoint:
  advertiseAddress: 10.98.0.11
nodeRegistration:
  name: n
  imagePullSerial: "yes"
  kubeletExtraArgs:
  - name: v
    valeu: "4"
timeouts:
  discovery: 5x
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.2
apiServer:
  extraArgs:
    v: "2"
  certSANS: [a]
networking: 10.96.0.0/12
zebra: 1
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPodz: 42
maxPods: many
"""


# Documents of components give errors only in addition to a ClusterConfiguration.
_BESIDE = dict.fromkeys(
    ("KubeletConfiguration", "KubeProxyConfiguration"), "---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"
)


def _table():
    found = []
    pending = [types.INIT, types.CLUSTER, node_types.JOIN, node_types.RESET, node_types.UPGRADE]
    while pending:
        struct = pending.pop()
        found.append(struct)
        kinds = [getattr(field.kind, "inner", field.kind) for field in struct.fields]
        pending += [kind for kind in kinds if isinstance(kind, Struct)]
    return found


def test_all_errors_of_all_documents_are_reported_at_once_in_file_order():
    with pytest.raises(ValidationError) as caught:
        load_text(_WRONG)
    assert [(error.path.text, error.type.value, error.source) for error in caught.value.errors] == [
        ("localApiEndpoint", "Unknown field", "kubeadm.yaml:3:1"),
        ("nodeRegistration.name", "Wrong type", "kubeadm.yaml:6:3"),
        ("nodeRegistration.imagePullSerial", "Wrong type", "kubeadm.yaml:7:3"),
        ("nodeRegistration.kubeletExtraArgs[0].valeu", "Unknown field", "kubeadm.yaml:10:5"),
        ("timeouts.discovery", "Invalid value", "kubeadm.yaml:12:3"),
        ("apiServer.extraArgs", "Wrong type", "kubeadm.yaml:18:3"),
        ("apiServer.certSANS", "Unknown field", "kubeadm.yaml:20:3"),
        ("networking", "Wrong type", "kubeadm.yaml:21:1"),
        ("zebra", "Unknown field", "kubeadm.yaml:22:1"),
        ("maxPodz", "Unknown field", "kubeadm.yaml:26:1"),
        ("maxPods", "Wrong type", "kubeadm.yaml:27:1"),
    ]
    assert caught.value.what == "kubeadm.yaml is not valid"


def test_an_unknown_field_gives_a_suggestion():
    with pytest.raises(ValidationError) as caught:
        load_text(_WRONG)
    meant = {error.path.text: error.reason for error in caught.value.errors if error.type.value == "Unknown field"}
    assert meant == {
        "localApiEndpoint": 'did you mean "localAPIEndpoint"?',
        "nodeRegistration.kubeletExtraArgs[0].valeu": 'did you mean "value"?',
        "apiServer.certSANS": 'did you mean "certSANs"?',
        "zebra": "",
        "maxPodz": 'did you mean "maxPods"?',
    }


def test_unknown_and_repeated_fields_are_warnings_when_not_strict():
    text = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.1\nkubernetesVersion: v1.36.2\nx: 1\n"
    loaded = load_text(text, strict=False)
    assert len(loaded.warnings) == 2
    assert "kubernetesVersion: Duplicate value" in loaded.warnings[0]
    assert "x: Unknown field" in loaded.warnings[1]
    assert loaded.configuration.cluster.kubernetes_version == "v1.36.2"


def test_unknown_and_repeated_fields_are_errors_when_strict():
    text = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.1\nkubernetesVersion: v1.36.2\nx: 1\n"
    with pytest.raises(ValidationError) as caught:
        load_text(text)
    assert [(error.path.text, error.type.value) for error in caught.value.errors] == [
        ("kubernetesVersion", "Duplicate value"),
        ("x", "Unknown field"),
    ]


def test_wrong_types_are_errors_even_when_not_strict():
    assert field_errors(cluster(networking=[]), strict=False) == [("networking", "Wrong type")]


def test_rules_about_unreadable_values_are_skipped_and_others_still_run():
    wrong = cluster(etcd={"external": {"endpoints": "https://a:1", "certFile": "/b", "keyFile": 5}}, certificatesDir="pki")
    assert field_errors(wrong) == [
        ("etcd.external.endpoints", "Wrong type"),
        ("etcd.external.keyFile", "Wrong type"),
        ("certificatesDir", "Invalid value"),
    ]


@pytest.mark.parametrize(
    "document",
    [
        init(certificateKey="s3cr3t"),
        init(certificateKey=["s3cr3t"]),
        init(bootstrapTokens=[{"token": "s3cr3t"}]),
        init(bootstrapTokens=[{"token": {"s3cr3t": 1}}]),
        init(bootstrapTokens=["s3cr3t"]),
        init(bootstrapTokens="s3cr3t"),
        init(timeouts={"discovery": "abcdef.012345678s3cr3t0"}),
        init(localAPIEndpoint={"bindPort": "abcdef.0123456789s3cr3t"}),
    ],
)
def test_secrets_never_appear_in_errors(document):
    with pytest.raises(ValidationError) as caught:
        load(document, cluster())
    assert len(caught.value.errors) == 1
    assert "s3cr3t" not in f"{caught.value} {caught.value.as_map()}"


@pytest.mark.parametrize(
    ("scalar", "port"),
    [("6443", 6443), ("0x192B", 6443), ("016053", 7211), ("6443.0", 6443), ("6e3", 6000), ("~", 6443), ("0", 6443)],
)
def test_integers_are_read_as_go_reads_them(scalar, port):
    text = f"apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nlocalAPIEndpoint: {{bindPort: {scalar}}}\n"
    loaded = load_text(text + "---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.2\n")
    assert loaded.configuration.init.local_api_endpoint.bind_port == port


@pytest.mark.parametrize(
    ("scalar", "kind"),
    [
        ("1:47:23", "Wrong type"),
        ('"6443"', "Wrong type"),
        ("6443.5", "Wrong type"),
        ("yes", "Wrong type"),
        ("2026-01-02", "Wrong type"),
        ("1e30", "Wrong type"),
        ("4294967296", "Invalid value"),
        ("70000", "Invalid value"),
    ],
)
def test_ports_that_go_refuses_are_refused(scalar, kind):
    text = f"apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nlocalAPIEndpoint: {{bindPort: {scalar}}}\n"
    with pytest.raises(ValidationError) as caught:
        load_text(text, validate_only=True)
    assert [(error.path.text, error.type.value) for error in caught.value.errors] == [("localAPIEndpoint.bindPort", kind)]


@pytest.mark.parametrize(("scalar", "value"), [("on", True), ("y", True), ("No", False), ("off", False), ("~", True), ("false", False)])
def test_booleans_are_read_as_go_reads_them(scalar, value):
    text = f"apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nnodeRegistration: {{imagePullSerial: {scalar}}}\n"
    assert load_text(text).configuration.init.node_registration.image_pull_serial is value


@pytest.mark.parametrize("scalar", ["n", "y", "yes", "12", "1.5", "true"])
def test_a_name_that_yaml_reads_as_something_else_is_a_wrong_type(scalar):
    text = f"apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nnodeRegistration: {{name: {scalar}}}\n"
    with pytest.raises(ValidationError) as caught:
        load_text(text)
    assert [(error.path.text, error.type.value) for error in caught.value.errors] == [("nodeRegistration.name", "Wrong type")]


@pytest.mark.parametrize("name", ["2026-01-02", "12:30"])
def test_dates_and_clock_times_stay_strings(name):
    text = f"apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nclusterName: {name}\n"
    assert load_text(text).configuration.cluster.cluster_name == name


@pytest.mark.parametrize("empty", [None, "", [], {}])
def test_zero_values_are_defaulted_or_refused_by_type(empty):
    text_fields = cluster(imageRepository=empty, clusterName=empty)
    if empty is None or empty == "":
        loaded = load(text_fields)
        assert (loaded.configuration.cluster.image_repository, loaded.configuration.cluster.cluster_name) == (
            "registry.k8s.io",
            "kubernetes",
        )
    else:
        assert field_errors(text_fields) == [("imageRepository", "Wrong type"), ("clusterName", "Wrong type")]


def test_zero_durations_and_false_that_are_given_are_kept():
    given = init(timeouts={"discovery": "0s"}, nodeRegistration={"imagePullSerial": False}, bootstrapTokens=[{"ttl": "0s"}])
    found = load(given, cluster()).configuration.init
    assert found.timeouts.discovery == 0
    assert found.node_registration.image_pull_serial is False
    assert found.bootstrap_tokens[0].ttl == 0
    assert str(found.timeouts.etcd_api_call) == "2m0s"


def test_the_tables_and_the_structs_have_the_same_fields():
    tables = _table()
    assert len({table.make for table in tables}) == 29
    for table in tables:
        targets = [field.attribute for field in table.fields]
        attributes = {field.name for field in records.fields(table.make)} - {"ci_image_repository", "ci_kubernetes_version", "made_up"}
        assert len(targets) == len(attributes)
        assert set(targets) == attributes


@pytest.mark.parametrize("kind", explanations.KINDS)
def test_every_wrong_field_is_reported_with_the_position_of_its_name(kind):
    """A value that fits no field, in every field: the position is the line and column of the field's name."""
    groups = {"KubeletConfiguration": "kubelet.config.k8s.io/v1beta1", "KubeProxyConfiguration": "kubeproxy.config.k8s.io/v1alpha1"}
    paths = [found.path for found in explanations.every(kind)]
    tops = [path for path in paths if "." not in path]
    text = dump({"apiVersion": groups.get(kind, "kubeadm.k8s.io/v1beta4"), "kind": kind, **{name: [[["x"]]] for name in tops}})
    with pytest.raises(ValidationError) as caught:
        load_whole(load_all(text + _BESIDE.get(kind, ""), source="f.yaml"), detected=MACHINE)
    told = {error.path.text.partition("[")[0]: error.source for error in caught.value.errors}
    assert set(tops) <= set(told)
    for name, source in told.items():
        file, line, column = source.split(":")
        assert file == "f.yaml"
        assert text.splitlines()[int(line) - 1][int(column) - 1 :].startswith((f"{name}:", "- "))


_ENTRIES = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.2
apiServer:
  certSANs: [a.example, B_ad, c.example]
  extraArgs:
  - name: v
  - value: "4"
etcd:
  local:
    dataDir: /d
    peerCertSANs:
    - one
    - "two words"
featureGates:
  RootlessControlPlane: false
  Rootless: true
"""


def test_an_error_about_one_entry_has_the_position_of_the_entry():
    with pytest.raises(ValidationError) as caught:
        load_text(_ENTRIES)
    assert [(error.path.text, error.source) for error in caught.value.errors] == [
        ("apiServer.certSANs", "kubeadm.yaml:5:25"),
        ("apiServer.extraArgs", "kubeadm.yaml:8:5"),
        ("etcd.local.peerCertSANs", "kubeadm.yaml:14:7"),
        ("featureGates", "kubeadm.yaml:17:3"),
    ]


def test_only_the_first_of_thousands_of_errors_are_reported():
    names = [f"a_{number}" for number in range(1000)]
    with pytest.raises(ValidationError) as caught:
        load(cluster(apiServer={"certSANs": names}))
    assert [error.value for error in caught.value.errors] == names[:MOST_SHOWN]
    assert caught.value.detail.splitlines()[-1] == "... and more"
    with pytest.raises(ValidationError) as caught:
        load(cluster(**{f"clusterNames{number}": 1 for number in range(MOST_SHOWN + 1)}))
    assert (len(caught.value.errors), caught.value.is_cut) == (MOST_SHOWN, True)


def test_no_further_errors_are_announced_if_all_are_reported():
    with pytest.raises(ValidationError) as caught:
        load(cluster(apiServer={"certSANs": [f"a_{number}" for number in range(MOST_SHOWN)]}))
    assert (len(caught.value.errors), caught.value.is_cut, "more" in caught.value.detail) == (MOST_SHOWN, False, False)


def test_a_long_value_is_reported_by_its_length():
    with pytest.raises(ValidationError) as caught:
        load(cluster(apiServer={"certSANs": ["_" * 5000]}))
    assert [error.value for error in caught.value.errors] == ["a string of 5000 characters"]
