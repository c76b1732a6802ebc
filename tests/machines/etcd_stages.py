"""Commands on etcd that are killed: stages over control planes that are kept, whose data is replaced again and again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

from cluster_kit import CERTIFICATE_KEY, KUBEWRIGHT, TOKEN, Cluster, begin
from kill_kit import Boundary, undisturbed
from kill_stages import Reference
from machine_kit import SHARED, administer, eventually, kubectl, kubewright, patiently
from state_kit import State, asked_of_etcd, data_of, require_same
from testbed.bed import Bed
from upgrade_stages import find_kubewright_at_boot

from kubewright.machines.kit import programs
from kubewright.machines.machine import Machine
from kubewright.machines.parts import Parts

SNAPSHOT = "/root/killed.db"
CHECKPOINTS = "/var/lib/kubewright/checkpoints"
_JOIN = (
    *("cluster.test:6443", "--token", TOKEN, "--discovery-token-unsafe-skip-ca-verification", "--control-plane"),
    *("--certificate-key", CERTIFICATE_KEY),
)


def make(bed: Bed) -> None:
    """Make the first machine a control plane that others can join, with etcdutl."""
    shutil.copy(programs(("etcdutl",))["etcdutl"].resolve(), bed["one"].root / "usr/local/bin/etcdutl")
    begin(Cluster(KUBEWRIGHT, bed))
    find_kubewright_at_boot(bed["one"])


def put(machine: Machine, name: str) -> int:
    """Create a ConfigMap, and return its revision."""
    administer(machine, "create", "configmap", name)
    return int(kubectl(machine, "get", "configmap", name)["metadata"]["resourceVersion"])


def names(machine: Machine) -> set[str]:
    """Return the ConfigMaps that tests have created."""
    return {one["metadata"]["name"] for one in kubectl(machine, "get", "configmaps")["items"]} - {"kube-root-ca.crt"}


def have_same_data(first: Machine, second: Machine) -> bool:
    """Whether the members of two machines have the same data at the last revision of the second one, and forgot the same revisions."""
    found = data_of(second)
    other = asked_of_etcd(first, "hashkv", {"revision": found["header"]["revision"]}, service="maintenance")
    return bool(other["hash"] == found["hash"])


class EtcdStage:
    """A command that gives a member of etcd other data, on machines that are made at the first use, unless they are given.

    `writes` are the files before which its steps within phases end.
    """

    name: ClassVar[str]
    arguments: ClassVar[Sequence[str]]
    writes: ClassVar[Sequence[str]] = ("plan.json", "state", "etcd.yaml", "kube-apiserver.yaml")

    def __init__(self, parts: Parts, bed: Bed | None = None) -> None:
        self._parts = parts
        self._given = bed
        self._open = ExitStack()
        self._runs = 0

    @cached_property
    def bed(self) -> Bed:
        if self._given is not None:
            return self._given
        made: Bed = self._open.enter_context(Bed("one", "two", bed="kill-etcd", parts=self._parts, shared=SHARED))
        make(made)
        return made

    @cached_property
    def machine(self) -> Machine:
        return self.bed["one"]

    @cached_property
    def reference(self) -> Reference:
        with self.fresh() as machine:
            course = undisturbed(machine, self.arguments)
            steps = [Boundary.before_writing(name) for name in self.writes]
            return Reference(course=replace(course, boundaries=[*course.boundaries, *steps]), state=self.state(machine))

    @contextmanager
    def fresh(self) -> Iterator[Machine]:
        self._runs += 1
        self.machine.run("sh", "-c", "rm -rf /var/lib/etcd/member.before-*")
        self.begin()
        yield self.machine

    def begin(self) -> None:
        """Note what the next run changes."""

    def boot_again(self, machine: Machine) -> None:
        """Let the machine lose power, and boot it. The first machine serves afterwards, without a command of ours."""
        machine.cut_power()
        machine.boot()
        machine.ready()
        eventually(lambda: bool(kubectl(self.bed["one"], "get", "nodes").get("items")), "etcd to serve")

    def state(self, machine: Machine) -> State:
        """Return what every run must leave, also one that was killed."""
        eventually(lambda: kubewright(machine, "etcd", "status", check=False).code == 0, "etcd to be healthy")
        unfinished = f"cat {CHECKPOINTS}/*/state | grep -v -e '^done$' -e '^rolled back$'"
        left = machine.run("sh", "-c", f"ls -d /var/lib/etcd/new-* 2>/dev/null; {unfinished}", check=False).out.split()
        kept = machine.run("sh", "-c", "ls -d /var/lib/etcd/member.before-*").out.split()
        manifests = machine.run("ls", "/etc/kubernetes/manifests").out.split()
        lease = kubectl(machine, "get", "lease", "-n", "kube-system", "kubewright-operation").get("spec", {})
        unit = machine.run("systemctl", "cat", "kubewright-recover", check=False).code == 0
        return {"left": left, "unit": unit, "kept": len(kept), "manifests": manifests, "holder": lease.get("holderIdentity", "")}

    def finish(self, machine: Machine) -> None:
        kubewright(machine, *self.arguments)
        require_same(self.reference.state, self.state(machine))

    def forget(self) -> None:
        return

    def close(self) -> None:
        self._open.close()


class Restore(EtcdStage):
    """`etcd restore` of a snapshot that was saved just before."""

    name = "etcd restore"
    arguments = ("etcd", "restore", SNAPSHOT, "--yes")
    writes = (*EtcdStage.writes, "member")

    def begin(self) -> None:
        put(self.machine, f"saved-{self._runs}")
        eventually(lambda: kubewright(self.machine, "etcd", "snapshot", "save", SNAPSHOT, check=False).code == 0, "a snapshot")
        self._last = put(self.machine, f"lost-{self._runs}")

    def state(self, machine: Machine) -> State:
        found = names(machine)
        new = put(machine, f"later-{self._runs}") > self._last + 900_000_000
        told: State = {"saved": f"saved-{self._runs}" in found, "lost": f"lost-{self._runs}" in found, "new revisions": new}
        return {**super().state(machine), **told}

    def finish(self, machine: Machine) -> None:
        """The same command once more changes nothing, also after a run that had ended when it was to be killed."""
        super().finish(machine)
        assert "nothing is changed" in kubewright(machine, *self.arguments).out
        assert f"later-{self._runs}" in names(machine)


class MemberReplace(EtcdStage):
    """`etcd member replace` of the second of two members."""

    name = "etcd member replace"
    arguments = ("etcd", "member", "replace", "--yes")

    @cached_property
    def machine(self) -> Machine:
        second = self.bed["two"]
        kubewright(second, *patiently(second, _JOIN))
        return second

    def begin(self) -> None:
        """Forget earlier runs: the same command changes nothing after one that was finished."""
        self.machine.run("sh", "-c", f"rm -rf {CHECKPOINTS}/*-etcd-member-replace")
        self._before = self._member()["id"]

    def state(self, machine: Machine) -> State:
        own = self._member()
        told: State = {name: own[name] for name in ("learner", "serves")}
        told["new"] = own["id"] != self._before
        eventually(lambda: have_same_data(self.bed["one"], machine), "both members to have the same data")
        return {**super().state(machine), **told}

    def _member(self) -> dict[str, Any]:
        found: list[dict[str, Any]] = []

        def listed() -> bool:
            ended = kubewright(self.bed["one"], "etcd", "status", "-o", "json", check=False)
            found[:] = json.loads(ended.out)["members"] if ended.code == 0 else []
            return bool(found)

        eventually(listed, "etcd to be healthy")
        return next(one for one in found if one["name"] == "two")
