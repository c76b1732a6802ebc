"""`kubewright join --control-plane` on whole machines: in parallel, repeated, with certificates copied by hand, failed, killed, repaired."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from cluster_kit import CERTIFICATE_KEY, TOKEN, at_once, configuration
from machine_kit import CONFIG, ENVIRONMENT, PATIENT, SHARED, argv, eventually, kubectl, kubewright, signed, write
from state_kit import votes
from testbed.bed import Bed

from kubewright.machines.machine import Ended, Machine
from kubewright.machines.parts import Parts

JOIN = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken: {{apiServerEndpoint: "cluster.test:6443", token: {token}, caCertHashes: ["{pin}"]}}
controlPlane:
  localAPIEndpoint: {{advertiseAddress: {address}}}
{more}
nodeRegistration: {{ignorePreflightErrors: [SystemVerification]}}
"""
_LONG = "{extraArgs: [{name: leader-elect-lease-duration, value: 12m}, {name: leader-elect-renew-deadline, value: 10m}]}"
LEASES = f"controllerManager: {_LONG}\nscheduler: {_LONG}\n"
"""No leader loses its Lease on a busy machine, and ends because of that: all restarts count."""
PLACE = "/root/join.yaml"
BY_KEY = f'  certificateKey: "{CERTIFICATE_KEY}"\n{PATIENT}'
BY_HAND = f"patches: {{directory: /root/patches}}\n{PATIENT}".replace("etcdAPICall: 10m", "etcdAPICall: 2m")
WRONG_IMAGE = "spec: {containers: [{name: etcd, image: 'registry.k8s.io/etcd:0.0.0', imagePullPolicy: Never}]}\n"
NO_ETCD = "spec: {containers: [{name: etcd, image: 'registry.k8s.io/pause:3.10.2', command: [/pause]}]}\n"
"""A program that runs and is not etcd."""
PKI = "/etc/kubernetes/pki"
SHARED_FILES = ("ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key", "sa.pub", "etcd/ca.crt", "etcd/ca.key")
STATIC_PODS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


@dataclass(frozen=True)
class Cluster:
    """A first control plane, and machines that become further ones."""

    bed: Bed
    pin: str

    @property
    def one(self) -> Machine:
        return self.bed["one"]

    def prepare(self, name: str, *, more: str, **changes: str) -> Machine:
        machine = self.bed[name]
        text = JOIN.format(token=TOKEN, pin=self.pin, address=machine.address, more=more)
        for old, new in changes.items():
            text = text.replace(old, new)
        write(machine, PLACE, text)
        return machine

    def members(self) -> dict[str, bool]:
        """Whether each member of etcd votes."""
        return votes(self.one)

    def restarts(self, name: str) -> dict[str, int]:
        """How often each static pod was restarted, for those whose containers the kubelet has reported."""
        pods = kubectl(
            self.one, "-n", "kube-system", "get", "pods", "--field-selector", f"spec.nodeName={name}", "-l", "tier=control-plane"
        )
        told = {pod["metadata"]["name"]: pod["status"].get("containerStatuses") for pod in pods.get("items", [])}
        return {pod: sum(row["restartCount"] for row in rows) for pod, rows in told.items() if rows}

    def taints(self, name: str) -> list[str]:
        return [taint["key"] for taint in kubectl(self.one, "get", "node", name).get("spec", {}).get("taints", [])]

    def ready(self, name: str) -> bool:
        rows = kubectl(self.one, "get", "node", name).get("status", {}).get("conditions", [])
        return any(row["type"] == "Ready" and row["status"] == "True" for row in rows)


def join(machine: Machine, *, check: bool = True) -> Ended:
    return kubewright(machine, "join", "--config", PLACE, check=check)


