"""The first cluster of a new user, on a host that has a machine tree and nothing else: no debootstrap, no Go, no compiler, an empty cache."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from machine_kit import eventually
from scripts import machine_tree
from whole_kit import Cluster, clusters, fetched, web

from kubewright.base.level import KUBERNETES
from kubewright.binaries.table import native_architecture
from kubewright.machines import images, kit
from kubewright.machines.parts import Parts
from kubewright.machines.tree import contents
from loopback import free_port

WORKLOAD = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      topologySpreadConstraints:
        - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}
      containers:
        - name: web
          image: web:dev
          command: [sh, -c, "mkdir /www; echo real > /www/index.html; exec httpd -f -p 8080 -h /www"]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080, nodePort: 30080}]
"""
CONFIG = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
controllerManager:
  extraArgs: [{name: node-monitor-grace-period, value: 60s}]
apiServer:
  extraArgs: [{name: default-unreachable-toleration-seconds, value: "1"}, {name: default-not-ready-toleration-seconds, value: "1"}]
"""
"""Pods of a lost machine move earlier than they do by default, as the guide says, but not while a busy machine only pauses."""


@pytest.fixture
def cluster(parts: Parts) -> Iterator[Cluster]:
    """A cluster whose only source of parts is a machine tree."""
    with clusters("m") as (found,):
        tree = found.state / "tree" / contents.file_name(version=KUBERNETES, architecture=native_architecture())
        tree.parent.mkdir(mode=0o755)
        described = contents.encode(contents.expected(version=KUBERNETES, architecture=native_architecture()))
        programs = {**kit.programs(contents.NAMES), contents.PAUSE: images.ensure_pause()}
        machine_tree.write(tree, tree=parts.base, programs=programs, licenses={}, described=described, level=1)
        empty = {"XDG_CACHE_HOME": str(found.state / "cache"), "KUBEWRIGHT_CACHE_DIR": "", "KUBEWRIGHT_BINARIES_DIR": str(tree.parent)}
        found.environment |= {**empty, "KUBEWRIGHT_OFFLINE": "1", "KUBEWRIGHT_NO_BUILD": "1"}
        yield found


def test_a_new_user_runs_pods_and_reaches_them(cluster: Cluster, parts: Parts, tmp_path: Path) -> None:
    cluster.call("preflight", "machines")
    workers, _ = served(cluster, parts, tmp_path)
    assert places(cluster) == sorted(workers)

    cluster.down()
    assert cluster.traces() == []


def test_pods_of_a_lost_machine_move_and_others_start(cluster: Cluster, parts: Parts, tmp_path: Path) -> None:
    workers, port = served(cluster, parts, tmp_path)
    cluster.machine("kill", "worker-1")
    eventually(lambda: places(cluster) == [workers[1]] * 2, "the pod of the killed machine to move")
    eventually(lambda: fetched(f"http://localhost:{port}") == "real\n", "the published port without the machine")
    eventually(lambda: fetched(f"http://{cluster.balancer('web')}") == "real\n", "the LoadBalancer Service without the machine")

    # single machines are made from the same file too; each time the parts of the cache are lost
    tree = cluster.environment.pop("KUBEWRIGHT_BINARIES_DIR")
    for verb, machine in (("start", workers[0]), ("add", f"{cluster.name}-worker-3")):
        cluster.environment["XDG_CACHE_HOME"] = str(cluster.state / f"cache-{verb}")
        cluster.call("local", "machine", verb, machine, "--name", cluster.name, "--binaries-dir", tree)
    eventually(lambda: cluster.status()["nodes"]["ready"] == 4, "the killed machine and a new one to be ready")
    cluster.down()
    assert cluster.traces() == []


def served(cluster: Cluster, parts: Parts, directory: Path) -> tuple[list[str], int]:
    """Create the cluster, run the workload, and reach it. Returns the names of the workers, and the port on the host."""
    (directory / "kubeadm.yaml").write_text(CONFIG)
    made = cluster.up("--machines", "--nodes", "2", "--config", str(directory / "kubeadm.yaml"))
    assert (made["state"], made["nodes"]["ready"]) == ("Ready", 3)

    cluster.call("local", "load", "--name", cluster.name, str(web(parts, directory / "web.tar")))
    # kube-controller-manager removes the taint of a Node that has become ready; until then, both pods would be placed on another one
    taints = ("get", "nodes", "-o", "jsonpath={.items[*].spec.taints[*].key}")
    eventually(lambda: "node.kubernetes.io/not-ready" not in cluster.kubectl(*taints), "pods to be allowed on all workers")
    cluster.kubectl("apply", "-f", "-", text=WORKLOAD)
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout", "10m")
    port = free_port()
    cluster.call("local", "publish", "--name", cluster.name, f"{port}:30080")
    eventually(lambda: fetched(f"http://localhost:{port}") == "real\n", "the published port")
    eventually(lambda: cluster.balancer("web") != "", "an address of the LoadBalancer Service")
    eventually(lambda: fetched(f"http://{cluster.balancer('web')}") == "real\n", "the LoadBalancer Service")
    return [machine["name"] for machine in made["machines"]][1:], port


def places(cluster: Cluster) -> list[str]:
    """Return the machines of the pods that are ready and stay, sorted."""
    pods = json.loads(cluster.kubectl("get", "pods", "-l", "app=web", "-o", "json"))["items"]
    return sorted(
        pod["spec"]["nodeName"]
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"] and {"type": "Ready", "status": "True"}.items() <= condition(pod).items()
    )


def condition(pod: dict[str, dict[str, list[dict[str, str]]]]) -> dict[str, str]:
    return next((one for one in pod["status"].get("conditions", []) if one["type"] == "Ready"), {})
