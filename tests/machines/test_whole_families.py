"""Clusters of machines side by side, and next to a cluster of processes: one with IPv6 alone, and one without a network for pods (`--cni none`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from families_kit import NODE_PORT, answers, balanced, families, in_network_of_pod, on_host, run_workload, url
from machine_kit import eventually
from whole_kit import Cluster, clusters, machine_changes

from kubewright.local.whole.members import HOST_NAME
from kubewright.machines.group import bridge_of
from kubewright.machines.parts import Parts
from kubewright.machines.running import run
from loopback import free_port

ALONE = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
networking: {podSubnet: "fd00:11:244::/56", serviceSubnet: "fd00:11:96::/112"}
"""
CONFIGURATION = "/etc/cni/net.d/10-user.conflist"


@pytest.fixture
def three(parts: Parts) -> Iterator[tuple[Cluster, Cluster, Cluster]]:
    """Three clusters that do not exist yet."""
    with clusters("s", "c", "q") as (alone, bare, processes):
        yield alone, bare, processes


def test_clusters_side_by_side_with_ipv6_and_with_a_network_plugin_of_the_user(
    three: tuple[Cluster, Cluster, Cluster], parts: Parts, tmp_path: Path
) -> None:
    alone, bare, processes = three
    (tmp_path / "kubeadm.yaml").write_text(ALONE)
    with ThreadPoolExecutor(3) as pool:  # at the same time
        six = pool.submit(alone.up, "--machines", "--config", str(tmp_path / "kubeadm.yaml"))
        none = pool.submit(bare.up, "--machines", "--nodes", "0", "--cni", "none")
        assert pool.submit(processes.up, "--nodes", "0").result()["kind"] == "processes"
        check_without_a_network(bare, none.result())
    (address,) = six.result()["machines"][0]["addresses"]
    assert families([address]) == [6]
    run_workload(alone)
    install_a_network_plugin(bare)
    wanted = dict.fromkeys((alone.name, bare.name, processes.name), "Ready")
    eventually(lambda: listed_states(processes) == wanted, "all clusters to be listed as ready")
    processes.down()
    again = bare.up()
    assert (again["changes"], again["cni"], again["problem"]) == ([], "none", "")
    bare.down()

    check_ipv6(alone, address)
    alone.down()
    assert bare.traces() == alone.traces() == []
    left = run("chroot", str(parts.base), "nft", "list", "tables") + run("ip", "-6", "route", "show", "table", "all")
    assert [name for name in (bridge_of(alone.group), bridge_of(bare.group)) if name in left] == []


def check_without_a_network(cluster: Cluster, made: dict[str, Any]) -> None:
    """Machines have no network for pods, and a Node lacks nothing else."""
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


def install_a_network_plugin(cluster: Cluster) -> None:
    """The Node becomes ready, and pods run, when the user installs a network plugin."""
    given = ("get", "node", f"{cluster.name}-control-plane", "-o", "jsonpath={.spec.podCIDR}")
    eventually(lambda: cluster.kubectl(*given) != "", "a range for the pods of the Node")
    share = cluster.kubectl(*given)
    cluster.inside("control-plane", "sh", "-c", f"cat > {CONFIGURATION}", text=conflist(share))
    cluster.kubectl("wait", "--for=condition=Ready", f"node/{cluster.name}-control-plane", "--timeout", "10m")
    cluster.kubectl("rollout", "status", "-n", "kube-system", "deployment/coredns", "--timeout", "10m")


def check_ipv6(cluster: Cluster, address: str) -> None:
    """The host reaches pods of a cluster with IPv6 alone, and they reach the host, also after a power cut."""
    answers(partial(on_host, (), url(address, NODE_PORT)), "the NodePort")
    eventually(lambda: families(balanced(cluster)) == [6], "the address of its LoadBalancer Service")
    answers(partial(on_host, (), url(balanced(cluster)[0], 80)), "its LoadBalancer Service")
    published = free_port()
    cluster.call("local", "publish", "--name", cluster.name, f"[::]:{published}:{NODE_PORT}")
    answers(partial(in_network_of_pod, cluster, f"{cluster.name}-control-plane", f"http://{HOST_NAME}:{published}"), "the host in a pod")
    cluster.machine("kill", "control-plane")
    assert machine_changes(cluster.up()) == ["control-plane"]
    answers(partial(on_host, (), url(address, NODE_PORT)), "the NodePort after the machine has come back")


def listed_states(cluster: Cluster) -> dict[str, str]:
    """Return the states of all clusters in the directory of one. A busy machine may answer late, so that a cluster is not ready for a moment."""
    rows = json.loads(cluster.call("local", "list", "-o", "json").stdout)["clusters"]
    return {row["name"]: row["state"] for row in rows}


def phases(cluster: Cluster) -> list[str]:
    """Return the phases of CoreDNS's pods."""
    return cluster.kubectl("get", "pods", "-n", "kube-system", "-l", "k8s-app=kube-dns", "-o", "jsonpath={.items[*].status.phase}").split()


def conflist(share: str) -> str:
    """Return the configuration of a network plugin whose pods have the addresses of a Node's range."""
    ipam = {"type": "host-local", "subnet": share, "routes": [{"dst": "0.0.0.0/0"}]}
    plugins = [{"type": "bridge", "bridge": "user0", "isGateway": True, "ipam": ipam}]
    return json.dumps({"cniVersion": "1.0.0", "name": "user", "plugins": plugins})
