"""The archive of `make bundle` on whole machines without Python, without pip, and with no network except between them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest
from archive_kit import NAME, archive
from machine_kit import CONFIG, INIT, eventually, kubectl, patiently, signed, write
from testbed.bed import Bed

from kubewright.machines.kit import programs
from kubewright.machines.machine import Ended, Machine
from kubewright.machines.parts import Parts

HOME = f"/opt/two words/{NAME}"
PROGRAM = f"{HOME}/bin/kubewright"
NOBODY = """\
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443"}}]
users: [{name: nobody, user: {}}]
contexts: [{name: c, context: {cluster: c, user: nobody}}]
current-context: c
"""
"""A kubeconfig of a user without credentials."""
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")


@pytest.fixture(scope="module")
def bed(parts: Parts) -> Iterator[Bed]:
    """Two machines without Python. The archive on the second one was unpacked read-only."""
    packed = archive()
    place = programs(COMPONENTS)["etcd"].parent
    with Bed("one", "two", bed="archive", parts=parts, shared={str(place): place}) as made:
        for machine in made.machines.values():
            machine.run("sh", "-c", "rm -rf /usr/bin/python3* /usr/lib/python3*; mkdir '/opt/two words'")
            shutil.copyfile(packed, machine.root / "opt" / "archive.tar.gz")
            machine.run("tar", "xzf", "/opt/archive.tar.gz", "-C", "/opt/two words")
        made["two"].run("mount", "--bind", "-o", "ro", "/opt/two words", "/opt/two words")
        yield made


def call(machine: Machine, *arguments: str, check: bool = True) -> Ended:
    return machine.run(PROGRAM, *arguments, check=check)


def test_the_archive_needs_nothing_from_the_machine(bed: Bed) -> None:
    """Neither Python nor a C library nor /proc, whichever user calls it, and whatever their Python's settings."""
    one = bed["one"]
    assert one.run("sh", "-c", "command -v python3 python; ls -d /usr/lib/python3* /usr/lib/*/libpython*", check=False).out == ""
    one.run("sh", "-c", f"mkdir /srv/empty && cp -a '{HOME}' /srv/empty/kubewright")
    assert one.run("chroot", "/srv/empty", "/kubewright/bin/kubewright", "version", "-o", "short").out == "v1.36.3\n"
    nobody = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    told = {"PYTHONHOME": "/nowhere", "PYTHONPATH": "/nowhere", "LD_LIBRARY_PATH": "/nowhere", "LC_ALL": "de_DE.ISO-8859-1"}
    for machine in bed.machines.values():
        assert machine.run(*nobody, PROGRAM, "version", "-o", "short", env=told).out == "v1.36.3\n"
    assert bed["two"].run("touch", f"{HOME}/new", check=False).code == 1


def test_the_archive_uses_the_name_by_which_it_was_called(bed: Bed) -> None:
    one = bed["one"]
    one.run("ln", "-s", PROGRAM, "/usr/local/bin/kubewright")
    one.run("ln", "-s", "kubewright", "/usr/local/bin/kubeadm")
    assert one.run("/usr/local/bin/kubeadm", "bogus", check=False).err.splitlines()[0] == 'error: unknown command "bogus" for "kubeadm"'
    for shell in ("bash", "zsh", "fish"):
        scripts = {name: one.run(f"/usr/local/bin/{name}", "completion", shell).out for name in ("kubewright", "kubeadm")}
        assert "kubeadm" in scripts["kubeadm"] != scripts["kubewright"] != ""
        assert "/opt/" not in scripts["kubeadm"]


def test_a_service_runs_the_program_under_the_name_it_was_called_by(bed: Bed) -> None:
    two = bed["two"]
    two.run("ln", "-s", PROGRAM, "/usr/local/bin/kubewright")
    two.run("mkdir", "-p", "/etc/kubernetes")
    write(two, "/etc/kubernetes/kubelet.conf", NOBODY)
    two.run("systemctl", "stop", "kubelet")  # as it has no configuration, it is started again and again
    two.run("kubewright", "agent", "install", "--kubeconfig", "/etc/kubernetes/kubelet.conf")
    assert "path=/usr/local/bin/kubewright " in two.run("systemctl", "show", "-P", "ExecStart", "kubewright-agent").out
    eventually(
        lambda: "has no usable certificate" in two.run("kubewright", "agent", "status", check=False).out, "the agent to say what it lacks"
    )
    two.run("systemctl", "disable", "--now", "kubewright-agent")
    two.run("rm", "-r", "/etc/systemd/system/kubewright-agent.service", "/var/lib/kubelet", "/etc/kubernetes", "/usr/local/bin/kubewright")


def test_the_archive_works_in_another_root_directory(bed: Bed) -> None:
    one = bed["one"]
    one.run("mkdir", "-p", "/srv/image")
    call(one, "init", "phase", "certs", "all", "--rootfs", "/srv/image", "--apiserver-advertise-address", one.address)
    assert len(one.run("find", "/srv/image/etc/kubernetes/pki", "-type", "f").out.splitlines()) == 22
    assert one.run("ls", "/etc/kubernetes/pki", check=False).code == 2


def test_the_archive_starts_its_daemon(bed: Bed) -> None:
    """`up` starts the program again as a separate process, with the interpreter of the archive."""
    two = bed["two"]
    place = str(programs(COMPONENTS)["etcd"].parent)
    call(two, "up", "--nodes", "1", "--wait", "14m", "--binaries-dir", place)
    status = json.loads(call(two, "local", "status", "-o", "json").out)
    executable = two.run("sh", "-c", "ps -eo comm,args | grep [k]ubewright.local.daemon").out
    call(two, "down")
    assert (status["state"], status["nodes"]["ready"], status["nodes"]["total"]) == ("Ready", 2, 2)
    assert executable.startswith("kubewright ")
    assert f"{HOME}/libexec/python3" in executable


def test_machines_join_and_leave_with_the_archive(bed: Bed) -> None:
    """The container runtime is used through gRPC, so what `init` needs from the extra `cri` is included."""
    one, two = bed["one"], bed["two"]
    write(one, CONFIG, INIT.format(address=one.address))
    said = call(one, "init", "--config", CONFIG).out
    words = call(one, "token", "create", "--print-join-command").out.split()
    signed(one, words[words.index("--token") + 1])
    call(two, *patiently(two, words[1:]))
    assert "--discovery-token-ca-cert-hash sha256:" in said
    eventually(
        lambda: _ready(one) == ["one", "two"], "both nodes to be ready"
    )  # a worker's join ends when it has its certificate, as with kubeadm
    assert sorted(node["metadata"]["name"] for node in kubectl(one, "get", "nodes")["items"]) == ["one", "two"]
    again = json.loads(call(one, "init", "--config", CONFIG, "--plan", "-o", "json").out)
    assert [change for change in again if change["action"] != "unchanged"] == []
    for machine in (two, one):
        call(machine, "reset", "--force")
        left = machine.run(
            "sh", "-c", "ls -A /etc/kubernetes; ctr -n k8s.io containers list -q; ps -eo comm | grep kubelet", check=False
        ).out
        assert set(left.split()) <= {"manifests", "pki"}


def _ready(machine: Machine) -> list[str]:
    nodes = kubectl(machine, "get", "nodes").get("items", [])
    return sorted(
        node["metadata"]["name"]
        for node in nodes
        if any(condition["type"] == "Ready" and condition["status"] == "True" for condition in node["status"].get("conditions", []))
    )
