"""A cluster of machines with three control planes and two workers: it survives the loss of the first one, and shrinks to one."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from whole_kit import Cluster, clusters, states

from kubewright.machines.parts import Parts

PROGRAM = ("env", "PYTHONPATH=/opt/kubewright/source", "/opt/kubewright/python/bin/python", "-m", "kubewright")


@pytest.fixture
def cluster(parts: Parts) -> Iterator[Cluster]:
    with clusters("p") as (made,):
        yield made


def test_three_control_planes_survive_the_loss_of_one_and_become_one(cluster: Cluster) -> None:
    made = cluster.up("--machines", "--control-planes", "3", "--nodes", "2")
    planes, workers = ["control-plane", "control-plane-2", "control-plane-3"], ["worker-1", "worker-2"]
    assert states(made) == dict.fromkeys([*planes, *workers], "Running")
    assert [machine["role"] for machine in made["machines"]] == ["control-plane"] * 3 + ["worker"] * 2
    assert etcd_members(cluster) == planes

    cluster.machine("kill", "control-plane")
    lost = cluster.status()
    assert {node["name"].removeprefix(f"{cluster.name}-") for node in lost["nodes"]["list"] if node["ready"]} >= {
        "control-plane-2",
        *workers,
    }
    second = next(machine["address"] for machine in lost["machines"] if machine["name"].endswith("-control-plane-2"))
    assert f"server: https://{second}:6443" in cluster.paths.admin_kubeconfig(f"{cluster.name}-control-plane").read_text()
    image = "docker.io/library/busybox:test"
    cluster.kubectl("create", "deployment", "idle", f"--image={image}", "--", "sleep", "10000", machine="control-plane-2")
    cluster.kubectl("rollout", "status", "deployment/idle", "--timeout", "10m", machine="control-plane-3")  # on a worker

    cluster.machine("start", "control-plane")
    cluster.machine("remove", "control-plane-3")  # waits until etcd has a majority without it
    assert etcd_members(cluster) == planes[:2]
    left = cluster.up("--control-planes", "1")
    assert (states(left), left["nodes"]["ready"]) == (dict.fromkeys(["control-plane", *workers], "Running"), 3)
    assert etcd_members(cluster) == planes[:1]

    cluster.down()
    assert cluster.traces() == []


def etcd_members(cluster: Cluster) -> list[str]:
    """Return the members of etcd, by name without that of the cluster."""
    listed = cluster.inside("control-plane", *PROGRAM, "etcd", "member", "list", "-o", "json").stdout
    return sorted(member["name"].removeprefix(f"{cluster.name}-") for member in json.loads(listed))
