"""A whole control plane whose etcd goes back to a snapshot, and which is made again from a backup after everything of it was lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest
from machine_kit import CONFIG, ENVIRONMENT, INIT, SHARED, argv, eventually, kubectl, kubewright, ready, write
from testbed.bed import Bed, Parts
from testbed.kit import programs
from testbed.machine import Machine

from typed import ROOT, steps

ADMIN = {"KUBECONFIG": "/etc/kubernetes/admin.conf"}
SNAPSHOT, BACKUP, KEY = "/root/etcd.db", "/root/one.kwb", "/root/backup.key"


@pytest.fixture(scope="module")
def machine(parts: Parts) -> Iterator[Machine]:
    with Bed("one", bed="etcd", parts=parts, shared=SHARED) as bed:
        made = bed["one"]
        shutil.copy(programs(("etcdutl",))["etcdutl"].resolve(), made.root / "usr/local/bin/etcdutl")
        write(made, CONFIG, INIT.format(address=made.address))
        kubewright(made, "init", "--config", CONFIG)
        eventually(lambda: ready(made, "daemonset", "kube-proxy"), "kube-proxy")
        yield made


def _put(machine: Machine, name: str) -> int:
    machine.run("kubectl", "create", "configmap", name, env=ADMIN)
    return int(kubectl(machine, "get", "configmap", name)["metadata"]["resourceVersion"])


def _names(machine: Machine) -> set[str]:
    return {one["metadata"]["name"] for one in kubectl(machine, "get", "configmaps")["items"]} - {"kube-root-ca.crt"}


def _proxy(machine: Machine) -> str:
    """Return the container of kube-proxy, a workload that nothing should restart."""
    [pod] = kubectl(machine, "get", "pods", "-n", "kube-system", "-l", "k8s-app=kube-proxy")["items"]
    return str(pod["status"]["containerStatuses"][0]["containerID"])


def _is_ready(machine: Machine) -> bool:
    [node] = kubectl(machine, "get", "nodes").get("items") or [{"status": {"conditions": []}}]
    return any((one["type"], one["status"]) == ("Ready", "True") for one in node["status"]["conditions"])


def test_etcd_goes_back_to_a_snapshot_while_pods_go_on(machine: Machine) -> None:
    _put(machine, "saved")
    kubewright(machine, "etcd", "snapshot", "save", SNAPSHOT)
    last, proxy = _put(machine, "lost"), _proxy(machine)
    said = kubewright(machine, "etcd", "restore", SNAPSHOT, "--yes").out
    assert "its earlier data is in /var/lib/etcd/member.before-" in said
    assert _names(machine) == {"saved"}
    assert _put(machine, "later") > last + 900_000_000
    eventually(lambda: _is_ready(machine), "the Node to be Ready")
    assert _proxy(machine) == proxy
    [member] = json.loads(kubewright(machine, "etcd", "status", "-o", "json").out)["members"]
    assert (member["name"], member["leader"]) == ("one", True)


def _every_day(machine: Machine) -> None:
    """Do what the guide says about daily backups, and let systemd make one now."""
    words = " ".join([*(f"{name}={value}" for name, value in ENVIRONMENT.items()), *argv()])
    write(machine, "/usr/local/bin/kubewright", f'#!/bin/sh\nexec env {words} "$@"\n')
    machine.run("chmod", "755", "/usr/local/bin/kubewright")
    machine.run("mkdir", "-p", "/var/backups")
    done = list(steps(ROOT / "docs/guide/recovery.md"))
    for step in done:
        if step.file:
            write(machine, step.file, step.content)
        else:
            machine.run("sh", "-c", step.command.removeprefix("sudo "))
    assert len(done) == 5
    machine.run("systemctl", "start", "kubewright-backup.service")
    [made] = machine.run("ls", "/var/backups/kubernetes").out.split()
    assert made.endswith(".kwb")
    assert "kubewright-backup.timer" in machine.run("systemctl", "list-timers").out
    shown = kubewright(machine, "backup", "show", f"/var/backups/kubernetes/{made}", "--key-file", KEY).out
    assert "/etc/kubernetes/pki/ca.key" in shown


def test_a_machine_that_lost_everything_is_made_again_from_its_backup(machine: Machine) -> None:
    key = kubewright(machine, "certs", "certificate-key").out.strip()
    write(machine, KEY, key)
    kubewright(machine, "backup", "create", BACKUP, "--key-file", KEY)
    _every_day(machine)
    content = (machine.root / BACKUP.removeprefix("/")).read_bytes()
    assert (b"PRIVATE KEY" in content, key.encode() in content) == (False, False)
    before = {name: (machine.root / f"etc/kubernetes/pki/{name}").read_bytes() for name in ("ca.key", "sa.key", "etcd/ca.key")}
    names = _names(machine)
    kubewright(machine, "reset", "--force")
    ended = kubewright(machine, "backup", "restore", BACKUP, "--key-file", KEY, "--plan")
    assert (key in ended.out + ended.err, "PRIVATE KEY" in ended.out, (machine.root / "etc/kubernetes/pki/ca.key").exists()) == (
        False,
        False,
        False,
    )
    kubewright(machine, "backup", "restore", BACKUP, "--key-file", KEY, "--yes")
    assert {name: (machine.root / f"etc/kubernetes/pki/{name}").read_bytes() for name in before} == before
    assert _names(machine) == names
    eventually(lambda: _is_ready(machine), "the Node to be Ready")
    eventually(lambda: ready(machine, "daemonset", "kube-proxy"), "kube-proxy")
    left = machine.run("sh", "-c", f"grep -rl {key} /etc/kubernetes /var/lib/kubewright /var/lib/etcd; true").out
    assert left == ""
