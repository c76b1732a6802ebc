"""`upgrade apply` on whole machines, beside real kubeadm: the same machine and the same cluster afterwards, even after a power cut.

Also the restored state if a component fails.

The second patch level is made without a build (`testbed/patch_level.py`). Both control planes were made by kubewright from one configuration.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

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
    configuration,
    content,
    etcd_wanted,
    patch,
    pod_of_a_gone_machine,
    require_running,
    running,
    state,
)
from machine_kit import CONFIG, SHARED, eventually, kubectl, kubewright, proxy_container, reading, ready, write
from manifest_moves import taken_away
from state_kit import data_of, has_data, require_same
from testbed import patch_level
from testbed.bed import Bed
from upgrade_stages import WITHOUT_CHECKS, boot_again, find_kubewright_at_boot

from kubewright.base.level import KUBERNETES
from kubewright.machines.images import of_release
from kubewright.machines.kit import programs
from kubewright.machines.machine import Machine
from kubewright.machines.parts import Parts
from matrices import Matrix
from typed import ROOT, Step, steps

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
        eventually(lambda: ready(machine, "deployment", "coredns"), "CoreDNS: both tools have a Job done first")
        find_kubewright_at_boot(machine)

    with Bed("one", bed="level", parts=parts, shared=SHARED) as level, Bed("one", bed="upgrade", parts=parts, shared=SHARED) as upgrade:
        found = Both(level["one"], upgrade["one"])
        levels = patch_level.images(of_release(parts.base), KUBERNETES, NEXT)
        at_once(lambda: make(found.theirs), lambda: make(found.ours), lambda: patch_level.give_all([found.theirs, found.ours], levels))
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
    version: str = NEXT
    """The version of the upgrade. With the present one, only what has another argument is replaced."""


BAD_FLAG = "an API server that does not know a flag"
EXITS = "a controller-manager that exits when it has begun"
AS_LEADER = "a controller-manager that fails as the leader"
ONLY_MEMBER = "the only member of etcd"
AFTER_ETCD = "a scheduler, after etcd was replaced"
ETCD_ARGUMENT = "--max-request-bytes=1572866"
FAILURES = {
    BAD_FLAG: Failure(
        "kube-apiserver",
        "--no-such-flag=1",
        ("error: error execution phase control-plane: kube-apiserver failed", "unknown flag: --no-such-flag"),
        RENEWED,
    ),
    EXITS: Failure(
        "kube-controller-manager",
        "--client-ca-file=/none.crt",
        ("kube-controller-manager and kube-scheduler failed", "/none.crt"),
        WITH_OTHERS,
    ),
    AS_LEADER: Failure(
        "kube-controller-manager",
        "--root-ca-file=/none.crt",
        ("upgrade failed", "kube-controller-manager has ended since its upgrade", "error parsing root-ca-file at /none.crt"),
        {"controller-manager.conf", "admin.conf", "super-admin.conf"},
        version=KUBERNETES,
    ),
    ONLY_MEMBER: Failure(
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


PLAN, APPLY = f"kubewright upgrade plan {NEXT}", f"kubewright upgrade apply {NEXT}"
KUBELET = "kubewright upgrade node --kubelet ./kubelet --drain"
PLAN_BACK, BACK = "kubewright upgrade rollback --plan", "kubewright upgrade rollback"
"""Commands of the guide."""
BESIDES = {
    "kubewright upgrade plan": IGNORED,
    "kubewright upgrade apply": f"--force {IGNORED}",
    "kubewright upgrade node": IGNORED,
    "kubewright upgrade rollback": "<<< y",
}
"""What the guide's reader adds: answers, a patch level that is newer than the tool, and what these machines need."""


@pytest.mark.parametrize("names", [(BAD_FLAG, AS_LEADER), (AFTER_ETCD, EXITS), (ONLY_MEMBER,)], ids=", ".join)
def test_a_component_that_does_not_run_takes_the_machine_back(both: Both, names: tuple[str, ...], matrix: Callable[[str], Matrix]) -> None:
    """Each on a machine of its own, at the same time. The checks of an upgrade have nothing to do with it."""
    failures = matrix(FAILURES_MATRIX)
    at_once(*(partial(require_taken_back, *row, failures) for row in zip((both.ours, both.theirs), names, strict=False)))


