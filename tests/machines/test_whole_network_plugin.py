"""`up --machines --cni none`: machines without a network for pods, until the user installs a network plugin."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from machine_kit import eventually
from whole_kit import Cluster, clusters

from kubewright.machines.parts import Parts

CONFIGURATION = "/etc/cni/net.d/10-user.conflist"


@pytest.fixture
def cluster(parts: Parts) -> Iterator[Cluster]:
    """A cluster that does not exist yet."""
    with clusters("c") as (found,):
        yield found


def test_nodes_become_ready_when_the_user_installs_a_network_plugin(cluster: Cluster) -> None:
    made = cluster.up("--machines", "--nodes", "0", "--cni", "none")
    (node,) = made["nodes"]["list"]
    assert (made["cni"], made["state"], node["phase"]) == ("none", "NotReady", "NetworkPluginNotReady")
    assert f"no network plugin runs on {node['name']}" in made["problem"]
    shown = cluster.call("local", "status", cluster.name).stdout
    assert shown.startswith(f"cluster {cluster.name}: NotReady, Kubernetes {made['kubernetesVersion']}, 0 of 1 nodes ready, --cni none\n")
    assert made["problem"] in shown

    assert cluster.inside("control-plane", "ls", "-A", "/etc/cni/net.d").stdout == ""
    assert {"bridge", "host-local", "loopback", "portmap"} <= set(cluster.inside("control-plane", "ls", "/opt/cni/bin").stdout.split())
    assert "table ip kubewright" not in cluster.inside("control-plane", "nft", "list", "tables").stdout
    eventually(lambda: set(phases(cluster)) == {"Pending"}, "pods of CoreDNS that are pending")
    refused = cluster.call("up", "--name", cluster.name, "--cni", "default", check=False)
    assert (refused.returncode, "was created with --cni none, not default" in refused.stderr) == (1, True), refused.stderr
    assert cluster.up("--cni", "none")["changes"] == []

    given = ("get", "node", node["name"], "-o", "jsonpath={.spec.podCIDR}")
    eventually(lambda: cluster.kubectl(*given) != "", "a range for the pods of the Node")
    share = cluster.kubectl(*given)
    cluster.inside("control-plane", "sh", "-c", f"cat > {CONFIGURATION}", text=conflist(share))
    cluster.kubectl("wait", "--for=condition=Ready", f"node/{node['name']}", "--timeout", "10m")
    cluster.kubectl("rollout", "status", "-n", "kube-system", "deployment/coredns", "--timeout", "10m")
    eventually(lambda: cluster.status()["state"] == "Ready", "the cluster to be ready")
    again = cluster.up()
    assert (again["changes"], again["cni"], again["problem"]) == ([], "none", "")

    cluster.down()
    assert cluster.traces() == []


def phases(cluster: Cluster) -> list[str]:
    """Return the phases of CoreDNS's pods."""
    return cluster.kubectl("get", "pods", "-n", "kube-system", "-l", "k8s-app=kube-dns", "-o", "jsonpath={.items[*].status.phase}").split()


def conflist(share: str) -> str:
    """Return the configuration of a network plugin whose pods have the addresses of a Node's range."""
    ipam = {"type": "host-local", "subnet": share, "routes": [{"dst": "0.0.0.0/0"}]}
    plugins = [{"type": "bridge", "bridge": "user0", "isGateway": True, "ipam": ipam}]
    return json.dumps({"cniVersion": "1.0.0", "name": "user", "plugins": plugins})
