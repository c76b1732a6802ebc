"""`config diff` with a real API server that contains what kubeadm v1.36.2 wrote to a cluster."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from kubewright.apis.kubeconfig import EmbeddedCertificate, kubeconfig_document
from kubewright.base import yaml
from kubewright.base.errors import AlreadyExists, NotFound
from kubewright.cli.main import main
from kubewright.kube.client import KubeClient
from kubewright.kube.resources import CONFIG_MAP
from kubewright.lifecycle.config_diff import CONFIG_MAPS

OBJECTS = Path(__file__).parents[1] / "data" / "reference" / "cluster-objects"
NAMES = ("kubeadm-config", "kubelet-config", "kube-proxy")


def remove(admin, name):
    with contextlib.suppress(NotFound):
        admin.delete(CONFIG_MAP, name, "kube-system")


@pytest.fixture
def cluster(apiserver, admin, tmp_path):
    """The three ConfigMaps of kubeadm's cluster, and a kubeconfig of its administrator."""
    with contextlib.suppress(AlreadyExists):
        admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}})
    for name in NAMES:
        remove(admin, name)
        found = json.loads((OBJECTS / f"ConfigMap_kube-system_{name}.json").read_text())
        metadata = {"name": name, "namespace": "kube-system"}
        admin.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": found["data"]})
    identity = apiserver.identity("kubernetes-admin", "system:masters")
    credentials = EmbeddedCertificate(certificate_pem=identity.cert_pem, key_pem=identity.key_pem)
    document = kubeconfig_document(
        server=apiserver.url, cluster_name="kubernetes", user="admin", ca_pem=apiserver.ca_pem, credentials=credentials
    )
    path = tmp_path / "admin.conf"
    path.write_text(yaml.dump(document))
    yield path
    for name in NAMES:
        remove(admin, name)


@pytest.fixture
def diff(cluster, tmp_path, capsys):
    def call(text: str, *more: str) -> tuple[int, str, str]:
        file = tmp_path / "kubeadm.yaml"
        file.write_text(text)
        code = main(["config", "diff", "--config", str(file), "--kubeconfig", str(cluster), *more])
        return (code, *capsys.readouterr())

    return call


ASKED = (OBJECTS / "kubeadm.yaml").read_text()


def test_the_file_that_made_the_cluster_does_not_differ_from_it(diff):
    assert diff(ASKED) == (0, "", "")
    assert diff(ASKED, "-o", "json") == (0, '{\n    "differs": false,\n    "documents": []\n}\n', "")


def test_differences_are_shown_as_a_diff_with_exit_code_1(diff, admin):
    changed = {"data": {"kubelet": admin.get(CONFIG_MAP, "kubelet-config", "kube-system")["data"]["kubelet"] + "maxPods: 250\n"}}
    admin.patch(CONFIG_MAP, "kubelet-config", changed, "kube-system", type="merge")
    code, out, err = diff(ASKED)
    assert (code, err) == (1, "")
    assert out.startswith("--- KubeletConfiguration in kube-system/kubelet-config\n+++ KubeletConfiguration of the file\n@@ ")
    assert [line for line in out.splitlines()[2:] if line[0] in "+-"] == ["-maxPods: 250"]
    code, out, _ = diff(ASKED, "-o", "yaml")
    assert code == 1
    assert yaml.load(out) == {
        "differs": True,
        "documents": [
            {
                "document": "KubeletConfiguration",
                "configMap": "kube-system/kubelet-config",
                "changes": [{"path": "maxPods", "old": 250, "new": None}],
            }
        ],
    }


def test_the_configuration_of_our_own_cluster_does_not_differ_from_itself(kubewright_cluster, tmp_path, capsys):
    admin = KubeClient(kubewright_cluster.access, timeout=600)
    texts = [admin.get(CONFIG_MAP, name, "kube-system")["data"][key] for name, key in CONFIG_MAPS.values()]
    admin.close()
    (tmp_path / "kubeadm.yaml").write_text("---\n".join(texts))
    argv = ["config", "diff", "--config", str(tmp_path / "kubeadm.yaml"), "--kubeconfig", str(kubewright_cluster.kubeconfig)]
    assert main(argv) == 0
    assert capsys.readouterr().out == ""
    (tmp_path / "kubeadm.yaml").write_text("---\n".join(texts).replace("clusterName: kubernetes", "clusterName: blue"))
    assert main([*argv, "-o", "json"]) == 1
    [document] = json.loads(capsys.readouterr().out)["documents"]
    assert document["changes"] == [{"path": "clusterName", "old": "kubernetes", "new": "blue"}]


def test_errors_exit_with_2_or_more(diff, admin, cluster, tmp_path, capsys):
    assert diff("kind: Nonsense\napiVersion: v1\n")[0] == 3
    remove(admin, "kubeadm-config")
    code, out, err = diff(ASKED)
    assert (code, out) == (2, "")
    assert "kube-system/kubeadm-config" in err
    assert main(["config", "diff"]) == 2
    assert main(["config", "diff", "--config", str(tmp_path / "kubeadm.yaml"), "--kubeconfig", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().out == ""
