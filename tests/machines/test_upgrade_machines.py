"""`upgrade apply` on whole machines, beside real kubeadm: the same machine and the same cluster afterwards, even after a power cut.

Also the restored state if a component fails.

The second patch level is made without a build (`testbed/patch_level.py`). Both control planes were made by kubewright from one configuration.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest
from cluster_kit import at_once
from kill_kit import SEED, SEED_NAME, killed_before_writing
from level_kit import (
    COMPONENTS,
    ETCD_LEAVES,
    FAILURES_MATRIX,
    HURRIED,
    IGNORED,
    NEXT,
    PATCHES,
    RENEWED,
    UNMOUNTABLE,
    WITH_OTHERS,
    apply,
    argument,
    changed,
    changes,
    configuration,
    content,
    etcd_wanted,
    patch,
    pod_of_a_gone_machine,
    require_running,
    running,
    state,
)
from machine_kit import CONFIG, ENVIRONMENT, SHARED, argv, eventually, kubectl, kubewright, proxy_container, ready, write
from manifest_moves import taken_away
from state_kit import data_of, has_data, require_same
from testbed import patch_level
from testbed.bed import Bed
from upgrade_stages import boot_again, find_kubewright_at_boot

from kubewright.base.level import KUBERNETES
from kubewright.machines.images import of_release
from kubewright.machines.kit import programs
from kubewright.machines.machine import Ended, Machine
from kubewright.machines.parts import Parts
from matrices import Matrix
from typed import ROOT, Reader, Terminal, steps

SUCCESS = f'SUCCESS! A control plane node of your cluster was upgraded to "{NEXT}"'


class Both:
    """Two control planes of the same configuration: what kubeadm upgrades, and what kubewright does."""

    def __init__(self, theirs: Machine, ours: Machine) -> None:
        self.theirs, self.ours = theirs, ours


@pytest.fixture(scope="module")
def both(parts: Parts) -> Iterator[Both]:
    def make(machine: Machine) -> None:
        write(machine, CONFIG, configuration(machine))
        kubewright(machine, "init", "--config", CONFIG)
        patch_level.give(machine, patch_level.images(of_release(parts.base), KUBERNETES, NEXT))
        eventually(lambda: ready(machine, "deployment", "coredns"), "CoreDNS: both tools have a Job done first")
        find_kubewright_at_boot(machine)

    with Bed("one", bed="level", parts=parts, shared=SHARED) as level, Bed("one", bed="upgrade", parts=parts, shared=SHARED) as upgrade:
        found = Both(level["one"], upgrade["one"])
        at_once(lambda: make(found.theirs), lambda: make(found.ours))
        patch_level.install(found.theirs, "kubeadm", KUBERNETES, NEXT)
        yield found


@dataclass(frozen=True)
class Failure:
    """What an upgrade is given, and what it says. `changed` are the certificates that were renewed before it failed, and stay."""

    component: str
    argument: str
    says: tuple[str, ...]
    changed: set[str]
    etcd: str = ""
    """An argument that etcd is given as well, so that it is replaced before."""


AFTER_ETCD = "a scheduler, after etcd was replaced"
ETCD_ARGUMENT = "--max-request-bytes=1572866"
FAILURES = {
    "an API server that does not know a flag": Failure(
        "kube-apiserver",
        "--no-such-flag=1",
        ("error: error execution phase control-plane: kube-apiserver failed", "unknown flag: --no-such-flag"),
        RENEWED,
    ),
    "a controller-manager that exits when it has begun": Failure(
        "kube-controller-manager",
        "--client-ca-file=/none.crt",
        ("kube-controller-manager and kube-scheduler failed", "/none.crt"),
        WITH_OTHERS,
    ),
    "a controller-manager that fails as the leader": Failure(
        "kube-controller-manager",
        "--root-ca-file=/none.crt",
        ("upgrade failed", "kube-controller-manager has ended since its upgrade", "error parsing root-ca-file at /none.crt"),
        WITH_OTHERS | {"admin.conf", "super-admin.conf"},
    ),
    "the only member of etcd": Failure(
        "etcd", "--no-such-flag=1", ("error: error execution phase control-plane: etcd failed", "no-such-flag"), ETCD_LEAVES
    ),
    AFTER_ETCD: Failure(
        "kube-scheduler",
        "--no-such-flag=1",
        ("kube-controller-manager and kube-scheduler failed", "unknown flag: --no-such-flag"),
        WITH_OTHERS | ETCD_LEAVES,
        etcd=ETCD_ARGUMENT,
    ),
}


BESIDES = {
    "kubewright upgrade plan": IGNORED,
    "kubewright upgrade apply": f"--force {IGNORED}",
    "kubewright upgrade node": IGNORED,
    "kubewright upgrade rollback": "<<< y",
}
"""What the guide's reader adds: answers, a patch level that is newer than the tool, and what these machines need."""


