"""Snapshots, backups and a replaced member of etcd on whole control planes, also with commands that are killed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

import pytest
from canary_kit import Arguments, made, seen
from etcd_stages import EtcdStage, MemberReplace, Restore, make, names, put
from kill_kit import SEED, killed_after, killed_before_writing, moments
from level_kit import COMPONENTS
from machine_kit import ENVIRONMENT, SHARED, argv, eventually, kubectl, kubewright, proxy_container, reading, ready, used_by, write
from state_kit import require_same
from testbed.bed import Bed

from kubewright.machines.machine import Machine
from kubewright.machines.parts import Parts
from typed import ROOT, steps

BACKUP, KEY, DAILY = "/root/one.kwb", "/root/backup.key", "/var/backups/kubernetes"
MANIFESTS = ["etcd.yaml", *(f"{name}.yaml" for name in COMPONENTS)]
RESTORED = {"saved": True, "lost": False, "new revisions": True, "kept": 1, "left": [], "manifests": MANIFESTS, "unit": False, "holder": ""}
"""The state after a restore, however it was interrupted."""


@pytest.fixture(scope="module")
def bed(parts: Parts, request: pytest.FixtureRequest) -> Iterator[Bed]:
    """A control plane, and a machine that has not joined yet if a selected test replaces a member."""
    second = ("two",) if used_by(request, "replacement") else ()
    with Bed("one", *second, bed="etcd", parts=parts, shared=SHARED) as made:
        make(made)
        eventually(lambda: ready(made["one"], "daemonset", "kube-proxy"), "kube-proxy")
        yield made


@pytest.fixture(scope="module")
def restore(parts: Parts, bed: Bed) -> Restore:
    return Restore(parts, bed)


@pytest.fixture(scope="module")
def replacement(parts: Parts, bed: Bed) -> MemberReplace:
    return MemberReplace(parts, bed)


@pytest.fixture
def machine(bed: Bed) -> Machine:
    return bed["one"]


def _is_ready(machine: Machine) -> bool:
    [node] = kubectl(machine, "get", "nodes").get("items") or [{"status": {"conditions": []}}]
    return any((one["type"], one["status"]) == ("Ready", "True") for one in node["status"]["conditions"])


@pytest.mark.parametrize("moment", range(2))
def test_a_restore_that_is_killed_at_a_random_moment_ends_as_an_undisturbed_one(restore: Restore, moment: int) -> None:
    _killed(restore, moments(restore.reference.course.seconds, count=2)[moment])


def _killed(stage: EtcdStage, seconds: float) -> None:
    with stage.fresh() as machine:
        killed_after(machine, seconds, stage.arguments)
        stage.finish(machine)


def test_a_restore_continues_after_a_power_cut(restore: Restore) -> None:
    """The power fails when etcd is stopped, just before the new data directory gets its name."""
    with restore.fresh() as machine:
        killed_before_writing(machine, "member", restore.arguments)
        restore.boot_again(machine)
        kubewright(machine, *restore.arguments)
        require_same(RESTORED, restore.state(machine))


def test_the_commands_of_the_guide_restore_etcd_while_pods_keep_running_and_make_backups_every_day(machine: Machine) -> None:
    found = list(steps(ROOT / "docs/guide/recovery.md"))
    [restoring] = [number for number, step in enumerate(found) if "kubewright etcd restore" in step.command]
    put(machine, "saved")
    with reading(machine) as reader:
        reader.follow(iter(found[:restoring]))
        last, proxy = put(machine, "lost"), proxy_container(machine)
        reader.follow(iter(found[restoring:]), besides={"sudo kubewright etcd restore": "<<< y"})
    assert len(reader.done) == 12
    assert "its earlier data is in /var/lib/etcd/member.before-" in reader.printed[found[restoring].command]
    restored = names(machine)
    assert ("saved" in restored, "lost" in restored, put(machine, "later") > last + 900_000_000) == (True, False, True)
    eventually(lambda: _is_ready(machine), "the Node to be Ready")
    assert proxy_container(machine) == proxy
    [member] = json.loads(kubewright(machine, "etcd", "status", "-o", "json").out)["members"]
    assert (member["name"], member["leader"]) == ("one", True)
    _check_daily_backups(machine)


def _check_daily_backups(machine: Machine) -> None:
    """The units of the guide have made a backup. One that fails is reported and removes nothing, the next good one removes the old ones."""
    [*_, made] = machine.run("ls", DAILY).out.split()  # the timer makes one as well, at midnight
    assert (made.startswith("one-"), made.endswith(".kwb")) == (True, True)
    assert machine.run("stat", "-c", "%a", KEY, DAILY, f"{DAILY}/{made}").out.split() == ["600", "700", "600"]
    assert "kubewright-backup.timer" in machine.run("systemctl", "list-timers").out
    shown = kubewright(machine, "backup", "show", f"{DAILY}/{made}", "--key-file", KEY).out
    assert "/etc/kubernetes/pki/ca.key" in shown

    machine.run("touch", "-d", "20 days ago", f"{DAILY}/one-2026-01-01.kwb", f"{DAILY}/two-2026-01-01.kwb")
    start = ("systemctl", "start", "kubewright-backup.service")
    machine.run("mv", KEY, f"{KEY}.away")
    assert machine.run(*start, check=False).code != 0
    machine.run("mv", f"{KEY}.away", KEY)
    eventually(lambda: "the backup of one failed" in machine.run("journalctl", "-p", "alert").out, "the report of the failure")
    assert "one-2026-01-01.kwb" in machine.run("ls", DAILY).out.split()
    machine.run(*start)
    left = machine.run("ls", DAILY).out.split()
    assert ("one-2026-01-01.kwb" in left, "two-2026-01-01.kwb" in left, made in left) == (False, True, True)


def test_a_machine_that_lost_everything_is_made_again_from_its_backup(machine: Machine) -> None:
    key = kubewright(machine, "certs", "certificate-key").out.strip()
    write(machine, KEY, key)
    secrets, arguments = {**made(machine), "the key of the backup": (key,)}, Arguments(machine)
    before = {name: (machine.root / f"etc/kubernetes/pki/{name}").read_bytes() for name in ("ca.key", "sa.key", "etcd/ca.key")}
    objects = names(machine)
    with arguments.watched():
        kubewright(machine, "backup", "create", BACKUP, "--key-file", KEY)
        content = (machine.root / BACKUP.removeprefix("/")).read_bytes()
        assert (b"PRIVATE KEY" in content, key.encode() in content) == (False, False)
        listed = machine.run("sh", "-c", f"{shlex.join(argv('backup', 'create', '-', '--plain'))} | tar -t", env=ENVIRONMENT).out.split()
        assert ("files/etc/kubernetes/pki/ca.key" in listed, listed[-1]) == (True, "etcd.json")
        kubewright(machine, "reset", "--force")
        ended = kubewright(machine, "backup", "restore", BACKUP, "--key-file", KEY, "--plan")
        assert (key in ended.out + ended.err, "PRIVATE KEY" in ended.out, (machine.root / "etc/kubernetes/pki/ca.key").exists()) == (
            False,
            False,
            False,
        )
        kubewright(machine, "backup", "restore", BACKUP, "--key-file", KEY, "--yes")
    assert any("backup restore" in text for text in arguments.found)
    assert [text for text in arguments.found if seen(text, secrets)] == []
    assert {name: (machine.root / f"etc/kubernetes/pki/{name}").read_bytes() for name in before} == before
    assert names(machine) == objects
    eventually(lambda: _is_ready(machine), "the Node to be Ready")
    eventually(lambda: ready(machine, "daemonset", "kube-proxy"), "kube-proxy")
    left = machine.run("sh", "-c", f"grep -rl {key} /etc/kubernetes /var/lib/kubewright /var/lib/etcd; true").out
    assert left == ""


@pytest.mark.parametrize("moment", range(2))
def test_a_replacement_that_is_killed_at_a_random_moment_ends_as_an_undisturbed_one(replacement: MemberReplace, moment: int) -> None:
    _killed(replacement, moments(replacement.reference.course.seconds, count=2, seed=SEED + 1)[moment])
