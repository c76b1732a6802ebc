"""Faults while machines join: a clock that is wrong, an API server that restarts, a kubelet that does not start, an etcd without quorum."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cluster_kit import CERTIFICATE_KEY, TOKEN, configuration
from machine_kit import CONFIG, ENVIRONMENT, SHARED, argv, eventually, kubectl, kubewright, write
from testbed.bed import Bed, Parts
from testbed.machine import Ended, Machine

HOURS = 3 * 3600
SHIM = Path(__file__).with_name("clock_shift.c")
JOIN = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken: {{apiServerEndpoint: "cluster.test:6443", token: {token}, caCertHashes: ["{pin}"]}}
nodeRegistration: {{ignorePreflightErrors: [SystemVerification]}}
timeouts: {{discovery: {patience}, etcdAPICall: {patience}}}
{more}
"""
CONTROL_PLANE = """\
controlPlane:
  localAPIEndpoint: {{advertiseAddress: {address}}}
  certificateKey: "{key}"
"""


@dataclass(frozen=True)
class Cluster:
    """A control plane, and machines that are to join it."""

    bed: Bed
    pin: str

    @property
    def one(self) -> Machine:
        return self.bed["one"]

    def prepared(self, name: str, *, patience: str = "2m", control_plane: bool = False) -> Machine:
        machine = self.bed[name]
        more = CONTROL_PLANE.format(address=machine.address, key=CERTIFICATE_KEY) if control_plane else ""
        write(machine, CONFIG, JOIN.format(token=TOKEN, pin=self.pin, patience=patience, more=more))
        return machine

    def ready(self, name: str) -> bool:
        rows = kubectl(self.one, "get", "node", name).get("status", {}).get("conditions", [])
        return any(row["type"] == "Ready" and row["status"] == "True" for row in rows)


@pytest.fixture(scope="module")
def cluster(parts: Parts) -> Iterator[Cluster]:
    with Bed("one", "two", "three", bed="faults-join", parts=parts, shared=SHARED) as bed:
        one = bed["one"]
        write(one, CONFIG, configuration(one))
        kubewright(one, "init", "--config", CONFIG, "--upload-certs")
        yield Cluster(bed, kubewright(one, "token", "create", "--print-join-command").out.split()[-1])


def join(machine: Machine, *, check: bool = True) -> Ended:
    return kubewright(machine, "join", "--config", CONFIG, check=check)


def complaint(ended: Ended) -> str:
    """Return what a failed run said; never a traceback."""
    assert ended.code == 1, ended.err + ended.out
    assert "Traceback" not in ended.err + ended.out
    assert "this is a bug" not in ended.err
    assert "hint: " in ended.err
    return ended.err


def nothing_written(machine: Machine) -> bool:
    return machine.run("ls", "/etc/kubernetes", "/var/lib/kubelet", check=False).out == ""


def test_a_clock_that_is_three_hours_behind_is_told_at_once(cluster: Cluster, tmp_path: Path) -> None:
    two = cluster.prepared("two")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", tmp_path / "shift.so", SHIM], check=True)
    subprocess.run(two.argv("sh", "-c", "cat > /root/shift.so"), input=(tmp_path / "shift.so").read_bytes(), check=True)
    environment = {**ENVIRONMENT, "LD_PRELOAD": "/root/shift.so", "CLOCK_SHIFT": str(-HOURS)}
    assert abs(float(two.run("/usr/bin/python3", "-c", "import time; print(time.time())", env=environment).out) + HOURS - time.time()) < 60
    said = complaint(two.run(*argv("join", "--config", CONFIG), env=environment, check=False))
    assert "the server's certificate is not trusted (certificate is not yet valid)" in said
    assert "hint: compare the clocks of both machines (`date -u`)" in said
    assert nothing_written(two)


def test_an_api_server_that_nobody_reaches_is_named_when_patience_ends(cluster: Cluster) -> None:
    two = cluster.prepared("two", patience="3s")
    two.run("sed", "-i", "s/cluster.test:6443/cluster.test:6449/", CONFIG)
    said = complaint(join(two, check=False))
    assert "https://cluster.test:6449" in said
    assert "connection refused" in said
    assert nothing_written(two)


def test_a_kubelet_that_does_not_start_ends_the_join_early_and_the_same_command_works_later(cluster: Cluster) -> None:
    two = cluster.prepared("two")
    swaps = (
        r"printf 'Filename Type Size Used Priority\n/dev/sda2 partition 1000 0 -2\n' > /root/swaps; mount --bind /root/swaps /proc/swaps"
    )
    two.run("sh", "-c", swaps)
    said = complaint(join(two, check=False))
    assert "error: the kubelet does not stay up" in said
    assert "running with swap on is not supported" in said
    assert "switch swap off" in said
    two.run("umount", "/proc/swaps")
    join(two)
    eventually(lambda: cluster.ready("two"), "the Node to be Ready")


def test_an_api_server_that_restarts_is_waited_for(cluster: Cluster) -> None:
    three = cluster.prepared("three")
    cluster.one.run("pkill", "-KILL", "-x", "kube-apiserver")
    running = three.start(*argv("join", "--config", CONFIG), env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert running.stdout is not None
    assert any(b"bootstrap-kubelet.conf" in line for line in iter(running.stdout.readline, b""))
    cluster.one.run("pkill", "-KILL", "-x", "kube-apiserver", check=False)
    said, _ = running.communicate(timeout=900)  # the kubelet lets a server that fell twice wait, and join waits five minutes
    assert running.returncode == 0, said.decode()
    eventually(lambda: cluster.ready("three"), "the Node to be Ready")