@pytest.mark.parametrize("name", FAILURES)
def test_a_component_that_does_not_run_takes_the_machine_back(both: Both, name: str, matrix: Callable[[str], Matrix]) -> None:
    machine, failure = both.ours, FAILURES[name]
    patch(machine, failure.component, argument(failure.argument))
    if failure.etcd:
        write(machine, f"{PATCHES}/etcd+json.yaml", argument(failure.etcd))
    before, data, works = content(machine), data_of(machine), proxy_container(machine)
    with matrix(FAILURES_MATRIX).cell(name, "kubewright") as cell:
        with taken_away(machine) as away:
            ended = apply(machine, "--patches", PATCHES, check=False)
        assert (ended.code, away) == (1, set())
        assert [text for text in (*failure.says, "this machine is back in its earlier state") if text not in ended.err] == []
        assert changed(before, content(machine)) == failure.changed
        eventually(lambda: running(machine) == dict.fromkeys(COMPONENTS, KUBERNETES), "the components of the earlier version")
        assert has_data(machine, data)
        assert proxy_container(machine) == works
        cell.says("as before")


def test_a_version_without_images_and_a_full_disk_stop_an_upgrade_before_anything_changes(
    both: Both, matrix: Callable[[str], Matrix]
) -> None:
    machine = both.ours
    before = content(machine)
    machine.run("mkdir", "-p", "/etc/kubernetes/tmp")
    machine.run("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/etc/kubernetes/tmp")
    try:
        refused = apply(machine, check=False)
        full = apply(machine, f"{IGNORED},DiskSpace", check=False)
    finally:
        machine.run("umount", "/etc/kubernetes/tmp")
    assert (refused.code, "DiskSpace]: the file system of /etc/kubernetes/tmp has 0 MB left" in refused.err) == (1, True), refused.err
    assert (full.code, "snapshot.db does not fit on its file system" in full.err) == (1, True), full.err
    missing = kubewright(machine, "upgrade", "apply", "v1.36.9", "--yes", "--force", IGNORED, check=False)
    assert (missing.code, "registry.k8s.io/kube-apiserver:v1.36.9" in missing.err) == (1, True), missing.err
    assert changed(before, content(machine)) == set()
    require_running(machine, KUBERNETES)
    for name in ("a disk without space for the snapshot", "a missing image"):
        matrix(FAILURES_MATRIX).record(name, "kubewright", "nothing changed")


def test_a_machine_is_the_same_whichever_tool_has_upgraded_it_despite_a_power_cut(both: Both, matrix: Callable[[str], Matrix]) -> None:
    """The power fails between a key and its certificate. The machine comes up by itself, and the same command completes the upgrade."""
    kubeadm = ("kubeadm", "upgrade", "apply", NEXT, "--yes", IGNORED)
    with matrix(f"kill, {SEED_NAME}={SEED}").cell("upgrade apply", "step, power cut"):
        with taken_away(both.theirs) as away:
            theirs, ours = at_once(lambda: both.theirs.run(*kubeadm), lambda: upgraded_despite_a_power_cut(both.ours))
        assert (SUCCESS in theirs.out, SUCCESS in ours.out) == (True, True)
        assert "Restarting the etcd static pod" in theirs.out
        assert "Current and new manifests of etcd are equal, skipping upgrade" in ours.out
        # kubeadm moves each manifest away before it moves the new one in
        assert away == {"etcd.yaml", *(f"{name}.yaml" for name in COMPONENTS)}
        assert {"kubeadm-backup-etcd", "kubeadm-backup-manifests"} <= backups(both.ours) <= backups(both.theirs)
        # kubeadm calls a component upgraded when its pod is Running, whatever its container does
        eventually(lambda: running(both.theirs) == dict.fromkeys(COMPONENTS, NEXT), "the components to report the new version")
        require_same_as_kubeadms(both)
        assert both.ours.run("systemctl", "cat", "kubewright-recover", check=False).code != 0
        assert kept_keys(both.ours) == []


