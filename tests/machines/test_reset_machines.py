"""`kubewright reset` on whole machines, compared with kubeadm's reset.

Also what it must not touch, and how it continues after a failure.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator

import pytest
from cluster_kit import KUBEADM, at_once
from interop_kit import reset
from machine_kit import CONFIG, ENVIRONMENT, INIT, SHARED, administer, argv, eventually, join_command, kubectl, kubewright, patiently, write
from testbed.bed import Bed
from testbed.sharing import PYTHON

from kubewright.machines.machine import Machine
from kubewright.machines.parts import Parts

PLACES = "/etc/kubernetes /var/lib/kubelet /var/lib/etcd /var/lib/kubewright /etc/cni /var/lib/cni"
RULES = "nft list tables | grep kube-proxy; iptables-save | grep KUBE-; ip6tables-save | grep KUBE-"
LEARNER = """\
import sys
from pathlib import PurePosixPath
from kubewright.apis.machine import Layout
from kubewright.base.clock import SystemClock
from kubewright.host.real import RealHost
from kubewright.lifecycle import stacked_etcd

layout = Layout()
etcd = stacked_etcd.client(["https://127.0.0.1:2379"], pki=layout.pki, files=RealHost(layout=layout), clock=SystemClock())
if sys.argv[1:]:
    etcd.add_learner(sys.argv[1])
print(*(url for member in etcd.members() for url in member.peer_urls))
"""


def lines(machine: Machine, text: str) -> list[str]:
    return sorted(machine.run("sh", "-c", text, check=False).out.splitlines())


def left(machine: Machine) -> dict[str, list[str]]:
    """What a cluster leaves on a machine: files, mounts, processes, pods, users, the kubelet."""
    return {
        "files": [path for path in lines(machine, f"find {PLACES}") if "/last_reserved_ip" not in path],
        "mounts": lines(machine, "grep -E 'kubelet|netns|io.containerd' /proc/mounts | cut -d' ' -f2"),
        "processes": lines(machine, "ps -eo comm | grep -E 'kube|etcd|coredns|pause|shim'"),
        "pods": lines(machine, "ctr -n k8s.io containers list -q; ctr -n k8s.io tasks list -q"),
        "users": lines(machine, "grep kubeadm /etc/passwd /etc/group"),
        "kubelet": lines(machine, "systemctl is-active kubelet"),
    }


def emptied(machine: Machine) -> dict[str, list[str]]:
    """Return the same after a reset, once the killed processes have ended."""
    eventually(lambda: left(machine)["processes"] == [], "all processes to end")
    return left(machine)


def init(machine: Machine, *, tool: str = "kubewright") -> None:
    write(machine, CONFIG, INIT.format(address=machine.address))
    if tool == "kubewright":
        kubewright(machine, "init", "--config", CONFIG)
    else:
        machine.run("kubeadm", "init", "--config", CONFIG)


def join(first: Machine, worker: Machine, *, tool: str = "kubewright") -> None:
    """Join the machine. A Node from an earlier join of the machine is deleted first, because it would stay Ready for another minute."""
    administer(first, "delete", "node", worker.name, "--ignore-not-found")
    words = patiently(worker, join_command(first, tool=("kubeadm",)))
    if tool == "kubewright":
        kubewright(worker, *words)
    else:
        worker.run("kubeadm", *words)


def works(machine: Machine, *, pods: int = 7) -> None:
    """Wait until all pods run, so that everything that reset removes exists."""

    def running() -> bool:
        found = kubectl(machine, "get", "pods", "-A").get("items", [])
        return len(found) >= pods and all(pod["status"].get("phase") == "Running" for pod in found)

    eventually(running, "all pods to run")


def at_work(first: Machine, worker: Machine) -> None:
    """Wait for its Node and for kube-proxy's process: pods in the API and packet filter rules may be from an earlier join."""
    eventually(lambda: bool(kubectl(first, "get", "node", worker.name)), "the Node to be registered")
    eventually(lambda: worker.run("pgrep", "-x", "kube-proxy", check=False).code == 0, "kube-proxy to run")


@pytest.fixture(scope="module")
def pair(parts: Parts) -> Iterator[dict[str, Bed]]:
    """Two machines in each of two beds: kubewright resets the machines of one, kubeadm those of the other."""
    with (
        Bed("one", "two", bed="reset-ours", parts=parts, shared=SHARED) as ours,
        Bed("one", "two", bed="reset-theirs", parts=parts, shared=SHARED) as theirs,
    ):
        yield {"ours": ours, "theirs": theirs}


def test_reset_restores_the_state_before_init(pair: dict[str, Bed]) -> None:
    """A worker, which kubeadm joined, is as before its join: no more is left than with kubeadm."""
    ours, theirs = pair["ours"], pair["theirs"]
    at_once(lambda: init(ours["one"]), lambda: init(theirs["one"], tool="kubeadm"))
    at_once(*(lambda bed=bed: works(bed["one"]) for bed in pair.values()))  # CoreDNS is on the first machine then
    at_once(*(lambda bed=bed: join(bed["one"], bed["two"], tool="kubeadm") for bed in pair.values()))
    at_once(*(lambda bed=bed: works(bed["one"], pods=8) for bed in pair.values()))
    for name in ("two", "one"):
        said = kubewright(ours[name], "reset", "--force").out
        reset(KUBEADM, theirs[name])
        assert "[reset] Stopping the kubelet service" in said
        mine = emptied(ours[name])
        assert mine == emptied(theirs[name]), name
        assert (mine["mounts"], mine["processes"], mine["pods"], mine["kubelet"]) == ([], [], [], ["inactive"])
    theirs.down()


