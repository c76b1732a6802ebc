"""An upgrade to the next minor release: two clusters that kubeadm v1.35 made, of which kubeadm v1.36 upgrades one, and kubewright the other.

The programs of Kubernetes are those of either release. etcd and CoreDNS of the earlier one are those of the later one, with another version
string (`testbed/patch_level.py`).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from canary_kit import Arguments, made, seen
from cluster_kit import KUBEADM, at_once, run
from interop_kit import nodes, words_of
from level_kit import COMPONENTS, IGNORED, changes, configuration, content, running
from machine_kit import CONFIG, SHARED, eventually, kubewright, patiently, ready, write
from state_kit import require_same
from testbed import patch_level
from testbed.bed import Bed
from upgrade_cells import container_of, require_usable, states, workload

from kubewright import binaries
from kubewright.base.level import KUBERNETES
from kubewright.base.records import replace
from kubewright.machines.images import Image, of_release
from kubewright.machines.kit import programs
from kubewright.machines.machine import Machine
from kubewright.machines.parts import Parts

EARLIER = "v1.35.4"
NAMES = FIRST, WORKER = ("first", "worker")
OF_EVERY_NODE = ("kube-proxy", "coredns", "pause")
"""The images that a worker needs as well."""
TAGS = {"etcd": ("3.6.8", "3.6.6"), "coredns": ("1.14.2", "1.13.1"), "pause": ("3.10.2", "3.10.1")}
"""The versions in the tags of kubeadm v1.36.3, and of kubeadm v1.35.4."""
KUBELET = "/opt/kubelet"


def earlier(names: Sequence[str]) -> dict[str, Path]:
    """Return programs of the earlier release, which no directory of binaries has; the first time, they are built."""
    sources = binaries.sources_from({**os.environ, "KUBEWRIGHT_BINARIES_DIR": ""})
    return {name: path.resolve() for name, path in programs(names, version=EARLIER, sources=sources).items()}


def images(parts: Parts) -> list[Image]:
    """Return the images of the earlier release, in the names that its kubeadm gives them."""
    found = {image.reference.rpartition(":")[0].rpartition("/")[2]: image for image in of_release(parts.base)}
    built = earlier((*COMPONENTS, "kube-proxy"))
    components = [
        replace(found[name], reference=found[name].reference.replace(KUBERNETES, EARLIER), files={f"usr/local/bin/{name}": path})
        for name, path in built.items()
    ]
    others = [patch_level.renumbered(found[name], *TAGS[name]) for name in ("etcd", "coredns")]
    pause = replace(found["pause"], reference=found["pause"].reference.replace(*TAGS["pause"]))
    return [*components, *others, pause]


@dataclass(frozen=True)
class Cluster:
    """A control plane and a worker of the earlier release, the containers of a pod on each, and the files of their kubelets by path."""

    bed: Bed
    pods: Mapping[str, tuple[str, int]]
    kubelets: Mapping[str, Mapping[str, str]]

    @property
    def first(self) -> Machine:
        return self.bed[FIRST]

    @property
    def worker(self) -> Machine:
        return self.bed[WORKER]


def containers(first: Machine) -> dict[str, tuple[str, int]]:
    """Return the container of the pod on each node, and how often it was restarted."""
    return {node: container_of(first, node) for node in NAMES}


def kubelet_files(machine: Machine) -> dict[str, str]:
    """Return the files of a machine's kubelet that an upgrade may change."""
    paths = machine.run("sh", "-c", "ls /var/lib/kubelet/*.yaml /var/lib/kubelet/*.env /etc/kubernetes/kubelet.conf").out.split()
    return {path: machine.run("cat", path).out for path in paths}


@dataclass(frozen=True)
class Both:
    """The cluster that kubeadm upgrades, and the one that kubewright does."""

    theirs: Cluster
    ours: Cluster