def kept_keys(machine: Machine) -> list[str]:
    """Return the files in which kubewright keeps private keys, and require that nobody but root can read anything that it keeps."""
    assert machine.run("find", "/var/lib/kubewright", "-perm", "/077").out == ""
    return machine.run("grep", "-rlE", "PRIVATE KEY|client-key-data", "/var/lib/kubewright", check=False).out.split()


def upgraded_despite_a_power_cut(machine: Machine) -> Ended:
    before = content(machine)
    killed_before_writing(machine, "apiserver.crt", ("upgrade", "apply", NEXT, "--yes", "--force", IGNORED))
    after = content(machine)
    assert kept_keys(machine) != []
    assert [before[name] == after[name] for name in ("pki/apiserver.key", "pki/apiserver.crt")] == [False, True]
    boot_again(machine)
    eventually(lambda: running(machine) == dict.fromkeys(COMPONENTS, KUBERNETES), "the components of the earlier version to run")
    found = content(machine)
    assert (found["pki/apiserver.key"], found["pki/apiserver.crt"] != before["pki/apiserver.crt"]) == (after["pki/apiserver.key"], True)
    return apply(machine)


def backups(machine: Machine) -> set[str]:
    """Return the kinds of directories that an upgrade has left where scripts look for backups."""
    return {path.name.rstrip("-0123456789") for path in (machine.root / "etc/kubernetes/tmp").iterdir()}


def require_same_as_kubeadms(both: Both) -> None:
    """Require that our machine runs the new version, and is the same as the one that kubeadm has upgraded."""
    require_running(both.ours, NEXT)
    for machine in (both.theirs, both.ours):
        eventually(lambda machine=machine: ready(machine, "daemonset", "kube-proxy"), "kube-proxy")  # type: ignore[misc]
    require_same(state(both.theirs), state(both.ours))


def test_the_backup_of_etcd_is_a_snapshot_and_that_of_kubeadm_a_copy_of_a_running_database(both: Both) -> None:
    ours, theirs = (
        machine.run("find", "/etc/kubernetes/tmp", "-path", name).out.split()
        for machine, name in ((both.ours, "*/snapshot.db"), (both.theirs, "*/member/snap/db"))
    )
    assert {kubewright(both.ours, "etcd", "snapshot", "verify", path, check=False).code for path in ours} == {0}
    assert [kubewright(both.theirs, "etcd", "snapshot", "verify", path, check=False).code for path in theirs] == [3]


def test_a_second_run_changes_nothing(both: Both) -> None:
    before = content(both.ours)
    assert json.loads(apply(both.ours, "-o", "json").out) == {"changes": [], "proofs": []}
    assert content(both.ours) == before


def test_status_shows_the_versions_that_processes_report(both: Both) -> None:
    require_running(both.ours, NEXT)
    found = json.loads(kubewright(both.ours, "upgrade", "status", "-o", "json").out)
    versions = {one["component"]: (one["version"], one["source"]) for one in found["versions"]}
    assert versions["kubelet"] == (KUBERNETES, "node")
    assert {name: versions[name] for name in COMPONENTS} == dict.fromkeys(COMPONENTS, (NEXT, "process"))
    assert (found["storedVersion"], found["next"]) == (NEXT, [f"upgrade the kubelets of one to {NEXT}"])


