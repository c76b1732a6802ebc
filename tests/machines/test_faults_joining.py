"""Faults while machines join: a wrong clock, an API server that restarts, a certificate request that is not approved."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cluster_kit import CERTIFICATE_KEY, TOKEN, configuration
from machine_kit import CONFIG, ENVIRONMENT, SHARED, Running, administer, argv, eventually, join_command, kubectl, kubewright, signed, write
from testbed.bed import Bed

from kubewright.discovery.node_requests import ASKING, FIRST
from kubewright.machines.machine import Ended, Machine
from kubewright.machines.parts import Parts

HOURS = 3 * 3600
SHIM = Path(__file__).with_name("clock_shift.c")
JOIN = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken: {{apiServerEndpoint: "cluster.test:6443", token: {token}, caCertHashes: ["{pin}"]}}
nodeRegistration: {{ignorePreflightErrors: [SystemVerification]}}
timeouts: {{discovery: {discovery}, etcdAPICall: {etcd}, kubeletHealthCheck: 10m, kubernetesAPICall: 10m, tlsBootstrap: 10m}}
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

    def prepared(self, name: str, *, discovery: str = "10m", etcd: str = "10m", control_plane: bool = False) -> Machine:
        machine = self.bed[name]
        more = CONTROL_PLANE.format(address=machine.address, key=CERTIFICATE_KEY) if control_plane else ""
        write(machine, CONFIG, JOIN.format(token=TOKEN, pin=self.pin, discovery=discovery, etcd=etcd, more=more))
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
        signed(one, TOKEN)
        yield Cluster(bed, join_command(one)[-1])


def join(machine: Machine, *, check: bool = True) -> Ended:
    return kubewright(machine, "join", "--config", CONFIG, check=check)


def complaint(ended: Ended) -> str:
    """Return the output of a failed run; never a traceback."""
    assert ended.code == 1, ended.err + ended.out
    assert "Traceback" not in ended.err + ended.out
    assert "this is a bug" not in ended.err
    assert "hint: " in ended.err
    return ended.err


def nothing_written(machine: Machine) -> bool:
    return machine.run("ls", "/etc/kubernetes", "/var/lib/kubelet", check=False).out == ""


def test_a_clock_three_hours_behind_is_reported_at_once(cluster: Cluster, tmp_path: Path) -> None:
    two = cluster.prepared("two")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", tmp_path / "shift.so", SHIM], check=True)
    subprocess.run(two.argv("sh", "-c", "cat > /root/shift.so"), input=(tmp_path / "shift.so").read_bytes(), check=True)
    environment = {**ENVIRONMENT, "LD_PRELOAD": "/root/shift.so", "CLOCK_SHIFT": str(-HOURS)}
    before = time.time()
    shifted = float(two.run("/usr/bin/python3", "-c", "import time; print(time.time())", env=environment).out)
    assert before - 1 <= shifted + HOURS <= time.time() + 1
    said = complaint(two.run(*argv("join", "--config", CONFIG), env=environment, check=False))
    assert "the server's certificate is not trusted (certificate is not yet valid)" in said
    assert "hint: compare the clocks of both machines (`date -u`)" in said
    assert nothing_written(two)


def test_an_unreachable_api_server_is_reported_at_the_timeout(cluster: Cluster) -> None:
    two = cluster.prepared("two", discovery="3s")
    two.run("sed", "-i", "s/cluster.test:6443/cluster.test:6449/", CONFIG)
    said = complaint(join(two, check=False))
    assert "https://cluster.test:6449" in said
    assert "connection refused" in said
    assert nothing_written(two)


@pytest.fixture
def unapproved(cluster: Cluster) -> Iterator[None]:
    """A cluster that approves no requests of kubelets; at the end it does again."""
    administer(cluster.one, "delete", "clusterrolebinding", FIRST.name)
    yield
    kubewright(cluster.one, "init", "phase", "bootstrap-token", "--config", CONFIG)


PENDING = re.compile(
    r"certificate request (csr-\S+) is Pending, and nobody approves it: system:bootstrap:abcdef \(.*default-node-token\) is not"
)


@pytest.mark.usefixtures("unapproved")
def test_a_pending_request_is_reported_with_the_missing_binding_and_the_join_continues_after_approval(cluster: Cluster) -> None:
    joining = Running(cluster.prepared("two"), "join", "--config", CONFIG)
    line = joining.says("is Pending")
    found = PENDING.search(line)
    assert found, line
    assert f"ClusterRoleBinding {FIRST.name}" in line
    assert "Unable to read config path" not in joining.said
    administer(cluster.one, "certificate", "approve", found[1])
    ended = joining.ended()
    assert ended.code == 0, ended.err
    eventually(lambda: cluster.ready("two"), "the Node to be Ready")


@pytest.mark.usefixtures("unapproved")
def test_a_denied_request_ends_the_join_and_shows_who_denied_it_and_why(cluster: Cluster) -> None:
    administer(cluster.one, "delete", "clusterrolebinding", ASKING.name)
    joining = Running(cluster.prepared("three"), "join", "--config", CONFIG)
    said = joining.says("no certificate can be requested: system:bootstrap:abcdef")
    assert f"ClusterRoleBinding {ASKING.name}" in said
    administer(cluster.one, "create", "clusterrolebinding", ASKING.name, f"--clusterrole={ASKING.role}", f"--group={ASKING.group}")
    found = PENDING.search(joining.says("is Pending"))
    assert found
    administer(cluster.one, "certificate", "deny", found[1])
    said = complaint(joining.ended())
    why = "KubectlDeny: This CSR was denied by kubectl certificate deny."
    assert f"error: error execution phase kubelet-wait-bootstrap: certificate request {found[1]} was denied by kubectl: {why}" in said
    assert f"hint: ask an approver of this cluster (`kubectl describe csr {found[1]}`)" in said


def test_an_api_server_that_restarts_is_waited_for(cluster: Cluster) -> None:
    three = cluster.prepared("three")
    cluster.one.run("pkill", "-KILL", "-x", "kube-apiserver")
    joining = Running(three, "join", "--config", CONFIG)
    joining.says("bootstrap-kubelet.conf")
    cluster.one.run("pkill", "-KILL", "-x", "kube-apiserver", check=False)
    ended = joining.ended()
    assert ended.code == 0, ended.err
    eventually(lambda: cluster.ready("three"), "the Node to be Ready")
