"""The directory of patches: what is read, what is reported, and whose files are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from init_kit import Box, asked

from kubewright.apis.kubeadm.overrides import InitOverrides
from kubewright.base import yaml
from kubewright.base.errors import DocumentError, HostError, UsageError
from kubewright.base.records import replace
from kubewright.cli.main import main
from kubewright.host.states import FileState, Kind
from kubewright.kube.resources import named
from kubewright.lifecycle import patch_directory


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path / "machine")


@pytest.fixture
def place(tmp_path):
    made = tmp_path / "patches"
    made.mkdir(mode=0o755)
    return made


def wanted(place, *only: str, **more: object):
    return asked(init=f"patches: {{directory: {place}}}\n", only=only, **more)


def put(place, name, text):
    file = Path(place) / name
    file.write_text(text)
    file.chmod(0o644)


def manifest(box, name):
    return yaml.load(Path(box.layout.manifest(name)).read_bytes())


def test_patches_change_manifests_and_are_reported(box, place):
    put(place, "kube-scheduler1.yaml", "metadata: {labels: {a: second}}\n")
    put(place, "kube-scheduler0+json.yaml", "[{op: add, path: /metadata/labels/a, value: first}]\n")
    put(place, "README", "what is this\n")
    put(place, "etcd.yaml", "")
    box.run(wanted(place, "etcd", "control-plane"))
    assert manifest(box, "kube-scheduler")["metadata"]["labels"]["a"] == "second"
    assert box.lines("patches") == [
        f'Reading patches from "{place}"',
        "Using the patch files [kube-scheduler0+json.yaml kube-scheduler1.yaml]",
        "Ignoring the files [README etcd.yaml]: they are empty, or their names are not those of patches",
        'Applied a patch of type "application/json-patch+json" to "kube-scheduler"',
        'Applied a patch of type "application/strategic-merge-patch+json" to "kube-scheduler"',
    ]


def test_the_flag_has_the_effect_of_the_file(box, place, monkeypatch):
    put(place, "etcd.yaml", "metadata: {labels: {a: b}}\n")
    monkeypatch.chdir(place.parent)
    box.run(asked(overrides=InitOverrides(patches="patches"), only=("etcd",)))
    assert manifest(box, "etcd")["metadata"]["labels"]["a"] == "b"


def test_patches_change_the_kubelet_configuration_and_add_ons(box, place):
    put(place, "kubeletconfiguration.yaml", "maxPods: 7\ncontainerRuntimeEndpoint: unix:///other\n")
    put(place, "corednsdeployment.yaml", "spec: {replicas: 5}\n")
    box.run(wanted(place))
    config = yaml.load(Path(box.layout.kubelet_config).read_bytes())
    assert (config["maxPods"], config["containerRuntimeEndpoint"]) == (7, "unix:///var/run/containerd/containerd.sock")
    assert box.kube.get(named("Deployment"), "coredns", "kube-system")["spec"]["replicas"] == 5


def test_kube_proxy_is_patched_if_its_version_is_1_37(box, place):
    put(place, "kubeproxydaemonset.yaml", "spec: {template: {spec: {hostNetwork: false}}}\n")
    found = {}
    for version in ("v1.36.3", "v1.37.0"):
        said = []
        configuration = box.call(wanted(place)).configuration
        cluster = yaml_replace(configuration, version)
        found[version] = len(patch_directory.read(box.machine(box.layout), cluster, say=said.append, user=os.geteuid()).items)
    assert found == {"v1.36.3": 0, "v1.37.0": 1}


def yaml_replace(configuration, version):

    cluster = replace(configuration.cluster, kubernetes_version=version)
    return replace(configuration, cluster=cluster)


def test_no_patch_is_read_by_a_phase_that_needs_none(box, tmp_path):
    box.run(wanted(tmp_path / "nowhere", "certs/ca"))
    assert box.lines("patches") == []


@pytest.mark.parametrize("kind", ["nothing", "file", "link"])
def test_something_other_than_a_patch_directory_is_refused(box, place, tmp_path, kind):
    other = tmp_path / "other"
    if kind == "file":
        other.write_text("")
    elif kind == "link":
        other.symlink_to(place)
    with pytest.raises(UsageError, match="patches cannot be read"):
        box.run(wanted(other, "etcd"))


@pytest.mark.parametrize("what", ["directory", "sub-directory", "file"])
def test_patches_that_others_may_write_are_refused(box, place, what):
    (place / "sub").mkdir(mode=0o755)
    put(place / "sub", "etcd.yaml", "metadata: {labels: {a: b}}\n")
    {"directory": place, "sub-directory": place / "sub", "file": place / "sub" / "etcd.yaml"}[what].chmod(0o775)
    with pytest.raises(HostError, match="others may write to it"):
        box.run(wanted(place, "etcd"))
    assert not Path(box.layout.manifest("etcd")).exists()


def test_a_link_in_place_of_a_patch_is_refused(box, place, tmp_path):
    put(tmp_path, "etcd.yaml", "metadata: {labels: {a: b}}\n")
    (place / "etcd.yaml").symlink_to(tmp_path / "etcd.yaml")
    with pytest.raises(HostError, match="symbolic link"):
        box.run(wanted(place, "etcd"))


class _Foreign:
    """A directory that belongs to user 12345."""

    def state(self, path, /):
        return FileState(kind=Kind.DIRECTORY, mode=0o755, owner=12345)

    def entries(self, path, /):
        raise AssertionError

    read = weakness = entries


@pytest.mark.parametrize("how", ["plain", "link"])
def test_patches_below_a_directory_that_others_may_write_are_refused(box, tmp_path, how):
    """Anyone with write access there can replace this directory by another one."""
    loose = tmp_path / "loose"
    (loose / "patches").mkdir(parents=True, mode=0o755)
    put(loose / "patches", "etcd.yaml", "metadata: {labels: {a: b}}\n")
    loose.chmod(0o777)
    (tmp_path / "link").symlink_to(loose)
    with pytest.raises(HostError) as refused:
        box.run(wanted((loose if how == "plain" else tmp_path / "link") / "patches", "etcd"))
    assert refused.value.what.endswith(f"/patches are not used: others may write to {loose} (mode 0777)")
    assert not Path(box.layout.manifest("etcd")).exists()
    loose.chmod(0o1777)  # like /tmp: nobody can replace our directory
    box.run(wanted(loose / "patches", "etcd"))
    assert manifest(box, "etcd")["metadata"]["labels"]["a"] == "b"


@pytest.mark.parametrize("user", [0, 1000])
def test_patches_of_other_users_are_refused(box, place, user):
    with pytest.raises(HostError, match="belongs to user 12345"):
        patch_directory.read(_Foreign(), box.call(wanted(place)).configuration, say=lambda _: None, user=user)


def test_an_inapplicable_patch_leaves_no_manifest(box, place):
    put(place, "etcd+json.yaml", "[{op: remove, path: /nothing}]\n")
    with pytest.raises(DocumentError, match=r"etcd\+json\.yaml:1"):
        box.run(wanted(place, "etcd"))
    assert not Path(box.layout.manifest("etcd")).exists()


def test_a_printed_add_on_with_patches_is_yaml(place, tmp_path, capsys):
    put(place, "corednsdeployment.yaml", "spec: {replicas: 5}\n")
    file = tmp_path / "kubeadm.yaml"
    file.write_text(
        "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.2\n---\n"
        f"apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\npatches: {{directory: {place}}}\n"
        "localAPIEndpoint: {advertiseAddress: 10.98.0.11}\n"
    )
    assert main(["init", "phase", "addon", "coredns", "--print-manifest", "--config", str(file)]) == 0
    printed = [document.value for document in yaml.load_all(capsys.readouterr().out)]
    assert [(body["kind"], body["spec"]["replicas"]) for body in printed[:1]] == [("Deployment", 5)]
    assert len(printed) == 6
