"""Clusters of whole machines with IPv6: next to IPv4, and alone; side by side, and next to a cluster of processes."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from machine_kit import eventually
from whole_kit import Cluster, clusters, fetched

from kubewright.local.whole.members import HOST_NAME
from kubewright.machines.group import bridge_of
from kubewright.machines.parts import Parts
from kubewright.machines.running import run
from loopback import free_port

DUAL = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
networking: {serviceSubnet: "10.96.0.0/16,fd00:10:96::/112"}
"""
ALONE = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
networking: {podSubnet: "fd00:11:244::/56", serviceSubnet: "fd00:11:96::/112"}
"""
WORKLOAD = """\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      tolerations: [{operator: Exists}]
      terminationGracePeriodSeconds: 0
      containers:
        - name: web
          image: docker.io/library/busybox:test
          command: [sh, -c, "mkdir /www; echo real > /www/index.html; exec httpd -f -p '[::]:8080' -h /www"]
          ports: [{containerPort: 8080, hostPort: 9090}]
---
apiVersion: v1
kind: Service
metadata: {name: balanced}
spec:
  type: LoadBalancer
  ipFamilyPolicy: PreferDualStack
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080, nodePort: 30080}]
---
apiVersion: v1
kind: Service
metadata: {name: six}
spec:
  type: NodePort
  ipFamilies: [IPv6]
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080, nodePort: 30066}]
"""
PLACES = "{range .items[*]}{.metadata.name}{' '}{.spec.nodeName}{range .status.podIPs[*]}{' '}{.ip}{end}{'\\n'}{end}"


@pytest.fixture
def three(parts: Parts) -> Iterator[tuple[Cluster, Cluster, Cluster]]:
    """Three clusters that do not exist yet."""
    with clusters("d", "s", "q") as (dual, alone, processes):
        yield dual, alone, processes


def test_pods_and_services_of_both_families(three: tuple[Cluster, Cluster, Cluster], parts: Parts, tmp_path: Path) -> None:
    dual, alone, processes = three
    published = free_port()
    made = up(dual, DUAL, tmp_path, "--nodes", "1", "--publish", f"{published}:30066")
    both = [machine["addresses"] for machine in made["machines"]]
    assert [families(addresses) for addresses in both] == [[4, 6], [4, 6]]
    assert all(ipaddress.ip_address(six).is_private for _, six in both)
    dual.kubectl("apply", "-f", "-", text=WORKLOAD)
    dual.kubectl("rollout", "status", "daemonset/web", "--timeout", "10m")
    nodes = json.loads(dual.kubectl("get", "nodes", "-o", "json"))["items"]
    given = [[row["address"] for row in node["status"]["addresses"] if row["type"] == "InternalIP"] for node in nodes]
    assert sorted(given) == sorted(both)

    pods = [line.split() for line in dual.kubectl("get", "pods", "-l", "app=web", "-o", f"jsonpath={PLACES}").splitlines()]
    assert [families(addresses) for _, _, *addresses in pods] == [[4, 6], [4, 6]]
    for node, addresses in ((pods[0][1], pods[1][2:]), (pods[1][1], pods[0][2:])):
        for address in addresses:
            answers(partial(in_network_of_pod, dual, node, url(address, 8080)), f"the pod at {address} in the other one")
    services = json.loads(dual.kubectl("get", "services", "balanced", "six", "-o", "json"))["items"]
    for address in (one for service in services for one in service["spec"]["clusterIPs"]):
        answers(partial(in_network_of_pod, dual, pods[0][1], url(address, 80)), f"the Service at {address} in a pod")
        answers(partial(in_machine, dual, url(address, 80)), f"the Service at {address} in a machine")
    for address in (one for addresses in both for one in addresses):
        answers(partial(fetched, url(address, 30080)), f"the NodePort at {address}")
        answers(partial(fetched, url(address, 9090)), f"the hostPort at {address}")
    answers(partial(fetched, f"http://127.0.0.1:{published}"), "a published port of a Service of IPv6")
    eventually(lambda: families(balanced(dual)) == [4, 6], "the addresses of the LoadBalancer Service")
    for address in balanced(dual):
        answers(partial(fetched, url(address, 80)), f"the LoadBalancer Service at {address}")
        eventually(lambda address=address: dual.via(address) in both[1], f"{address} to be on the worker")
    assert dual.up()["changes"] == []

    made = up(alone, ALONE, tmp_path)
    (address,) = made["machines"][0]["addresses"]
    assert families([address]) == [6]
    # two clusters of machines and one of processes, side by side
    assert processes.up("--nodes", "0")["kind"] == "processes"
    wanted = dict.fromkeys((dual.name, alone.name, processes.name), "Ready")
    eventually(lambda: listed_states(processes) == wanted, "all clusters to be listed as ready")
    processes.down()
    alone.kubectl("apply", "-f", "-", text=WORKLOAD)
    alone.kubectl("rollout", "status", "daemonset/web", "--timeout", "10m")
    answers(partial(fetched, url(address, 30080)), "the NodePort of the other cluster")
    eventually(lambda: families(balanced(alone)) == [6], "the address of its LoadBalancer Service")
    answers(partial(fetched, url(balanced(alone)[0], 80)), "its LoadBalancer Service")
    alone.call("local", "publish", "--name", alone.name, f"[::]:{published}:30080")
    answers(partial(in_network_of_pod, alone, f"{alone.name}-control-plane", f"http://{HOST_NAME}:{published}"), "the host in a pod")
    alone.machine("kill", "control-plane")
    assert [change["target"] for change in alone.up()["changes"] if change["target"].startswith("machine ")] == [
        f"machine {alone.name}-control-plane"
    ]
    answers(partial(fetched, url(address, 30080)), "the NodePort after the machine has come back")

    alone.down()
    dual.down()
    assert dual.traces() == alone.traces() == []
    left = run("chroot", str(parts.base), "nft", "list", "tables") + run("ip", "-6", "route", "show", "table", "all")
    assert [name for name in (bridge_of(dual.group), bridge_of(alone.group)) if name in left] == []


def listed_states(cluster: Cluster) -> dict[str, str]:
    """Return the states of all clusters in the directory of one. A busy machine may answer late, so that a cluster is not ready for a moment."""
    rows = json.loads(cluster.call("local", "list", "-o", "json").stdout)["clusters"]
    return {row["name"]: row["state"] for row in rows}


def answers(ask: Callable[[], str], what: str) -> None:
    eventually(lambda: ask() == "real\n", what)


def in_machine(cluster: Cluster, target: str) -> str:
    """Return what a machine, not a pod, fetches."""
    return cluster.inside("worker-1", *get(target), check=False).stdout


def up(cluster: Cluster, config: str, directory: Path, *words: str) -> dict[str, Any]:
    path = directory / f"{cluster.name}.yaml"
    path.write_text(config)
    return cluster.up("--machines", "--config", str(path), *words)


def balanced(cluster: Cluster) -> list[str]:
    """Return the addresses of the LoadBalancer Service."""
    return cluster.kubectl("get", "service", "balanced", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}").split()


def families(addresses: list[str]) -> list[int]:
    return [ipaddress.ip_address(one).version for one in addresses]


def url(address: str, port: int) -> str:
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def get(target: str) -> tuple[str, ...]:
    return ("curl", "--noproxy", "*", "-gsm", "5", target)


def in_network_of_pod(cluster: Cluster, node: str, target: str) -> str:
    """Return what a machine's web pod would fetch: its image has no client that knows IPv6."""
    script = 'exec nsenter -t "$(pidof -s httpd)" -n "$@"'
    return cluster.inside(node.removeprefix(f"{cluster.name}-"), "sh", "-c", script, "sh", *get(target), check=False).stdout