@pytest.fixture(scope="module")
def both(parts: Parts) -> Iterator[Both]:
    given, tools = images(parts), earlier(("kubelet", "kubeadm"))

    def equip(machine: Machine) -> None:
        for name, path in tools.items():
            patch_level.put(machine, name, path)
        patch_level.give(
            machine, [image for image in given if machine.name == FIRST or any(name in image.reference for name in OF_EVERY_NODE)]
        )

    def begin(bed: Bed) -> Cluster:
        first, worker = bed[FIRST], bed[WORKER]
        at_once(lambda: equip(first), lambda: equip(worker))
        write(first, CONFIG, configuration(first).replace(KUBERNETES, EARLIER))
        [_, words] = words_of(run(KUBEADM, first, "init", "--config", CONFIG).out)
        run(KUBEADM, worker, *patiently(worker, words))
        eventually(lambda: nodes(first) == {FIRST: (True, True), WORKER: (True, False)}, "both Nodes to be ready")
        eventually(lambda: ready(first, "deployment", "coredns"), "CoreDNS: a Job is done first")
        for node in NAMES:
            workload(first, node)
        return Cluster(bed, containers(first), {name: kubelet_files(bed[name]) for name in NAMES})

    with (
        Bed(*NAMES, bed="minor", parts=parts, shared=SHARED) as theirs,
        Bed(*NAMES, bed="minor-upgrade", parts=parts, shared=SHARED) as ours,
    ):
        yield Both(*at_once(lambda: begin(theirs), lambda: begin(ours)))


def require_versions(cluster: Cluster, version: str) -> None:
    """Require that every process reports this version. One that lost its lease, as on a busy machine, has ended and is started again."""
    of_worker = ("kube-proxy", "kubelet")
    for machine, names in ((cluster.first, (*COMPONENTS, *of_worker)), (cluster.worker, of_worker)):
        eventually(partial(_run_in, machine, names, version), f"{machine.name} to run {version}")


def _run_in(machine: Machine, names: Sequence[str], version: str) -> bool:
    return running(machine, names) == dict.fromkeys(names, version)


def test_the_plans_of_both_tools_are_equal_and_change_nothing(both: Both) -> None:
    require_versions(both.ours, EARLIER)
    patch_level.put(both.theirs.first, "kubeadm", programs(("kubeadm",))["kubeadm"].resolve())
    before = content(both.ours.first)
    words = ("upgrade", "plan", KUBERNETES, IGNORED, "-o", "json")
    theirs, ours = (json.loads(said) for said in (run(KUBEADM, both.theirs.first, *words).out, kubewright(both.ours.first, *words).out))
    assert ours == theirs
    [upgrade] = ours["availableUpgrades"]
    assert {"name": "etcd", "currentVersion": "3.6.6-0", "newVersion": "3.6.8-0", "nodeName": FIRST} in upgrade["components"]
    diff = kubewright(both.ours.first, "upgrade", "diff", KUBERNETES).out
    assert [f"-    image: registry.k8s.io/{name}:{EARLIER}\n" in diff for name in COMPONENTS] == [True] * 3
    planned = json.loads(kubewright(both.ours.first, "upgrade", "apply", KUBERNETES, "--plan", "-o", "json").out)
    targets = {one["target"] for one in planned}
    assert {f"file /etc/kubernetes/manifests/{name}.yaml" for name in ("etcd", *COMPONENTS)} < targets
    assert content(both.ours.first) == before


def upgraded_by_kubeadm(cluster: Cluster) -> None:
    """Upgrade everything as kubeadm's users do: the kubelets are installed by packages."""
    new = {name: path.resolve() for name, path in programs(("kubeadm", "kubelet")).items()}
    for machine, words in ((cluster.first, ("apply", KUBERNETES, "--yes")), (cluster.worker, ("node",))):
        patch_level.put(machine, "kubeadm", new["kubeadm"])
        run(KUBEADM, machine, "upgrade", *words, IGNORED)
        patch_level.put(machine, "kubelet", new["kubelet"])
        machine.run("systemctl", "restart", "kubelet")


def upgraded_by_kubewright(cluster: Cluster) -> None:
    """Upgrade everything, and require that no process has a private key among its arguments meanwhile.

    A kubelet of another minor release starts static pods again; the command waits for them, so that the next one finds an API server.
    """
    keys, arguments = made(cluster.first), Arguments(cluster.first)
    with arguments.watched():
        kubewright(cluster.first, "upgrade", "apply", KUBERNETES, "--yes", IGNORED)
        etcd = cluster.first.run("pidof", "etcd").out
        for machine in (cluster.first, cluster.worker):
            shutil.copyfile(programs(("kubelet",))["kubelet"].resolve(), machine.root / KUBELET.removeprefix("/"))
            machine.run("chmod", "755", KUBELET)
            kubewright(machine, "upgrade", "node", "--kubelet", KUBELET, IGNORED)
        assert cluster.first.run("pidof", "etcd").out != etcd
    assert any("upgrade apply" in text for text in arguments.found)
    new = {f"new {name}": forms for name, forms in made(cluster.first).items()}
    assert [text for text in arguments.found if seen(text, {**keys, **new})] == []


