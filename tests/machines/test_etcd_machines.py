"""Snapshots, backups and a replaced member of etcd on whole control planes, also with commands that are killed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from cluster_kit import CERTIFICATE_KEY, KUBEWRIGHT, TOKEN, Cluster, begin
from kill_kit import killed_after, moments, undisturbed
from machine_kit import ENVIRONMENT, SHARED, argv, eventually, kubectl, kubewright, ready, write
from testbed.bed import Bed, Parts
from testbed.kit import programs
from testbed.machine import Machine

from typed import ROOT, steps

ADMIN = {"KUBECONFIG": "/etc/kubernetes/admin.conf"}
SNAPSHOT, BACKUP, KEY = "/root/etcd.db", "/root/one.kwb", "/root/backup.key"
JOIN = ("join", "cluster.test:6443", "--token", TOKEN, "--discovery-token-unsafe-skip-ca-verification", "--control-plane")
REPLACE = ("etcd", "member", "replace", "--yes")


@pytest.fixture(scope="module")
def bed(parts: Parts) -> Iterator[Bed]:
    """A control plane with uploaded certificates, and a machine that has not joined yet."""
    with Bed("one", "two", bed="etcd", parts=parts, shared=SHARED) as made:
        first = made["one"]
        shutil.copy(programs(("etcdutl",))["etcdutl"].resolve(), first.root / "usr/local/bin/etcdutl")
        begin(Cluster(KUBEWRIGHT, made))
        eventually(lambda: ready(first, "daemonset", "kube-proxy"), "kube-proxy")
        yield made


@pytest.fixture
def machine(bed: Bed) -> Machine:
    return bed["one"]


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


def _leftovers(machine: Machine) -> list[str]:
    """Return what an operation that was killed has left, and nobody has finished."""
    states = "cat /var/lib/kubewright/checkpoints/*/state | grep -v -e '^done$' -e '^rolled back$'"
    return machine.run("sh", "-c", f"ls -d /var/lib/etcd/new-* 2>/dev/null; {states}", check=False).out.split()


def _kept(machine: Machine) -> int:
    """Return how many directories with earlier data there are."""
    return len(machine.run("sh", "-c", "ls -d /var/lib/etcd/member.before-* 2>/dev/null; true").out.split())


def test_a_restore_that_is_killed_at_a_random_moment_ends_as_an_undisturbed_one(machine: Machine) -> None:
    kubewright(machine, "etcd", "snapshot", "save", "/root/whole.db")
    course = undisturbed(machine, ("etcd", "restore", "/root/whole.db", "--yes"))
    for number, seconds in enumerate(moments(course.seconds, count=2)):
        file, kept = f"/root/killed-{number}.db", _kept(machine)
        _put(machine, f"saved-{number}")
        kubewright(machine, "etcd", "snapshot", "save", file)
        last, restore = _put(machine, f"lost-{number}"), ("etcd", "restore", file, "--yes")
        code = killed_after(machine, seconds, restore)
        said = kubewright(machine, *restore).out
        assert code or "nothing is changed" in said
        assert (f"saved-{number}" in _names(machine), f"lost-{number}" in _names(machine)) == (True, False)
        assert _put(machine, f"later-{number}") > last + 900_000_000
        assert (_kept(machine), _leftovers(machine)) == (kept + 1, [])
        kubewright(machine, "etcd", "status")


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


def test_a_member_that_is_replaced_while_the_command_is_killed_votes_at_the_end(bed: Bed) -> None:
    one, two = bed["one"], bed["two"]
    kubewright(two, *JOIN, "--certificate-key", CERTIFICATE_KEY, "--ignore-preflight-errors=SystemVerification")
    course = undisturbed(two, REPLACE)
    for seconds in moments(course.seconds, count=2):
        before = _member(one, "two")
        if killed_after(two, seconds, REPLACE):
            kubewright(two, *REPLACE)
        after = _member(one, "two")
        assert (after["learner"], after["serves"], after["id"] != before["id"]) == (False, True, True)
        assert (_kept(two) > 0, _leftovers(two)) == (True, [])
        kubewright(one, "etcd", "status")
        assert _names(two) == _names(one)
    lease = kubectl(one, "get", "lease", "-n", "kube-system", "kubewright-operation")
    assert lease["spec"].get("holderIdentity", "") == ""


def _member(machine: Machine, name: str) -> dict[str, Any]:
    found = json.loads(kubewright(machine, "etcd", "status", "-o", "json").out)["members"]
    return next(dict(one) for one in found if one["name"] == name)
