"""Which documents a file may contain: kinds, versions, groups, and how others are treated."""

from __future__ import annotations

import pytest
from apis_documents import KUBE_PROXY, KUBELET, MACHINE, cluster, document_error, documents, init, load, load_text

from kubewright.apis.kubeadm.documents import given
from kubewright.apis.kubeadm.loading import load_init, load_join, load_reset, load_upgrade
from kubewright.apis.kubeadm.whole_files import load_whole
from kubewright.base import yaml
from kubewright.base.errors import DocumentError, ValidationError

_JOIN = {"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "JoinConfiguration"}


def test_one_of_the_two_kinds_may_be_missing():
    assert load(init()).configuration.cluster.kubernetes_version == "v1.36.3"
    assert load(cluster()).configuration.init.node_registration.name == "node1"


def test_a_file_needs_one_of_the_two_kinds():
    error = document_error(KUBELET, KUBE_PROXY)
    assert error.what == "kubeadm.yaml contains no InitConfiguration and no ClusterConfiguration"


def test_an_empty_file_is_refused_but_flags_alone_are_enough():
    with pytest.raises(DocumentError):
        load_init([], detected=MACHINE, from_file=True)
    assert load_init([], detected=MACHINE).configuration.init.node_registration.name == "node1"


def test_a_kind_given_twice_is_refused_in_any_version():
    error = document_error(cluster(), {**cluster(), "apiVersion": "example.com/v1"})
    assert "kind ClusterConfiguration is given twice" in error.detail


def test_a_kind_of_init_is_checked_after_however_many_unknown_kinds():
    unknown = [{"apiVersion": "example.com/v1", "kind": f"Thing{number}"} for number in range(200)]
    error = document_error(*unknown, {**cluster(), "apiVersion": "kubeadm.k8s.io/v1alpha1"}, strict=False)
    assert "kubeadm v1.11 is the last one" in error.detail


@pytest.mark.parametrize(
    ("version", "last"),
    [("v1alpha1", "v1.11"), ("v1alpha2", "v1.12"), ("v1alpha3", "v1.14")],
)
@pytest.mark.parametrize("strict", [True, False])
def test_old_versions_name_the_last_kubeadm_that_migrates_them(version, last, strict):
    error = document_error({**cluster(), "apiVersion": f"kubeadm.k8s.io/{version}"}, strict=strict)
    assert f"kubeadm {last} is the last one" in error.detail


def test_v1beta3_is_read_with_a_warning_for_each_document():
    warnings = load({**init(), "apiVersion": "kubeadm.k8s.io/v1beta3"}, cluster()).warnings
    assert warnings == [
        "kubeadm.yaml:1: kubeadm.k8s.io/v1beta3 InitConfiguration is deprecated; `config migrate` rewrites it as kubeadm.k8s.io/v1beta4"
    ]


@pytest.mark.parametrize(
    ("kind", "version", "since"),
    [("ClusterStatus", "v1alpha3", "v1.22"), ("MasterConfiguration", "v1alpha1", "v1.12"), ("NodeConfiguration", "v1alpha2", "v1.12")],
)
@pytest.mark.parametrize("current", [True, False])
def test_removed_kinds_are_reported_with_release_and_replacement(kind, version, since, current):
    gone = {"apiVersion": "kubeadm.k8s.io/v1beta4" if current else f"kubeadm.k8s.io/{version}", "kind": kind}
    detail = document_error(cluster(), gone, strict=False).detail
    assert f"{since}: " in detail
    assert ("is the last one that can migrate it" in detail) is not current


@pytest.mark.parametrize(("gate", "since"), [("DynamicKubeletConfig", "v1.13"), ("ControlPlaneKubeletLocalMode", "v1.36")])
def test_removed_feature_gates_are_reported_with_the_release(gate, since):
    with pytest.raises(ValidationError) as caught:
        load(cluster(featureGates={gate: True}))
    assert [f"feature gate {gate} was removed in {since}" in error.reason for error in caught.value.errors] == [True]


def test_join_reads_its_own_kind_and_ignores_all_others():
    old = {"apiVersion": "kubeadm.k8s.io/v1beta2", "kind": "ClusterConfiguration"}
    foreign = {"apiVersion": "kubelet.config.k8s.io/v9", "kind": "KubeletConfiguration"}
    token = {"token": "abcdef.0123456789abcdef", "apiServerEndpoint": "a.b:6443", "unsafeSkipCAVerification": True}
    loaded = load_join(documents(old, {**_JOIN, "discovery": {"bootstrapToken": token}}, foreign), detected=MACHINE)
    assert loaded.configuration.discovery.tls_bootstrap_token == token["token"]
    assert len(loaded.warnings) == 2


@pytest.mark.parametrize(("loader", "kind"), [(load_join, "JoinConfiguration"), (load_reset, "ResetConfiguration")])
def test_a_file_without_the_kind_of_the_command_is_refused(loader, kind):
    with pytest.raises(DocumentError) as caught:
        loader(documents(cluster()), detected=MACHINE)
    assert caught.value.what == f"kubeadm.yaml contains no {kind}"


def test_upgrade_refuses_a_file_without_its_kind_and_needs_no_file():
    with pytest.raises(DocumentError):
        load_upgrade(documents(cluster()))
    assert load_upgrade([]).configuration.apply.certificate_renewal is True


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({**KUBELET, "apiVersion": "kubelet.config.k8s.io/v1"}, "convert the document to kubelet.config.k8s.io/v1beta1 by hand"),
        (
            {**KUBE_PROXY, "apiVersion": "kubeproxy.config.k8s.io/v1beta1"},
            "convert the document to kubeproxy.config.k8s.io/v1alpha1 by hand",
        ),
        ({**KUBELET, "kind": "CredentialProviderConfig"}, "only KubeletConfiguration can be used"),
    ],
)
def test_other_versions_of_component_groups_ask_for_conversion(document, reason):
    assert reason in document_error(cluster(), document, strict=False).detail


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        "text",
        {},
        {"kind": "ClusterConfiguration"},
        {"apiVersion": "kubeadm.k8s.io/v1beta4"},
        {"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": ""},
        {"apiVersion": 1, "kind": "ClusterConfiguration"},
        {"apiVersion": "v1", "kind": "ConfigMap"},
        {"apiVersion": "a/b/c", "kind": "X"},
        {"apiVersion": "/v1", "kind": "X"},
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_documents_without_group_version_and_kind_are_refused_everywhere(document, strict):
    assert document_error(cluster(), document, strict=strict).detail.startswith("kubeadm.yaml:1: ")