def require_taken_back(machine: Machine, name: str, failures: Matrix) -> None:
    failure = FAILURES[name]
    patch(machine, failure.component, argument(failure.argument))
    if failure.etcd:
        write(machine, f"{PATCHES}/etcd+json.yaml", argument(failure.etcd))
    upgrade = ("upgrade", "apply", "--yes", "--force", *WITHOUT_CHECKS, "--patches", PATCHES)
    before, data, works = content(machine), data_of(machine), proxy_container(machine)
    with failures.cell(name, "kubewright") as cell:
        with taken_away(machine) as away:
            ended = kubewright(machine, *upgrade, failure.version, check=False)
        assert (ended.code, away) == (1, set()), ended.err
        assert [text for text in (*failure.says, "this machine is back in its earlier state") if text not in ended.err] == []
        assert changed(before, content(machine)) == failure.changed
        eventually(lambda: running(machine) == dict.fromkeys(COMPONENTS, KUBERNETES), "the components of the earlier version")
        assert has_data(machine, data)
        assert proxy_container(machine) == works
        cell.says("as before")


def test_a_version_without_images_and_a_full_disk_stop_an_upgrade_before_anything_changes(
    both: Both, matrix: Callable[[str], Matrix]
) -> None:
    """Each on a machine of its own, at the same time."""
    before = [content(machine) for machine in (both.ours, both.theirs)]
    at_once(lambda: require_space(both.ours), lambda: require_images(both.theirs))
    assert [changed(*pair) for pair in zip(before, (content(machine) for machine in (both.ours, both.theirs)), strict=True)] == [set()] * 2
    for machine in (both.ours, both.theirs):
        require_running(machine, KUBERNETES)
    for name in ("a disk without space for the snapshot", "a missing image"):
        matrix(FAILURES_MATRIX).record(name, "kubewright", "nothing changed")


def require_space(machine: Machine) -> None:
    machine.run("mkdir", "-p", "/etc/kubernetes/tmp")
    machine.run("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/etc/kubernetes/tmp")
    try:
        refused = apply(machine, check=False)
        full = apply(machine, *WITHOUT_CHECKS, check=False)
    finally:
        machine.run("umount", "/etc/kubernetes/tmp")
    assert (refused.code, "DiskSpace]: the file system of /etc/kubernetes/tmp has 0 MB left" in refused.err) == (1, True), refused.err
    assert (full.code, "snapshot.db does not fit on its file system" in full.err) == (1, True), full.err


def require_images(machine: Machine) -> None:
    missing = kubewright(machine, "upgrade", "apply", "v1.36.9", "--yes", "--force", IGNORED, check=False)
    assert (missing.code, "registry.k8s.io/kube-apiserver:v1.36.9" in missing.err) == (1, True), missing.err


def test_a_machine_is_the_same_whichever_tool_has_upgraded_it_despite_a_power_cut(both: Both, matrix: Callable[[str], Matrix]) -> None:
    """The power fails between a key and its certificate. The machine comes up by itself, and the commands of the guide complete the upgrade."""
    kubeadm = ("kubeadm", "upgrade", "apply", NEXT, "--yes", IGNORED)
    for machine in (both.theirs, both.ours):  # of upgrades that failed
        machine.run("rm", "-rf", "/etc/kubernetes/tmp")
    with matrix(f"kill, {SEED_NAME}={SEED}").cell("upgrade apply", "step, power cut"):
        with taken_away(both.theirs) as away:
            theirs, ours = at_once(lambda: both.theirs.run(*kubeadm), lambda: upgraded_despite_a_power_cut(both.ours))
        assert (SUCCESS in theirs.out, SUCCESS in ours) == (True, True)
        assert "Restarting the etcd static pod" in theirs.out
        assert "Current and new manifests of etcd are equal, skipping upgrade" in ours
        # kubeadm moves each manifest away before it moves the new one in
        assert away == {"etcd.yaml", *(f"{name}.yaml" for name in COMPONENTS)}
        assert {"kubeadm-backup-etcd", "kubeadm-backup-manifests"} <= backups(both.ours) <= backups(both.theirs)
        # kubeadm calls a component upgraded when its pod is Running, whatever its container does
        eventually(lambda: running(both.theirs) == dict.fromkeys(COMPONENTS, NEXT), "the components to report the new version")
        require_same_as_kubeadms(both)
        assert both.ours.run("systemctl", "cat", "kubewright-recover", check=False).code != 0
        assert kept_keys(both.ours) == []


def guide(first: str, end: str = "") -> Iterator[Step]:
    """Return the steps of the guide from one command on, up to another one or to the end."""
    found = list(steps(ROOT / "docs/guide/upgrade.md"))
    commands = [step.command for step in found]
    return iter(found[commands.index(first) : commands.index(end) if end else None])


def kept_keys(machine: Machine) -> list[str]:
    """Return the files in which kubewright keeps private keys, and require that nobody but root can read anything that it keeps."""
    assert machine.run("find", "/var/lib/kubewright", "-perm", "/077").out == ""
    return machine.run("grep", "-rlE", "PRIVATE KEY|client-key-data", "/var/lib/kubewright", check=False).out.split()


