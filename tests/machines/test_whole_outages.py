"""A cluster of machines on a host that swaps, whose disk is full for a while, and which then is rebooted: the next `up` restores it."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from machine_kit import eventually
from whole_kit import Cluster, disk_place, fetched, machine_changes

from kubewright.local.whole.services.places import runtime
from kubewright.machines import group
from kubewright.machines.parts import Parts
from kubewright.machines.running import quietly, run
from loopback import free_port

SIZE: Final = 8 * 10**9
WORKLOAD: Final = """\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  serviceName: web
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: web
          image: docker.io/library/busybox:test
          command: [sh, -c, "[ -e /www/index.html ] || echo kept > /www/index.html; exec httpd -f -p 8080 -h /www"]
          volumeMounts: [{name: data, mountPath: /www}]
  volumeClaimTemplates:
    - metadata: {name: data}
      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}
"""
SWAPS: Final = "Filename Type Size Used Priority\n/dev/sda2 partition 1000 0 -2\n"
"""What /proc/swaps contains on a host with swap."""


@pytest.fixture
def disk(parts: Parts) -> Iterator[Path]:
    """A file system of its own for the disks of machines, with memory behind it, whose size can be changed."""
    with disk_place() as place:
        run("mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=0700", "tmpfs", str(place))
        try:
            yield place
        finally:
            quietly(["umount", "-l", str(place)])


@pytest.fixture
def cluster(disk: Path) -> Iterator[Cluster]:
    """A cluster that does not exist yet."""
    found = Cluster(f"o{os.getpid()}", disk)
    try:
        yield found
    finally:
        found.down()


def test_a_cluster_survives_swap_a_full_disk_and_a_reboot_of_its_host(cluster: Cluster, disk: Path) -> None:
    port = free_port()
    cluster.up("--machines", "--nodes", "0", "--publish", f"{port}:30080")
    cluster.kubectl("apply", "-f", "-", text=WORKLOAD)
    cluster.kubectl("rollout", "status", "statefulset/web", "--timeout", "10m")
    eventually(lambda: fetched(f"http://127.0.0.1:{port}") == "kept\n", "the published port")
    assert cluster.inside("control-plane", "kubectl", "get", "nodes", "-o", "name").stdout == f"node/{cluster.name}-control-plane\n"
    systemd_reloads(cluster)
    assert fetched(f"http://127.0.0.1:{port}") == "kept\n"

    cluster.inside(
        "control-plane", "sh", "-c", "cat > /root/swaps; mount --bind /root/swaps /proc/swaps; systemctl restart kubelet", text=SWAPS
    )
    health = ("curl", "-s", "http://127.0.0.1:10248/healthz")
    eventually(lambda: cluster.inside("control-plane", *health, check=False).stdout == "ok", "a kubelet on a host with swap")

    resize(disk, shutil.disk_usage(disk).used + 2**20)
    full = cluster.inside("control-plane", "sh", "-c", "cat /dev/zero > /root/fill", check=False)
    assert "No space left on device" in full.stderr
    refused = cluster.call("up", "--name", cluster.name, check=False)
    assert (refused.returncode, "has 0.0 GB left, 1 GB are needed" in refused.stderr) == (4, True), refused.stderr
    refused = cluster.call("local", "load", "--name", cluster.name, "-", text="x" * 2**20, check=False)
    assert (refused.returncode, "the disk is full" in refused.stderr) == (1, True), refused.stderr
    eventually(lambda: not stores_secrets(cluster), "etcd to have no space")
    assert cluster.status()["name"] == cluster.name

    resize(disk, SIZE)
    cluster.inside("control-plane", "rm", "/root/fill")
    assert cluster.up()["state"] == "Ready"
    eventually(lambda: stores_secrets(cluster), "etcd to have space again")
    eventually(lambda: fetched(f"http://127.0.0.1:{port}") == "kept\n", "the published port")

    before = [machine["address"] for machine in cluster.status()["machines"]]
    reboot(cluster)
    stopped = cluster.status()
    assert (stopped["state"], stopped["problem"].partition(";")[0]) == ("Stopped", f"{cluster.name}-control-plane is stopped")
    again = cluster.up()
    assert (again["state"], machine_changes(again)) == ("Ready", ["control-plane"])
    assert [machine["address"] for machine in again["machines"]] == before
    eventually(lambda: fetched(f"http://127.0.0.1:{port}") == "kept\n", "the published port, and the volume")

    cluster.down()
    assert cluster.traces() == []


def systemd_reloads(cluster: Cluster) -> None:
    """Let the systemd of a machine read its units again, and execute itself again: no service is restarted."""
    processes = ("systemctl", "show", "--property=MainPID", "--value", "kubelet", "containerd")
    before = cluster.inside("control-plane", *processes).stdout
    for verb in ("daemon-reload", "daemon-reexec"):
        cluster.inside("control-plane", "systemctl", verb)
    assert cluster.inside("control-plane", *processes).stdout == before


def resize(disk: Path, size: int) -> None:
    run("mount", "-o", f"remount,size={size}", str(disk))


def stores_secrets(cluster: Cluster) -> bool:
    """Create an object of half a megabyte; whether that succeeds."""
    name = f"s{os.urandom(4).hex()}"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"text": os.urandom(2**18).hex()}}
    words = ("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "--request-timeout=20s", "create", "-f", "-")
    return cluster.inside("control-plane", *words, text=json.dumps(secret), check=False).returncode == 0


def reboot(cluster: Cluster) -> None:
    """Leave of a cluster what a reboot of its host would leave: its files, but no process, network, cgroup, mount, and nothing below /run."""
    os.kill(cluster.status()["daemon"]["pid"], signal.SIGKILL)
    group.sweep(cluster.group, cluster.disks, keep=True)
    shutil.rmtree(runtime(cluster.paths).root)
