"""What pods, Services and ports do in clusters of machines with IPv6, asked from a host that may be a network namespace."""

from __future__ import annotations

import ipaddress
import json
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from machine_kit import eventually
from whole_kit import Cluster

from kubewright.machines.group import bridge_of

DUAL: Final = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
networking: {serviceSubnet: "10.96.0.0/16,fd00:10:96::/112"}
"""
BUSYBOX: Final = "docker.io/library/busybox:test"
NODE_PORT: Final = 30080
"""The Service of all families of the cluster."""
NODE_PORT_6: Final = 30066
"""The Service of IPv6 alone."""
_WORKLOAD: Final = f"""\
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: web}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      tolerations: [{{operator: Exists}}]
      terminationGracePeriodSeconds: 0
      containers:
        - name: web
          image: IMAGE
          command: [sh, -c, "mkdir /www; echo real > /www/index.html; exec httpd -f -p '[::]:8080' -h /www"]
          ports: [{{containerPort: 8080, hostPort: 9090}}]
---
apiVersion: v1
kind: Service
metadata: {{name: balanced}}
spec:
  type: LoadBalancer
  ipFamilyPolicy: PreferDualStack
  selector: {{app: web}}
  ports: [{{port: 80, targetPort: 8080, nodePort: {NODE_PORT}}}]
---
apiVersion: v1
kind: Service
metadata: {{name: six}}
spec:
  type: NodePort
  ipFamilies: [IPv6]
  selector: {{app: web}}
  ports: [{{port: 80, targetPort: 8080, nodePort: {NODE_PORT_6}}}]
"""
_PLACES: Final = "{range .items[*]}{.metadata.name}{' '}{.spec.nodeName}{range .status.podIPs[*]}{' '}{.ip}{end}{'\\n'}{end}"


def run_workload(cluster: Cluster, image: str = BUSYBOX) -> None:
    """Run a pod on each machine, and Services for them."""
    cluster.kubectl("apply", "-f", "-", text=_WORKLOAD.replace("IMAGE", image))
    cluster.kubectl("rollout", "status", "daemonset/web", "--timeout", "10m")


def check_both(cluster: Cluster, made: dict[str, Any], *, enter: Sequence[str] = ()) -> None:
    """The nodes, pods and Services of two machines are reached by IPv4 and by IPv6. `enter` runs a command on their host."""
    both = [machine["addresses"] for machine in made["machines"]]
    assert [families(addresses) for addresses in both] == [[4, 6], [4, 6]]
    assert all(ipaddress.ip_address(six).is_private for _, six in both)
    nodes = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    given = [[row["address"] for row in node["status"]["addresses"] if row["type"] == "InternalIP"] for node in nodes]
    assert sorted(given) == sorted(both)

    pods = [line.split() for line in cluster.kubectl("get", "pods", "-l", "app=web", "-o", f"jsonpath={_PLACES}").splitlines()]
    assert [families(addresses) for _, _, *addresses in pods] == [[4, 6], [4, 6]]
    for node, addresses in ((pods[0][1], pods[1][2:]), (pods[1][1], pods[0][2:])):
        for address in addresses:
            answers(partial(in_network_of_pod, cluster, node, url(address, 8080)), f"the pod at {address} in the other one")
    services = json.loads(cluster.kubectl("get", "services", "balanced", "six", "-o", "json"))["items"]
    for address in (one for service in services for one in service["spec"]["clusterIPs"]):
        answers(partial(in_network_of_pod, cluster, pods[0][1], url(address, 80)), f"the Service at {address} in a pod")
        answers(partial(_in_machine, cluster, url(address, 80)), f"the Service at {address} in a machine")
    for address in (one for addresses in both for one in addresses):
        answers(partial(on_host, enter, url(address, NODE_PORT)), f"the NodePort at {address}")
        answers(partial(on_host, enter, url(address, 9090)), f"the hostPort at {address}")
    eventually(lambda: families(balanced(cluster)) == [4, 6], "the addresses of the LoadBalancer Service")
    for address in balanced(cluster):
        answers(partial(on_host, enter, url(address, 80)), f"the LoadBalancer Service at {address}")
        eventually(lambda address=address: _via(cluster, address, enter) in both[1], f"{address} to be on the worker")


def answers(ask: Callable[[], str], what: str) -> None:
    eventually(lambda: ask() == "real\n", what)


def balanced(cluster: Cluster) -> list[str]:
    """Return the addresses of the LoadBalancer Service."""
    return cluster.kubectl("get", "service", "balanced", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}").split()


def families(addresses: Sequence[str]) -> list[int]:
    return [ipaddress.ip_address(one).version for one in addresses]


def url(address: str, port: int) -> str:
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def in_network_of_pod(cluster: Cluster, node: str, target: str) -> str:
    """Return what a machine's web pod would fetch: its image has no client that knows IPv6."""
    script = 'exec nsenter -t "$(pidof -s httpd)" -n "$@"'
    return cluster.inside(node.removeprefix(f"{cluster.name}-"), "sh", "-c", script, "sh", *_get(target), check=False).stdout


def on_host(enter: Sequence[str], target: str) -> str:
    """Return what the host fetches."""
    return _output(*enter, *_get(target))


def _in_machine(cluster: Cluster, target: str) -> str:
    """Return what a machine, not a pod, fetches."""
    return cluster.inside("worker-1", *_get(target), check=False).stdout


def _via(cluster: Cluster, address: str, enter: Sequence[str]) -> str:
    """Return the machine to which the host sends packets for an address, '' for none."""
    version = f"-{ipaddress.ip_address(address).version}"
    rows = json.loads(_output(*enter, "ip", version, "-j", "route", "show", address, "dev", bridge_of(cluster.group)) or "[]")
    return next((str(row["gateway"]) for row in rows if "gateway" in row), "")


def _get(target: str) -> tuple[str, ...]:
    return ("curl", "--noproxy", "*", "-gsm", "5", target)


def _output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout
