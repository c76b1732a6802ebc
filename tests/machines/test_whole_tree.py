"""The guide's cluster of a host that has a machine tree and nothing else: a killed machine, whose pods move, and the parts of others are lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from machine_kit import eventually
from whole_kit import Cluster, clusters, fetched, use_a_tree, web

from kubewright.machines.parts import Parts
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
    """A cluster that does not exist yet, and whose only source of parts is a machine tree."""
    with clusters("m") as (found,):
        use_a_tree(found, parts)
        yield found


def test_pods_of_a_lost_machine_move_and_others_start(cluster: Cluster, parts: Parts, tmp_path: Path) -> None:
    workers, port = served(cluster, parts, tmp_path)
    cluster.machine("kill", "worker-1")
    eventually(lambda: cluster.places("app=web") == [workers[1]] * 2, "the pod of the killed machine to move")
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
    eventually(lambda: not cluster.has_uninitialized_nodes(), "pods to be allowed on all workers")
    cluster.kubectl("apply", "-f", "-", text=WORKLOAD)
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout", "10m")
    port = free_port()
    cluster.call("local", "publish", "--name", cluster.name, f"{port}:30080")
    eventually(lambda: fetched(f"http://localhost:{port}") == "real\n", "the published port")
    eventually(lambda: cluster.balancer("web") != "", "an address of the LoadBalancer Service")
    eventually(lambda: fetched(f"http://{cluster.balancer('web')}") == "real\n", "the LoadBalancer Service")
    return [machine["name"] for machine in made["machines"]][1:], port