def test_a_second_reset_reports_that_nothing_is_left(pair: dict[str, Bed]) -> None:
    one = pair["ours"]["one"]
    before = left(one)
    assert "[reset] There is nothing of a cluster on this machine" in kubewright(one, "reset").out
    assert json.loads(kubewright(one, "reset", "-o", "json").out) == []
    assert kubewright(one, "reset", "--plan").out == ""
    assert left(one) == before


@pytest.fixture(scope="module")
def cluster(pair: dict[str, Bed]) -> Bed:
    """The machines after their reset, used for a new cluster: a control plane, and one that tests join and reset."""
    bed = pair["ours"]
    init(bed["one"])
    works(bed["one"])
    return bed


def test_a_machine_joins_again_and_the_next_reset_finishes_a_killed_one(cluster: Bed) -> None:
    one, two = cluster["one"], cluster["two"]
    two.run("mkdir", "-p", "/var/lib/etcd/theirs")
    for seconds in (0.15, 0.4):
        join(one, two)
        at_work(one, two)
        going = two.start(*argv("reset", "--force"), env=ENVIRONMENT)
        time.sleep(seconds)
        two.run("pkill", "-KILL", "-f", "kubewright reset", check=False)
        going.send_signal(signal.SIGKILL)
        going.wait(600)
        assert kubewright(two, "reset", "--force").code == 0
        found = emptied(two)
        assert (found["mounts"], found["processes"], found["pods"], found["kubelet"]) == ([], [], [], ["inactive"])
        assert [path for path in found["files"] if path.startswith(("/etc/kubernetes", "/var/lib"))] == [
            "/etc/kubernetes",
            "/etc/kubernetes/manifests",
            "/etc/kubernetes/pki",
            "/var/lib/etcd",
            "/var/lib/etcd/theirs",
            "/var/lib/kubelet",
        ]


def test_a_busy_mount_is_reported_and_kept_and_the_rest_is_removed(cluster: Bed) -> None:
    one, two = cluster["one"], cluster["two"]
    join(one, two)
    at_work(one, two)
    # not below pods: the kubelet itself removes directories there that do not belong to a pod
    two.run("sh", "-c", "mkdir -p /srv/precious /var/lib/kubelet/held && echo data >/srv/precious/file")
    two.run("mount", "--bind", "/srv/precious", "/var/lib/kubelet/held")
    holder = two.start("sh", "-c", "exec 3</var/lib/kubelet/held/file; exec sleep 7200")
    eventually(lambda: "/kubelet/held" in two.run("sh", "-c", "ls -l /proc/[0-9]*/fd 2>/dev/null", check=False).out, "a holder")
    ended = kubewright(two, "reset", "--force", check=False)
    assert ended.code == 1
    assert "error: not everything could be reset" in ended.err
    assert "/var/lib/kubelet/held cannot be unmounted: Device or resource busy" in ended.err
    assert two.run("cat", "/srv/precious/file").out == "data\n"
    found = emptied(two)
    assert (found["processes"], found["pods"], found["mounts"]) == ([], [], ["/var/lib/kubelet/held"])
    assert [path for path in found["files"] if path.startswith("/var/lib/kubelet/")] == [
        "/var/lib/kubelet/held",
        "/var/lib/kubelet/held/file",
    ]
    holder.kill()
    holder.wait(600)
    two.run("pkill", "-f", "sleep 7200", check=False)
    assert kubewright(two, "reset", "--force").code == 0
    assert left(two)["mounts"] == []
    assert two.run("cat", "/srv/precious/file").out == "data\n"


def test_options_remove_the_node_the_cni_configuration_and_the_rules(cluster: Bed) -> None:
    one, two = cluster["one"], cluster["two"]
    two.run("sh", "-c", "nft delete table ip kube-proxy; nft delete table ip6 kube-proxy", check=False)  # an earlier life left them
    join(one, two)
    at_work(one, two)
    eventually(lambda: "kube-proxy" in two.run("sh", "-c", RULES, check=False).out, "the rules of kube-proxy")
    write(two, "/root/admin.conf", one.run("cat", "/etc/kubernetes/admin.conf").out)
    write(two, "/etc/cni/net.d/README", "ours\n")
    options = ("--delete-node", "--cleanup-cni", "--cleanup-packet-filter")
    said = kubewright(two, "reset", "--force", "--kubeconfig", "/root/admin.conf", *options).out
    assert "CNI configuration: /etc/cni/net.d/10-pods.conflist\n" in said
    assert lines(two, RULES) == []
    assert lines(two, "ls /etc/cni/net.d") == ["README"]
    assert [node["metadata"]["name"] for node in kubectl(one, "get", "nodes")["items"]] == ["one"]


def test_reset_removes_a_learner_that_never_started(cluster: Bed) -> None:
    """A join that was interrupted after it had added the member: no Node, no manifest of etcd. kubeadm's reset cannot remove that member."""
    one, two = cluster["one"], cluster["two"]
    key = kubewright(one, "init", "phase", "upload-certs", "--upload-certs").out.split()[-1]
    prepare = (
        "join",
        "phase",
        "control-plane-prepare",
        "all",
        *join_command(one, tool=("kubeadm",))[1:],
        "--control-plane",
        "--certificate-key",
        key,
    )
    kubewright(two, *prepare)

    def members(*more: str) -> list[str]:
        return one.run(PYTHON, "-c", LEARNER, *more, env=ENVIRONMENT).out.split()

    url = f"https://{two.address}:2380"
    assert url in members(url)
    said = kubewright(two, "reset", "--force").out
    assert f"[reset] Removed the member {url} from the etcd cluster" in said
    assert members() == [f"https://{one.address}:2380"]