@pytest.fixture(scope="module")
def cluster(parts: Parts) -> Iterator[Cluster]:
    with Bed("one", "two", "three", "four", bed="control-planes", parts=parts, shared=SHARED) as bed:
        one = bed["one"]
        write(one, CONFIG, configuration(one).replace("networking:", f"{LEASES}networking:"))
        said = kubewright(one, "init", "--config", CONFIG, "--upload-certs").out
        pin = re.search(r"sha256:[0-9a-f]{64}", said)
        assert pin is not None
        signed(one, TOKEN)
        yield Cluster(bed, pin.group())


def test_a_wrong_certificate_key_is_reported_and_nothing_is_written(cluster: Cluster) -> None:
    """It does not interfere with the joins below, which are those of other Nodes."""
    two = cluster.prepare("two", more=BY_KEY, **{CERTIFICATE_KEY: "f" * 64})
    ended = kubewright(two, "join", "--config", PLACE, "--node-name", "wrong", check=False)
    assert ended.code == 1
    assert "cannot be decrypted" in ended.err
    assert "upload" in ended.err
    assert "f" * 64 not in ended.out + ended.err
    assert two.run("ls", PKI, check=False).out == ""


def test_a_plan_shows_the_member_and_changes_nothing(cluster: Cluster) -> None:
    two = cluster.prepare("two", more=BY_KEY)
    plan = kubewright(two, "join", "--plan", "--config", PLACE).out
    assert f"create member two at https://{two.address}:2380" in plan
    assert "create file /etc/kubernetes/manifests/etcd.yaml" in plan
    assert "etcd-learner" not in plan
    assert cluster.members() == {"one": True}
    assert two.run("ls", PKI, check=False).out == ""


def test_two_control_planes_join_at_the_same_time(cluster: Cluster) -> None:
    machines = [cluster.prepare(name, more=BY_KEY) for name in ("two", "three")]
    ends = at_once(*(lambda machine=machine: join(machine) for machine in machines))
    assert all("* the etcd cluster has a new member on it" in ended.out for ended in ends)
    assert cluster.members() == {"one": True, "two": True, "three": True}
    eventually(lambda: cluster.ready("two") and cluster.ready("three"), "the Nodes to be Ready")
    for machine in machines:
        node = kubectl(cluster.one, "get", "node", machine.name)
        assert "node-role.kubernetes.io/control-plane" in node["metadata"]["labels"]
        wanted = {f"{name}-{machine.name}": 0 for name in STATIC_PODS}
        # controllers remove the taints of a new Node with a delay, and the kubelet reports pods with a delay
        eventually(lambda name=machine.name: cluster.taints(name) == ["node-role.kubernetes.io/control-plane"], "the taints to go")
        eventually(lambda name=machine.name, pods=wanted: cluster.restarts(name).keys() == pods.keys(), "all static pods")
        assert cluster.restarts(machine.name) == wanted


def test_every_api_server_answers_and_kubelets_use_their_own(cluster: Cluster) -> None:
    for name in ("one", "two", "three"):
        machine = cluster.bed[name]
        found = kubectl(machine, "--server", f"https://{machine.address}:6443", "get", "nodes")["items"]
        assert {node["metadata"]["name"] for node in found} == {"one", "two", "three"}
        assert f"server: https://{machine.address}:6443" in machine.run("cat", "/etc/kubernetes/kubelet.conf").out