def upgraded_despite_a_power_cut(machine: Machine) -> str:
    """Follow the guide up to the state of the upgrade; returns what its `upgrade apply` has printed."""
    with reading(machine) as reader:
        reader.follow(guide(PLAN, APPLY), besides=BESIDES)
    assert len(reader.done) == 2
    before = content(machine)
    killed_before_writing(machine, "apiserver.crt", ("upgrade", "apply", NEXT, "--yes", "--force", *WITHOUT_CHECKS))
    after = content(machine)
    assert kept_keys(machine) != []
    assert [before[name] == after[name] for name in ("pki/apiserver.key", "pki/apiserver.crt")] == [False, True]
    boot_again(machine)
    eventually(lambda: running(machine) == dict.fromkeys(COMPONENTS, KUBERNETES), "the components of the earlier version to run")
    found = content(machine)
    assert (found["pki/apiserver.key"], found["pki/apiserver.crt"] != before["pki/apiserver.crt"]) == (after["pki/apiserver.key"], True)
    etcd = etcd_process(machine)
    with reading(machine) as reader:
        reader.follow(guide(APPLY, KUBELET), besides=BESIDES)
    assert (len(reader.done), etcd_process(machine)) == (3, etcd)
    return reader.printed[APPLY]


def etcd_process(machine: Machine) -> str:
    """Return the process of etcd, which an upgrade between these versions does not change, nor does another kubelet."""
    return machine.run("pidof", "etcd").out


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


def test_the_commands_of_the_guide_replace_the_kubelet(both: Both) -> None:
    machine = both.ours
    before, kubelet = etcd_process(machine), machine.root / "root/kubelet"
    shutil.copyfile(patch_level.program(programs(("kubelet",))["kubelet"].resolve(), KUBERNETES, NEXT), kubelet)
    machine.run("chmod", "755", "/root/kubelet")
    with reading(machine) as reader:
        reader.follow(guide(KUBELET, PLAN_BACK), besides=BESIDES)
    assert len(reader.done) == 1
    assert machine.run("kubelet", "--version").out == f"Kubernetes {NEXT}\n"
    require_running(machine, NEXT)
    assert etcd_process(machine) == before


def test_rollback_brings_the_earlier_static_pods_and_files_of_the_kubelet_back(both: Both) -> None:
    """The commands are those of the guide."""
    machine, config = both.ours, both.ours.root / "var/lib/kubelet/config.yaml"
    etcd, before, pods = etcd_process(machine), config.read_bytes(), pods_of_kubelet(machine)
    patch(machine, "kubeletconfiguration", '[{"op": "add", "path": "/maxPods", "value": 90}]')
    kubewright(machine, "upgrade", "node", "phase", "kubelet-config", "--patches", PATCHES)
    assert b"maxPods: 90\n" in config.read_bytes()
    machine.run("systemctl", "restart", "kubelet")
    eventually(lambda: pods_of_kubelet(machine) == "90", "the kubelet to run with its new configuration")
    planned = json.loads(kubewright(machine, "upgrade", "rollback", "--plan", "-o", "json").out)
    of_cluster = ["configmap kube-system/kubeadm-config", "daemonset kube-system/kube-proxy"]
    files = [*(f"/etc/kubernetes/manifests/{name}.yaml" for name in COMPONENTS), "/var/lib/kubelet/config.yaml"]
    assert [one["target"] for one in planned] == [*of_cluster, *(f"file {name}" for name in files)]
    with reading(machine) as reader:
        reader.follow(guide(PLAN_BACK), besides=BESIDES)
    assert len(reader.done) == 2
    assert [name in reader.printed[BACK] for name in files] == [True] * 4, reader.printed[BACK]
    assert "The earlier static pods are running again" in reader.printed[BACK]
    assert "The kubelet runs with its earlier files" in reader.printed[BACK]
    require_running(machine, KUBERNETES)
    assert (config.read_bytes(), pods, etcd_process(machine)) == (before, "110", etcd)
    eventually(lambda: pods_of_kubelet(machine) == pods, "the kubelet to run with its earlier configuration")
    again = kubewright(machine, "upgrade", "rollback", "--yes", check=False)
    assert (again.code, "has been rolled back already" in again.err) == (1, True)


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
    machine, failure = both.theirs, FAILURES[EXITS]
    patch(machine, failure.component, argument(failure.argument))
    with matrix(FAILURES_MATRIX).cell(EXITS, "kubeadm") as cell:
        ended = machine.run("kubeadm", "upgrade", "apply", NEXT, "--yes", IGNORED, "--patches", PATCHES, check=False)
        assert (ended.code, SUCCESS in ended.out) == (0, True), ended.err
        eventually(lambda: failure.component not in running(machine), "the controller-manager to end")
        cell.says("SUCCESS")
