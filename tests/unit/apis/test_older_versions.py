"""Files of kubeadm.k8s.io/v1beta1 and v1beta2, compared with the results of the last kubeadms that read them, one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubewright.apis.kubeadm.loading import load_init, load_join
from kubewright.apis.kubeadm.whole_files import load_whole
from kubewright.apis.machine import Detected
from kubewright.base import yaml
from kubewright.base.errors import ValidationError

DATA = Path(__file__).parents[2] / "data" / "older-versions"
NAMES = sorted(path.stem for path in DATA.glob("*.yaml") if not path.stem.endswith(".v1beta4"))
HERE = Detected(host_name="node1", default_ipv4="10.98.0.11")
CLUSTER = "apiVersion: kubeadm.k8s.io/{version}\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.3\n"
SAID = "kubeadm.k8s.io/{version} {kind} is read as kubeadm {last} read it, and written as kubeadm.k8s.io/v1beta4; kubeadm v1.36 refuses it"
LAST = {"v1beta1": "v1.15", "v1beta2": "v1.22"}


def read(name: str):
    return yaml.load_all((DATA / f"{name}.yaml").read_bytes(), source=name)


def whole(text: str):
    return load_whole(yaml.load_all(text), detected=HERE, allow_deprecated=True)


def test_there_is_a_file_for_each_kind_of_each_version():
    assert len(NAMES) == 9
    assert {name.partition("-")[0] for name in NAMES} == set(LAST)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_migrated_as_by_the_old_kubeadms(name):
    found = load_whole(read(name), detected=HERE, allow_deprecated=True)
    assert yaml.dump_all(found.documents()) == (DATA / f"{name}.v1beta4.yaml").read_text()
    version, kinds = name.partition("-")[0], [document.value["kind"] for document in read(name)]
    said = [SAID.format(version=version, kind=kind, last=LAST[version]) for kind in kinds]
    assert [text.partition(": ")[2] for text in found.warnings if "is read as" in text] == said


@pytest.mark.parametrize("name", NAMES)
def test_an_old_file_has_the_same_effect_as_the_migrated_one(name):
    load = (
        (lambda files: load_init(files, detected=HERE))
        if "Init" in str(read(name)[0].value)
        else (lambda files: load_join(files, detected=HERE))
    )
    assert load(read(name)).configuration == load(read(f"{name}.v1beta4")).configuration


@pytest.mark.parametrize("version", LAST)
def test_obsolete_fields_are_ignored_or_refused(version):
    cluster = CLUSTER.format(version=version)
    found = whole(cluster + "useHyperKubeImage: true\ndns: {type: CoreDNS}\n").warnings
    assert [text.partition(": ")[2] for text in found][1:] == ["useHyperKubeImage: ignored: every component has its own image"]
    assert len(whole(cluster + "useHyperKubeImage: false\n").warnings) == 1
    for wrong, path in (("dns: {type: kube-dns}", "dns.type"), ("useHyperKubeImage: often", "useHyperKubeImage")):
        with pytest.raises(ValidationError) as caught:
            whole(cluster + wrong)
        assert [error.path.text for error in caught.value.errors] == [path]


def test_a_cluster_status_is_ignored():
    status = "---\napiVersion: kubeadm.k8s.io/v1beta2\nkind: ClusterStatus\napiEndpoints: {node1: {advertiseAddress: 10.98.0.11}}\n"
    found = whole(CLUSTER.format(version="v1beta2") + status)
    assert [text.partition(": ")[2].partition(": ")[0] for text in found.warnings][1:] == [
        "kubeadm.k8s.io/v1beta2 ClusterStatus is ignored"
    ]


FIELDS = {
    "certificateKey": ("v1beta2 (Kubernetes 1.15)", f"certificateKey: {'ab' * 32}"),
    "nodeRegistration.ignorePreflightErrors": ("v1beta2 (Kubernetes 1.15)", "nodeRegistration: {ignorePreflightErrors: [Swap]}"),
    "nodeRegistration.imagePullPolicy": ("v1beta3 (Kubernetes 1.22)", "nodeRegistration: {imagePullPolicy: Never}"),
    "skipPhases": ("v1beta3 (Kubernetes 1.22)", "skipPhases: [addon]"),
    "patches": ("v1beta3 (Kubernetes 1.22)", "patches: {directory: /srv}"),
    "timeouts": ("v1beta4 (Kubernetes 1.31)", "timeouts: {}"),
}


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2", "v1beta3"])
@pytest.mark.parametrize("path", FIELDS)
def test_a_too_new_field_is_reported_with_the_first_version_that_has_it(path, version):
    since, text = FIELDS[path]
    documents = f"apiVersion: kubeadm.k8s.io/{version}\nkind: InitConfiguration\n{text}\n---\n{CLUSTER.format(version=version)}"
    if version >= since[: len(version)]:
        assert whole(documents).configuration is not None
        return
    with pytest.raises(ValidationError) as caught:
        whole(documents)
    assert [(error.path.text, error.reason) for error in caught.value.errors] == [(path, f"it exists since {since}")]