def test_init_does_not_take_an_upgraded_machine_back(both: Both) -> None:
    for machine in (both.theirs, both.ours):
        before = content(machine)
        ended = kubewright(machine, "init", "--config", CONFIG, check=False)
        assert (ended.code, f"the API server of this machine has {NEXT}" in ended.err) == (1, True)
        assert f"write kubernetesVersion: {NEXT}" in ended.err
        assert content(machine) == before


def test_only_kubewright_says_that_an_older_patch_level_is_a_downgrade(both: Both) -> None:
    """Neither needs --force."""
    words = ("upgrade", "apply", KUBERNETES, "--yes", "--dry-run", IGNORED)
    theirs, ours = at_once(lambda: both.theirs.run("kubeadm", *words), lambda: kubewright(both.ours, *words))
    assert "downgrade" not in (theirs.out + theirs.err).lower()
    assert f"This is a downgrade: the cluster has {NEXT}, which is newer than {KUBERNETES}" in ours.out


def test_a_pod_of_a_machine_that_is_gone_keeps_only_kubeadm_from_upgrading_add_ons(both: Both) -> None:
    words = ("upgrade", "apply", "phase", "addon", "all", NEXT)
    with pod_of_a_gone_machine(both.theirs), pod_of_a_gone_machine(both.ours):
        theirs, ours = at_once(lambda: both.theirs.run("kubeadm", *words), lambda: kubewright(both.ours, *words))
    said = theirs.out + theirs.err
    assert ("gone" in said, "essential addon" in said) == (True, False), said
    assert [f"essential addon: {name}" in ours.out for name in ("CoreDNS", "kube-proxy")] == [True, True], ours.out


def test_an_etcd_of_another_minor_release_passes_only_the_checks_of_kubeadm(both: Both) -> None:
    words = ("upgrade", "apply", "phase", "preflight", NEXT, "--yes", IGNORED)
    with etcd_wanted(both.theirs, "3.7.0-0"), etcd_wanted(both.ours, "3.7.0-0"):
        theirs, ours = at_once(
            lambda: both.theirs.run("kubeadm", *words, check=False), lambda: kubewright(both.ours, *words, "--force", check=False)
        )
    assert (theirs.code, ours.code) == (0, 1), theirs.err
    assert f"All members need 3.6.11 or later before: https://{both.ours.address}:2379 has 3.6.8" in ours.err
    assert "[ERROR EtcdMinor]" in ours.err


def pods_of_kubelet(machine: Machine) -> str:
    """Return how many pods the running kubelet accepts."""
    return str(kubectl(machine, "get", "node", machine.name)["status"]["allocatable"]["pods"])


def test_rollback_brings_the_earlier_static_pods_and_files_of_the_kubelet_back(both: Both) -> None:
    machine, config = both.ours, both.ours.root / "var/lib/kubelet/config.yaml"
    before, pods = config.read_bytes(), pods_of_kubelet(machine)
    patch(machine, "kubeletconfiguration", '[{"op": "add", "path": "/maxPods", "value": 90}]')
    kubewright(machine, "upgrade", "node", "phase", "kubelet-config", "--patches", PATCHES)
    assert b"maxPods: 90\n" in config.read_bytes()
    machine.run("systemctl", "restart", "kubelet")
    eventually(lambda: pods_of_kubelet(machine) == "90", "the kubelet to run with its new configuration")
    planned = kubewright(machine, "upgrade", "rollback", "--plan", "-o", "json")
    done = kubewright(machine, "upgrade", "rollback", "--yes", "-o", "json")
    of_cluster = ["configmap kube-system/kubeadm-config", "daemonset kube-system/kube-proxy"]
    manifests = [f"file /etc/kubernetes/manifests/{name}.yaml" for name in COMPONENTS]
    targets = [*of_cluster, *manifests, "file /var/lib/kubelet/config.yaml"]
    assert changes(done) == targets
    proofs = {one["what"]: (one["where"], one["expected"], one["found"]) for one in json.loads(done.out)["proofs"]}
    assert proofs == {
        **{f"version of {name}": (machine.name, *[KUBERNETES.removeprefix("v")] * 2) for name in COMPONENTS},
        **{f"health of {name}": (machine.name, "healthy", "healthy") for name in (*COMPONENTS, "the kubelet")},
    }
    assert [one["target"] for one in json.loads(planned.out)] == targets
    require_running(machine, KUBERNETES)
    assert (config.read_bytes(), pods) == (before, "110")
    eventually(lambda: pods_of_kubelet(machine) == pods, "the kubelet to run with its earlier configuration")
    again = kubewright(machine, "upgrade", "rollback", "--yes", check=False)
    assert (again.code, "has been rolled back already" in again.err) == (1, True)