@pytest.mark.parametrize("api_version", ["example.com/v1", "kubeadm.k8s.io/v1", "kubeadm.k8s.io/v1beta4"])
def test_unknown_kinds_are_errors_when_strict_and_warnings_otherwise(api_version):
    unknown = {"apiVersion": api_version, "kind": "Widget"}
    assert "is an unknown kind" in document_error(cluster(), unknown).detail
    warnings = load(cluster(), unknown, strict=False).warnings
    assert warnings == [f"kubeadm.yaml:1: {api_version} Widget is an unknown kind"]


@pytest.mark.parametrize("api_version", ["kubeadm.k8s.io/v9", "example.com/v1"])
@pytest.mark.parametrize("kind", ["InitConfiguration", "ClusterConfiguration"])
def test_a_kind_that_the_command_reads_is_not_ignored_for_its_unknown_version(kind, api_version):
    other = cluster() if kind == "InitConfiguration" else init()
    error = document_error(other, {"apiVersion": api_version, "kind": kind}, strict=False)
    assert error.detail.count(f"{api_version} {kind} is an unknown kind") == 1


def test_known_kinds_that_init_does_not_use_are_ignored_with_a_warning():
    assert load(cluster(), _JOIN).warnings == ["kubeadm.yaml:1: JoinConfiguration is ignored here"]


def test_all_errors_are_reported_at_once_with_their_lines():
    text = "apiVersion: v1\nkind: A\n---\napiVersion: kubeadm.k8s.io/v1alpha3\nkind: InitConfiguration\n---\nfoo: bar\n"
    with pytest.raises(DocumentError) as caught:
        load_text(text)
    assert [line.partition(": ")[0] for line in caught.value.detail.splitlines()] == ["kubeadm.yaml:1", "kubeadm.yaml:4", "kubeadm.yaml:7"]


def test_a_raw_value_is_found_by_its_path():
    [document] = documents(cluster(etcd={"local": {"dataDir": "/x"}}, certificatesDir=""))
    assert given(document, "etcd.local.dataDir") == "/x"
    assert given(document, "certificatesDir") is None
    assert given(document, "kubernetesVersion.deeper") is None
    assert given(None, "kind") is None


@pytest.mark.parametrize(
    ("head", "named"),
    [
        ("apiVersion: v1\nkind: ConfigMap\n", 'apiVersion "v1" of "ConfigMap"'),
        ("apiVersion: apps/v1\nkind: Deployment\n", "apps/v1 Deployment is an unknown kind"),
        ("apiVersion: a/b/c\nkind: Thing\n", 'apiVersion "a/b/c" of "Thing"'),
        ("kind: Thing\n", 'it has kind "Thing" only'),
        ("apiVersion: a/v1\n", 'it has apiVersion "a/v1" only'),
        ("apiVersion: a/v1\nkind: 5\n", "a/v1 5 is an unknown kind"),
    ],
)
def test_an_object_of_another_group_is_reported(head, named):
    with pytest.raises(DocumentError) as caught:
        load_whole(yaml.load_all(yaml.dump(cluster()) + "---\n" + head, source="kubeadm.yaml"), detected=MACHINE)
    assert caught.value.detail.count(named) == 1
    assert caught.value.detail.count("\n") == 0


@pytest.mark.parametrize("head", ["apiVersion: a/v1\nkind: 5\n", "APIVersion: a/v1\nkind: Foo\n", "apiVersion: a/v1\nkind: true\n"])
def test_invalid_kinds_are_skipped_if_unknown_kinds_are(head):
    text = yaml.dump(init()) + "---\n" + yaml.dump(cluster()) + "---\n" + head
    found = load_init(yaml.load_all(text, source="kubeadm.yaml"), detected=MACHINE, strict=False)
    assert [warning for warning in found.warnings if "is an unknown kind" in warning] == found.warnings
    assert len(found.warnings) == 1


def test_a_known_kind_must_be_valid():
    text = "APIVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"
    with pytest.raises(DocumentError, match="must be spelled like this"):
        load_init(yaml.load_all(text), detected=MACHINE, strict=False)