def test_the_cluster_is_the_same_whichever_tool_has_upgraded_it(both: Both) -> None:
    at_once(lambda: upgraded_by_kubeadm(both.theirs), lambda: upgraded_by_kubewright(both.ours))
    for cluster in (both.theirs, both.ours):
        require_versions(cluster, KUBERNETES)
        eventually(partial(_is_ready, cluster.first), "both Nodes to be ready")
        for kind, name in (("daemonset", "kube-proxy"), ("deployment", "coredns")):
            eventually(partial(ready, cluster.first, kind, name), name)
    require_same(*(states(cluster.bed.machines.values()) for cluster in (both.theirs, both.ours)))


def _is_ready(first: Machine) -> bool:
    return nodes(first) == {FIRST: (True, True), WORKER: (True, False)}


def test_a_second_run_changes_nothing(both: Both) -> None:
    for machine, words in (
        (both.ours.first, ("apply", KUBERNETES, "--yes")),
        (both.ours.first, ("node", "--kubelet", KUBELET)),
        (both.ours.worker, ("node", "--kubelet", KUBELET)),
    ):
        before = content(machine)
        assert changes(kubewright(machine, "upgrade", *words, IGNORED, "-o", "json")) == []
        assert content(machine) == before


def test_the_pods_of_users_run_on(both: Both) -> None:
    first = both.ours.first
    eventually(lambda: "" not in {container for container, _ in containers(first).values()}, "the pods to run", within=120)
    assert containers(first) == both.ours.pods


def test_the_commands_of_both_tools_continue_with_the_cluster(both: Both) -> None:
    first = both.ours.first
    patch_level.put(first, "kubeadm", programs(("kubeadm",))["kubeadm"].resolve())
    told = json.loads(kubewright(first, "upgrade", "status", "-o", "json").out)
    assert (told["storedVersion"], told["next"]) == (KUBERNETES, [])
    assert {(one["component"], one["version"]) for one in told["versions"] if one["source"] == "process"} == {
        ("etcd", "3.6.8"),
        *((name, KUBERNETES) for name in COMPONENTS),
    }
    require_usable(first, KUBERNETES)


def test_a_rollback_brings_the_earlier_minor_release_back(both: Both) -> None:
    """The kubelets go first: they must not be newer than an API server. Their other files are the same in both releases."""
    first, worker = both.ours.first, both.ours.worker
    for machine in (worker, first):
        shutil.copyfile(earlier(("kubelet",))["kubelet"], machine.root / KUBELET.removeprefix("/"))
        kubewright(machine, "upgrade", "node", "--kubelet", KUBELET, IGNORED)
    assert {name: kubelet_files(machine) for name, machine in both.ours.bed.machines.items()} == both.ours.kubelets
    refused = kubewright(worker, "upgrade", "rollback", "--yes", check=False)
    assert (refused.code, "no upgrade has replaced anything on this machine" in refused.err) == (1, True), refused.err
    done = changes(kubewright(first, "upgrade", "rollback", "--yes", "-o", "json"))
    assert {f"file /etc/kubernetes/manifests/{name}.yaml" for name in ("etcd", *COMPONENTS)} < set(done)
    require_versions(both.ours, EARLIER)
    eventually(partial(_is_ready, first), "both Nodes to be ready")
    told = json.loads(kubewright(first, "upgrade", "status", "-o", "json").out)
    assert told["storedVersion"] == EARLIER
    assert {(one["component"], one["version"]) for one in told["versions"] if one["source"] == "process"} == {
        ("etcd", "3.6.6"),
        *((name, EARLIER) for name in COMPONENTS),
    }
    assert [container for container, _ in containers(first).values()] == [container for container, _ in both.ours.pods.values()]