def test_a_joined_machine_has_the_same_files_as_with_kubeadm(cluster: Cluster) -> None:
    two = cluster.bed["two"]
    listed = two.run("sh", "-c", "cd /etc/kubernetes; find . -type f -printf '%m %p\\n' | sort").out.splitlines()
    leaves = ("apiserver", "apiserver-etcd-client", "apiserver-kubelet-client", "front-proxy-client")
    etcd = ("etcd/healthcheck-client", "etcd/peer", "etcd/server")
    pairs = [f"./pki/{name}" for name in (*leaves, *etcd, "ca", "front-proxy-ca", "etcd/ca")]
    private = [*(f"{name}.key" for name in pairs), "./pki/sa.key", *(f"./manifests/{name}.yaml" for name in STATIC_PODS)]
    private += [f"./{name}.conf" for name in ("admin", "controller-manager", "kubelet", "scheduler")]
    assert listed == sorted([*(f"600 {path}" for path in private), *(f"644 {name}.crt" for name in pairs), "644 ./pki/sa.pub"])
    manifest = two.run("cat", "/etc/kubernetes/manifests/etcd.yaml").out
    assert "--initial-cluster-state=existing" in manifest
    named = re.search(r"--initial-cluster=(\S+)", manifest)
    assert named is not None
    assert f"two=https://{two.address}:2380" in named.group(1).split(",")
    assert two.run("stat", "-c", "%a", "/var/lib/etcd").out.strip() == "700"


def test_running_join_again_changes_nothing(cluster: Cluster) -> None:
    two = cluster.bed["two"]
    assert kubewright(two, "join", "--plan", "--config", PLACE).out == ""
    state = "cd /etc/kubernetes; find . -type f -exec sha256sum {} + | sort; systemctl show -p MainPID kubelet"
    before = two.run("sh", "-c", state).out
    join(two)
    assert two.run("sh", "-c", state).out == before
    assert cluster.restarts("two") == {f"{name}-two": 0 for name in STATIC_PODS}


def test_a_dead_member_is_named_before_anything_is_written(cluster: Cluster) -> None:
    four, three = cluster.prepare("four", more=BY_KEY), cluster.bed["three"]
    three.run("pkill", "-STOP", "-x", "etcd")
    ended = join(four, check=False)
    three.run("pkill", "-CONT", "-x", "etcd")
    assert ended.code == 1
    assert f"etcd accepts no new member while a voting one is dead: three at https://{three.address}:2380" in ended.err
    assert four.run("find", "/etc/kubernetes", "/var/lib/kubewright", "-type", "f", check=False).out == ""
    removal = re.search(r"`(kubectl .* member) remove ([0-9a-f]+)`", ended.err)
    assert removal is not None
    listed = cluster.one.run("sh", "-c", f"{removal[1]} list", env={"KUBECONFIG": "/etc/kubernetes/admin.conf"}).out
    assert re.search(rf"^{removal[2]}, started, three,", listed, re.MULTILINE)


def test_all_files_that_have_to_be_copied_are_reported_at_once(cluster: Cluster) -> None:
    four = cluster.prepare("four", more=BY_HAND)
    four.run("mkdir", "-p", "/root/patches")
    ended = join(four, check=False)
    assert ended.code == 1
    for name in ("ca.crt", "sa.key", "front-proxy-ca.crt", "etcd/ca.crt"):
        assert name in ended.err
    assert "--certificate-key" in ended.err
    assert four.run("ls", "/etc/kubernetes", check=False).out == ""


def test_a_join_whose_etcd_never_starts_removes_its_member(cluster: Cluster) -> None:
    four = cluster.bed["four"]
    four.run("mkdir", "-p", f"{PKI}/etcd")
    for name in SHARED_FILES:
        write(four, f"{PKI}/{name}", cluster.one.run("cat", f"{PKI}/{name}").out)
    four.run("sh", "-c", f"chmod 600 {PKI}/*.key {PKI}/etcd/*.key")
    write(four, "/root/patches/etcd.yaml", WRONG_IMAGE)
    ended = join(four, check=False)
    assert ended.code == 1
    assert "Removed member four" in ended.out
    assert "because it did not start: " in ended.out
    assert cluster.members() == {"one": True, "two": True, "three": True}
    assert "etcd" not in four.run("ls", "/etc/kubernetes/manifests").out


