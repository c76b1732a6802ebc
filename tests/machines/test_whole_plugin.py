"""The pytest plugin with a cluster of one machine: an image is loaded, its pod runs, and the run leaves nothing on the host."""

from __future__ import annotations

from pathlib import Path

from whole_kit import Cluster, web

from kubewright.machines.parts import Parts
from plugin_kit import Project, remove_all

CONFIG = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
skipPhases: [addon]
"""
"""A cluster without DNS and Services, which the pod does not need."""
TEST = """
import time

import pytest
from kubewright.kube.resources import named

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {
        "containers": [{"name": "web", "image": "docker.io/library/web:dev", "command": ["sh", "-c", "echo ready > /message; exit 7"]}],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
    },
}
POD["spec"]["containers"][0]["terminationMessagePath"] = "/message"

@pytest.mark.kubewright(machines=True)
def test_pods_run(kubewright_cluster, kubewright_namespace, kubewright_load):
    assert kubewright_load("web.tar") == ["docker.io/library/web:dev"]
    client = kubewright_cluster.client()
    client.create({**POD, "metadata": {"name": "web", "namespace": kubewright_namespace}})
    end, pod = time.monotonic() + 900, {}
    while pod.get("status", {}).get("phase") not in {"Succeeded", "Failed"}:
        assert time.monotonic() < end, pod
        time.sleep(0.2)
        pod = client.get(named("Pod"), "web", kubewright_namespace)
    client.close()
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["message"]) == (7, "ready\\n")

def test_all_tests_share_the_cluster(kubewright_cluster):
    status = kubewright_cluster.status()
    assert (status["kind"], [machine["state"] for machine in status["machines"]]) == ("machines", ["Running"])
    print("GROUP", kubewright_cluster.name)
"""


def test_a_run_has_a_machine_in_which_pods_run_and_leaves_nothing(parts: Parts, place: Path) -> None:
    project = Project(place)
    try:
        web(parts, place / "web.tar")
        project.write("pytest.ini", "[pytest]\nkubewright_nodes = 0\nkubewright_wait = 20m\nkubewright_config = kubeadm.yaml\n")
        project.write("kubeadm.yaml", CONFIG)
        project.write("test_pods.py", TEST)
        done = project.run("--kubewright-need-machines", "-s")
        assert done.code == 0, done.out
        assert done.counts() == {"passed": 2}
        name = done.out.partition("GROUP ")[2].split()[0]
        assert name.startswith("pytest-")
        assert project.left() == Cluster(name, project.state).traces() == []
    finally:
        remove_all(project)