def etcd_container(machine: Machine) -> str:
    """Return the container of etcd, which an upgrade between these versions does not change, nor does another kubelet."""
    return str(kubectl(machine, "-n", "kube-system", "get", "pod", "etcd-one")["status"]["containerStatuses"][0]["containerID"])


def test_the_commands_of_the_guide_upgrade_a_machine_and_take_it_back(both: Both) -> None:
    machine = both.ours
    words = " ".join([*(f"{name}={value}" for name, value in ENVIRONMENT.items()), *argv()])
    write(machine, "/usr/local/bin/kubewright", f'#!/bin/sh\nexec env {words} "$@"\n')
    machine.run("chmod", "755", "/usr/local/bin/kubewright")
    before, found = etcd_container(machine), list(steps(ROOT / "docs/guide/upgrade.md"))
    [replacing] = [number for number, step in enumerate(found) if "--kubelet" in step.command]
    with closing(Terminal(machine.argv("bash", "--noprofile", "--norc"))) as terminal:
        reader = Reader({"one": terminal})
        reader.follow(iter(found[:replacing]), besides=BESIDES)
        require_same_as_kubeadms(both)
        kubelet = machine.root / "root/kubelet"
        shutil.copyfile(patch_level.program(programs(("kubelet",))["kubelet"].resolve(), KUBERNETES, NEXT), kubelet)
        machine.run("chmod", "755", "/root/kubelet")
        reader.follow(iter(found[replacing:]), besides=BESIDES)
    assert len(reader.done) == 8
    assert machine.run("kubelet", "--version").out == f"Kubernetes {NEXT}\n"
    require_running(machine, KUBERNETES)
    assert etcd_container(machine) == before


def test_kubeadm_leaves_a_new_etcd_beside_components_that_have_gone_back(both: Both, matrix: Callable[[str], Matrix]) -> None:
    """It also looks for the manifests of components that it has never moved."""
    machine = both.theirs
    patch(machine, "etcd", argument(ETCD_ARGUMENT))
    write(machine, f"{PATCHES}/kube-scheduler+json.yaml", UNMOUNTABLE)
    write(machine, CONFIG, HURRIED)
    before = content(machine)
    with matrix(FAILURES_MATRIX).cell(AFTER_ETCD, "kubeadm") as cell:
        ended = machine.run("kubeadm", "upgrade", "apply", "--config", CONFIG, check=False)
        assert ended.code != 0
        after = content(machine)
        assert before["manifests/kube-scheduler.yaml"] == after["manifests/kube-scheduler.yaml"]
        assert ETCD_ARGUMENT.encode() in after["manifests/etcd.yaml"]
        lines = [line for line in ended.err.splitlines() if "no such file or directory" in line]
        assert any("kube-apiserver.yaml" in line for line in lines), ended.err
        cell.says("etcd stays new")


def test_kubeadm_calls_a_dead_controller_manager_a_success(both: Both, matrix: Callable[[str], Matrix]) -> None:
    name = "a controller-manager that exits when it has begun"
    machine, failure = both.theirs, FAILURES[name]
    patch(machine, failure.component, argument(failure.argument))
    with matrix(FAILURES_MATRIX).cell(name, "kubeadm") as cell:
        ended = machine.run("kubeadm", "upgrade", "apply", NEXT, "--yes", IGNORED, "--patches", PATCHES, check=False)
        assert (ended.code, SUCCESS in ended.out) == (0, True), ended.err
        eventually(lambda: failure.component not in running(machine), "the controller-manager to end")
        cell.says("SUCCESS")