def test_blocked_peer_ports_are_reported_before_a_member_is_added(cluster: Cluster) -> None:
    four = cluster.bed["four"]
    text = four.run("cat", PLACE).out
    assert "etcdAPICall: 2m" in text  # the duration of a run does not belong to the machine's state
    write(four, PLACE, text.replace("etcdAPICall: 2m", "etcdAPICall: 3m"))
    barred = ["OUTPUT", "-p", "tcp", "-d", cluster.bed["two"].address, "--dport", "2380", "-j", "REJECT"]
    four.run("iptables", "-A", *barred)
    ended = join(four, check=False)
    four.run("iptables", "-D", *barred)
    assert ended.code == 1
    assert f"https://{cluster.bed['two'].address}:2380" in ended.err
    assert f"https://{cluster.one.address}:2380" not in ended.err
    assert "reach each other on port 2380" in ended.err
    assert "Adding this machine's etcd member" not in ended.out
    assert cluster.members() == {"one": True, "two": True, "three": True}


def test_a_blocked_peer_port_of_this_machine_is_reported_before_the_member_votes(cluster: Cluster) -> None:
    four, two = cluster.bed["four"], cluster.bed["two"]
    four.run("rm", "/root/patches/etcd.yaml")
    write(four, PLACE, four.run("cat", PLACE).out.replace("etcdAPICall: 3m", "etcdAPICall: 4m"))
    barred = ["INPUT", "-p", "tcp", "-s", two.address, "--dport", "2380", "-j", "REJECT"]
    four.run("iptables", "-A", *barred)
    ended = join(four, check=False)
    four.run("iptables", "-D", *barred)
    assert ended.code == 1
    assert f"two at https://{two.address}:2380 has no connection to https://{four.address}:2380" in ended.err
    assert f"https://{cluster.one.address}:2380 has" not in ended.err
    assert "reach each other on port 2380" in ended.err
    assert "Removed member four" in ended.out
    assert cluster.members() == {"one": True, "two": True, "three": True}


def test_an_interrupted_join_removes_its_member_and_its_token(cluster: Cluster) -> None:
    four = cluster.bed["four"]
    write(four, "/root/patches/etcd.yaml", NO_ETCD)
    write(four, PLACE, four.run("cat", PLACE).out.replace("etcdAPICall: 4m", "etcdAPICall: 10m"))
    running = four.start(*argv("join", "--config", PLACE), env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    eventually(lambda: len(cluster.members()) == 4, "the member to be added")
    for number in ("TERM", "HUP", "TERM"):
        four.run("pkill", f"-{number}", "-f", "kubewright join", check=False)
    out, err = running.communicate(timeout=900)
    assert running.returncode in {128 + signal.SIGTERM, 128 + signal.SIGHUP}
    assert b"error: interrupted by SIG" in err
    assert b"in phase etcd-join" in err
    assert b"because join was stopped" in out
    assert cluster.members() == {"one": True, "two": True, "three": True}
    assert "etcd" not in four.run("ls", "/etc/kubernetes/manifests").out
    assert "bootstrap-kubelet.conf" not in four.run("ls", "/etc/kubernetes").out


def test_a_killed_join_continues_with_its_learner(cluster: Cluster) -> None:
    """It is killed while it waits for an etcd that cannot start, so that it cannot end by itself."""
    four = cluster.bed["four"]
    write(four, "/root/patches/etcd.yaml", NO_ETCD)
    first = four.start(*argv("join", "--config", PLACE), env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    eventually(lambda: len(cluster.members()) == 4, "the member to be added")
    four.run("pkill", "-KILL", "-f", "kubewright join")
    first.wait(600)
    assert cluster.members() == {"one": True, "two": True, "three": True, f"https://{four.address}:2380": False}
    four.run("rm", "/root/patches/etcd.yaml")
    join(four)
    assert cluster.members() == {"one": True, "two": True, "three": True, "four": True}
    eventually(lambda: cluster.ready("four"), "the Node to be Ready")
    assert kubewright(four, "join", "--plan", "--config", PLACE).out == ""
