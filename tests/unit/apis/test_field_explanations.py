"""Explanations of fields: every field has one, and its default is the one that the loader sets."""

from __future__ import annotations

import pytest
from apis_documents import KUBE_PROXY, KUBELET

from kubewright.apis import components, kubelet, kubeproxy
from kubewright.apis.findings import Findings
from kubewright.apis.kubeadm import codec
from kubewright.apis.kubeadm.codec import reset_example, upgrade_example
from kubewright.apis.kubeadm.explanations import COMPONENTS, KINDS, ROOTS, every, explain
from kubewright.apis.kubeadm.types import ClusterConfiguration, Etcd, LocalEtcd

_COUNTS = {
    "InitConfiguration": 33,
    "ClusterConfiguration": 82,
    "JoinConfiguration": 37,
    "ResetConfiguration": 16,
    "UpgradeConfiguration": 44,
    "KubeletConfiguration": 162,
    "KubeProxyConfiguration": 73,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_has_a_meaning_a_type_and_a_version(kind):
    found = list(every(kind))
    assert len(found) == len({one.path for one in found})
    assert len(found) == _COUNTS[kind]
    assert all(one.meaning and one.type and one.since for one in found)


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_that_can_be_read_is_found_by_its_path(kind):
    """Walk the schema itself: everything that the decoder accepts has an explanation."""
    struct = ROOTS[kind] if kind in ROOTS else COMPONENTS[kind]
    paths = list(_walked(struct, ""))
    assert len(paths) == _COUNTS[kind]
    assert [path for path in paths if [one.path for one in explain(f"{kind}.{path}")] != [path]] == []


def _walked(struct, prefix):
    for field in struct.fields:
        yield f"{prefix}{field.name}"
        kind = field.kind
        while not hasattr(kind, "fields") and hasattr(kind, "inner"):
            kind = kind.inner
        if hasattr(kind, "fields"):
            yield from _walked(kind, f"{prefix}{field.name}.")


@pytest.mark.parametrize(("kind", "fields", "decode"), [("kubelet", KUBELET, kubelet.decode), ("kube-proxy", KUBE_PROXY, kubeproxy.decode)])
def test_explanations_of_components_name_the_fields_that_kubeadm_sets(kind, fields, decode):
    told = {one.path: one.default for one in every(fields["kind"]) if one.default.startswith("kubeadm: ")}
    assert len(told) == {"kubelet": 8, "kube-proxy": 3}[kind]
    findings = Findings()
    document = decode({}, findings.root)
    assert all(components.value_at(document, path) in (None, "", False, 0) for path in told)


def leaves(document, prefix=""):
    for name, value in document.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{name}.")
        elif name not in {"apiVersion", "kind"}:
            yield f"{prefix}{name}", value


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        ("ClusterConfiguration", codec.cluster_document(ClusterConfiguration(kubernetes_version="stable-1", etcd=Etcd(local=LocalEtcd())))),
        ("UpgradeConfiguration", upgrade_example()),
        ("ResetConfiguration", {name: value for name, value in reset_example().items() if name != "criSocket"}),
    ],
)
def test_explained_defaults_equal_printed_defaults(kind, document):
    told = {one.path: one.default for one in every(kind)}
    printed = {path: {True: "true", False: "false"}.get(value, value) for path, value in leaves(document)}
    assert len(printed) > 7
    assert {path: told[path] for path in printed} == printed


def test_a_field_is_found_by_path_by_kind_and_by_the_end_of_a_path():
    assert [one.kind for one in explain("etcd.local.dataDir")] == ["ClusterConfiguration"]
    assert [one.path for one in explain("ClusterConfiguration.etcd.local.dataDir")] == ["etcd.local.dataDir"]
    assert [one.path for one in explain("dataDir")] == ["etcd.local.dataDir"]
    assert [one.path for one in explain("bootstrapTokens[0].ttl")] == ["bootstrapTokens.ttl"]
    assert [one.path for one in explain("ResetConfiguration")][:2] == ["cleanupTmpDir", "certificatesDir"]
    assert explain("nothing") == []
    assert explain("") == []


def test_a_field_is_no_older_than_its_parent():
    assert [one.since[:7] for one in explain("patches.directory")] == ["v1beta3", "v1beta3"]
    assert [one.since[:7] for one in explain("apply.patches.directory")] == ["v1beta4"]
