"""The workflows that are killed: the machine on which each runs, what is compared afterwards, and the result of an undisturbed run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

import cluster_kit
import state_kit
from cluster_kit import CERTIFICATE_KEY, KUBEWRIGHT, TOKEN, Cluster
from kill_kit import Course, undisturbed
from machine_kit import CONFIG, INIT, SHARED, eventually, kubectl, kubewright, patiently, ready, write
from state_kit import State
from testbed.bed import Bed

from kubewright.machines.machine import Machine
from kubewright.machines.parts import Parts


@dataclass(frozen=True)
class Reference:
    """An undisturbed run, and its result."""

    course: Course
    state: State


class Stage(Protocol):
    """Runs a command repeatedly, each time on a machine that was never used."""

    name: str
    arguments: Sequence[str]

    @property
    def reference(self) -> Reference:
        """Made at first use."""
        ...

    def fresh(self) -> AbstractContextManager[Machine]:
        """Provide a machine, and clean up after it."""
        ...

    def state(self, machine: Machine) -> State:
        """Return the state that the command has created."""
        ...

    def finish(self, machine: Machine) -> None:
        """Run the command again after it was killed, and require that it ends as an undisturbed run."""
        ...

    def forget(self) -> None:
        """Remove what `reset` of a machine leaves in the cluster."""
        ...

    def close(self) -> None:
        """Remove what is kept between two machines."""
        ...


def make_reference(stage: Stage) -> Reference:
    with stage.fresh() as machine:
        course = undisturbed(machine, stage.arguments)
        return Reference(course=course, state=stage.state(machine))


def require_finished(stage: Stage, machine: Machine) -> None:
    """Run the same command again: it must reach the state of an undisturbed run, and a plan must show no further changes."""
    kubewright(machine, *stage.arguments)
    state_kit.require_same(stage.reference.state, stage.state(machine))
    plan = kubewright(machine, *stage.arguments, "--plan").out
    assert plan == "", plan


class Init:
    """`init` on its own machine."""

    name: Final = "init"
    arguments: Final = ("init", "--config", CONFIG)

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    @cached_property
    def reference(self) -> Reference:
        return make_reference(self)

    @contextmanager
    def fresh(self) -> Iterator[Machine]:
        with Bed("one", bed="kill-init", parts=self._parts, shared=SHARED) as bed:
            write(bed["one"], CONFIG, INIT.format(address=bed["one"].address))
            yield bed["one"]

    def state(self, machine: Machine) -> State:
        return {"files": state_kit.files(machine), "objects": state_kit.objects(machine), "members": state_kit.members(machine)}

    def finish(self, machine: Machine) -> None:
        require_finished(self, machine)

    def forget(self) -> None:
        return

    def close(self) -> None:
        return


_JOIN: Final = ("cluster.test:6443", "--token", TOKEN, "--discovery-token-unsafe-skip-ca-verification")
_ADMIN: Final = {"KUBECONFIG": "/etc/kubernetes/admin.conf"}


class WorkerJoin:
    """`join` of the machine `two` to a cluster that is kept."""

    name: str = "worker join"
    arguments: Sequence[str] = ("join", "--config", CONFIG)
    _words: Sequence[str] = _JOIN
    _bed_name: str = "kill-worker"

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._open = ExitStack()
        self._cluster: Cluster | None = None

    @cached_property
    def reference(self) -> Reference:
        return make_reference(self)

    @contextmanager
    def fresh(self) -> Iterator[Machine]:
        cluster = self._cluster or self._begin()
        try:
            machine = cluster.bed.renew("two")
            patiently(machine, self._words)
            yield machine
            self.remove_member(cluster.first)
            self.forget()
        except BaseException:
            self.close()  # the state of the cluster is unknown
            raise

    def state(self, machine: Machine) -> State:
        assert self._cluster is not None
        first = self._cluster.first
        # a worker's join ends when its kubelet has a certificate, as with kubeadm; the kubelet registers the Node
        # after that
        eventually(lambda: bool(kubectl(first, "get", "node", "two")), "the Node to be registered")
        return {"files": state_kit.files(machine), "objects": state_kit.objects(first)}

    def finish(self, machine: Machine) -> None:
        require_finished(self, machine)

    def forget(self) -> None:
        assert self._cluster is not None
        argv = ("kubectl", "delete", "node", "two", "--ignore-not-found")
        # a member may have just been removed, and a new leader may be being elected
        eventually(lambda: self._cluster.first.run(*argv, env=_ADMIN, check=False).code == 0, "the Node to be deleted")

    def remove_member(self, first: Machine) -> None:
        """Remove the machine's member from etcd while the machine still exists."""

    def close(self) -> None:
        self._cluster = None
        self._open.close()

    def _begin(self) -> Cluster:
        bed = self._open.enter_context(Bed("one", "two", bed=self._bed_name, parts=self._parts, shared=SHARED))
        self._cluster = Cluster(KUBEWRIGHT, bed)
        cluster_kit.begin(self._cluster)
        # a cluster that is still starting makes joins wait, so most moments would come after the end of a run
        eventually(lambda: _has_settled(self._cluster.first), "the cluster to settle")
        return self._cluster


def _has_settled(first: Machine) -> bool:
    requests = kubectl(first, "get", "csr").get("items", [])
    return bool(requests) and all(one.get("status") for one in requests) and ready(first, "deployment", "coredns")


class ControlPlaneJoin(WorkerJoin):
    """`join --control-plane` of the machine `two`, with the uploaded certificates."""

    name = "control-plane join"
    _words = (*_JOIN, "--control-plane", "--certificate-key", CERTIFICATE_KEY)
    _bed_name = "kill-control"

    def state(self, machine: Machine) -> State:
        assert self._cluster is not None
        first = self._cluster.first
        return {
            "files": state_kit.files(machine),
            "objects": state_kit.objects(machine),
            "members": state_kit.members(machine, others={first.address: "FIRST"}),
        }

    def forget(self) -> None:
        assert self._cluster is not None
        assert [row["name"] for row in state_kit.members(self._cluster.first)] == ["one"]
        super().forget()

    def remove_member(self, first: Machine) -> None:
        for row in state_kit.asked_of_etcd(first, "member/list", {})["members"]:
            if row.get("name") != "one":
                state_kit.asked_of_etcd(first, "member/remove", {"ID": row["ID"]})
