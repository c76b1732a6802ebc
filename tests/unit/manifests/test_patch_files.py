"""Patch files: the meaning of their names, and errors about patches that do not apply."""

from __future__ import annotations

import copy
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base import yaml
from kubewright.base.errors import DocumentError
from kubewright.manifests import patches

KNOWN = patches.targets("v1.36.3")


@pytest.mark.parametrize(
    ("name", "target", "type"),
    [
        ("etcd.yaml", "etcd", "strategic"),
        ("etcd.json", "etcd", "strategic"),
        ("etcd+merge.json", "etcd", "merge"),
        ("etcdbackup.yaml", "etcd", "strategic"),
        ("kube-apiserver.old.yaml", "kube-apiserver", "strategic"),
        ("kube-apiserver0+json.yaml", "kube-apiserver", "json"),
        ("kube-scheduler-extra+strategic.yaml", "kube-scheduler", "strategic"),
        ("kube-scheduler+mergeful.yaml", "kube-scheduler", "merge"),
        ("kubeletconfiguration1.yaml", "kubeletconfiguration", "strategic"),
        ("corednsdeployment.yaml", "corednsdeployment", "strategic"),
    ],
)
def test_names_are_read_as_by_kubeadm(name, target, type):
    assert patches.parse_name(name, known=KNOWN) == patches.Name(target, type)


@pytest.mark.parametrize("name", ["etcd.yml", "etcd", "ETCD.yaml", "README.md", "my-etcd.yaml", "kubeproxydaemonset.yaml", ".yaml"])
def test_other_names_are_no_patches(name):
    assert patches.parse_name(name, known=KNOWN) is None


@pytest.mark.parametrize("name", ["etcd+.yaml", "etcd+patch.yaml", "etcd0+JSON.json"])
def test_an_unknown_type_is_an_error_that_names_the_file(name):
    with pytest.raises(DocumentError, match=re.escape(name)) as caught:
        patches.parse_name(name, known=KNOWN)
    assert "strategic, merge, json" in caught.value.remedy


@pytest.mark.parametrize(("version", "count"), [("v1.35.0", 6), ("v1.36.3", 6), ("v1.37.0-rc.1", 7), ("v1.38.2", 7)])
def test_kube_proxy_can_be_patched_from_1_37_on(version, count):
    assert len(patches.targets(version)) == count


@given(st.text(max_size=30))
def test_any_name_is_a_patch_or_ignored_or_a_proper_error(name):
    try:
        found = patches.parse_name(name, known=KNOWN)
    except DocumentError:
        return
    assert found is None or (found.target in KNOWN and found.type in patches.TYPES)


def of(text, *, name="kube-scheduler.yaml"):
    return patches.Patches(patches.read(patches.parse_name(name, known=KNOWN), text.encode(), source=f"/p/{name}"))


POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kube-scheduler"}, "spec": {"containers": [{"name": "kube-scheduler"}]}}


def test_every_document_of_a_file_is_a_patch():
    found = of("metadata: {labels: {a: b}}\n---\n# nothing\n---\nmetadata: {labels: {c: d}}\n")
    assert [patch.where for patch in found.of("kube-scheduler")] == ["/p/kube-scheduler.yaml:1", "/p/kube-scheduler.yaml:5"]
    assert found.apply("kube-scheduler", POD)["metadata"]["labels"] == {"a": "b", "c": "d"}
    assert found.apply("etcd", POD) == POD


@pytest.mark.parametrize(
    ("name", "text", "detail"),
    [
        ("kube-scheduler.yaml", "[a]", "is a map"),
        ("kube-scheduler+json.yaml", "a: b", "list of operations"),
        ("kube-scheduler+merge.yaml", "kind: Node", "is not a Pod"),
        ("kube-scheduler.yaml", "spec: {hostNetwork: 7}", "spec.hostNetwork"),
        ("kube-scheduler+json.yaml", "[{op: replace, path: '', value: [1]}]", "is not an object"),
    ],
)
def test_an_inapplicable_patch_is_reported_with_its_line(name, text, detail):
    with pytest.raises(DocumentError, match=re.escape(f"/p/{name}:1")) as caught:
        of(text, name=name).apply("kube-scheduler", POD)
    assert detail in caught.value.detail


def test_an_add_on_that_no_server_would_accept_is_refused():
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "coredns"}, "spec": {"replicas": 2}}
    with pytest.raises(DocumentError, match=r"/p/corednsdeployment\.yaml:1") as caught:
        of("spec: {replicas: many}", name="corednsdeployment.yaml").apply("corednsdeployment", deployment)
    assert "spec.replicas" in caught.value.detail


def test_a_file_with_invalid_yaml_is_reported():
    with pytest.raises(DocumentError, match=r"/p/etcd\.yaml"):
        of("a: [", name="etcd.yaml")


DIRECTIVES = ("$patch", "$retainKeys", "$setElementOrder/containers", "$deleteFromPrimitiveList/finalizers", "$setElementOrder/finalizers")
FIELDS = ("metadata", "spec", "containers", "name", "env", "finalizers", "labels", "op", "path", "value", "from", "replicas", *DIRECTIVES)
WORDS = ("replace", "delete", "merge", "add", "test", "move", "copy", "remove", "/spec/containers/-1", "/metadata/finalizers/0", "", "/")
SCALARS = st.none() | st.booleans() | st.integers(-2, 2) | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(WORDS)
BODIES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5),
    max_leaves=25,
)
FULL = {
    **POD,
    "metadata": {"name": "x", "labels": {"a": "b"}, "finalizers": ["a", "b"]},
    "spec": {"containers": [{"name": "a", "env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 80}]}, {"name": "b"}]},
}


@given(BODIES, st.sampled_from(sorted(patches.TYPES)), st.sampled_from(sorted(patches.TARGETS)))
def test_any_patch_is_applied_or_refused(body, type, target):
    before = copy.deepcopy((FULL, body))
    patch = patches.Patch(target=target, type=type, body=body, where="x.yaml:1")
    try:
        found = patches.Patches((patch,)).apply(target, FULL)
    except DocumentError as error:
        assert "x.yaml:1" in error.what
    else:
        assert isinstance(found, dict)
        yaml.dump(found)
    assert (FULL, body) == before


@given(
    st.lists(
        st.fixed_dictionaries({"op": st.sampled_from(WORDS), "path": st.sampled_from(WORDS)}, optional={"value": BODIES, "from": BODIES})
    )
)
def test_any_json_patch_is_applied_or_refused(operations):
    patch = patches.Patch(target="etcd", type="json", body=operations, where="x.yaml:1")
    try:
        patches.Patches((patch,)).apply("etcd", FULL)
    except DocumentError as error:
        assert "x.yaml:1" in error.what
