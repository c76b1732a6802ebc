"""Upgrades that are killed: stages over one control plane that alternates between two patch releases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

from kill_kit import Boundary, Course, undisturbed
from kill_stages import Reference
from level_kit import COMPONENTS, NEXT, configuration, require_running, running, state
from machine_kit import CONFIG, ENVIRONMENT, SHARED, eventually, kubectl, kubewright, ready, write
from state_kit import State, require_same
from testbed import patch_level
from testbed.bed import Bed

from kubewright.base import yaml
from kubewright.base.level import KUBERNETES
from kubewright.machines.images import of_release
from kubewright.machines.machine import Machine
from kubewright.machines.parts import Parts

TAKEN_BACK = "has been rolled back already"
WITHOUT_CHECKS = ("--skip-phases", "preflight")
"""The checks change nothing, and have the cluster run a Job."""
MANIFESTS = tuple(f"{name}.yaml" for name in COMPONENTS)


class ControlPlane:
    """A control plane that is made at the first use, with the images of both levels."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._open = ExitStack()

    @cached_property
    def machine(self) -> Machine:
        """The machine. After a power cut its services find kubewright as the tests do."""
        machine = self._open.enter_context(Bed("one", bed="kill-upgrade", parts=self._parts, shared=SHARED))["one"]
        write(machine, CONFIG, configuration(machine))
        kubewright(machine, "init", "--config", CONFIG)
        patch_level.give(machine, patch_level.images(of_release(self._parts.base), KUBERNETES, NEXT))
        eventually(lambda: ready(machine, "deployment", "coredns"), "CoreDNS: a Job is done first")
        find_kubewright_at_boot(machine)
        return machine

    @property
    def stored(self) -> str:
        """The version in the cluster's configuration."""
        found = kubectl(self.machine, "-n", "kube-system", "get", "configmap", "kubeadm-config")["data"]["ClusterConfiguration"]
        return str(yaml.load(found, source="kubeadm-config")["kubernetesVersion"])

    def bring_to(self, version: str) -> None:
        """Let the components and the cluster's configuration have this version, whatever they have."""
        if running(self.machine) != dict.fromkeys(COMPONENTS, version):
            self.take_back()
        if running(self.machine) != dict.fromkeys(COMPONENTS, version) or self.stored != version:
            kubewright(self.machine, "upgrade", "apply", version, "--yes", "--force", *WITHOUT_CHECKS)

    def take_back(self) -> None:
        """Undo the last upgrade, also one that was interrupted. Does nothing if that has been undone already."""
        kubewright(self.machine, "upgrade", "rollback", "--yes", check=False)

    def close(self) -> None:
        """Take the machine down."""
        self._open.close()


def find_kubewright_at_boot(machine: Machine) -> None:
    """Let units that call our interpreter find our sources."""
    words = " ".join(f"{name}={value}" for name, value in ENVIRONMENT.items())
    machine.run("mkdir", "-p", "/etc/systemd/system.conf.d")
    write(machine, "/etc/systemd/system.conf.d/kubewright.conf", f"[Manager]\nDefaultEnvironment={words}\n")


def boot_again(machine: Machine) -> None:
    """Let a machine lose power, and boot it. Its API server answers afterwards, without a command of ours."""
    machine.cut_power()
    machine.boot()
    machine.ready()
    eventually(lambda: bool(kubectl(machine, "get", "nodes").get("items")), "the API server to answer")


class UpgradeStage:
    """A command that changes the static pods of the machine `before` -> `after`, and ends in the same state however often it was killed.

    `writes` are the files before which its steps within phases end.
    """

    name: ClassVar[str]
    arguments: ClassVar[Sequence[str]]
    before: ClassVar[str]
    after: ClassVar[str]
    writes: ClassVar[Sequence[str]]

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane

    @cached_property
    def reference(self) -> Reference:
        with self.fresh() as machine:
            course: Course = undisturbed(machine, self.arguments)
            steps = [Boundary.before_writing(name) for name in self.writes]
            return Reference(course=replace(course, boundaries=[*course.boundaries, *steps]), state=self.state(machine))

    @contextmanager
    def fresh(self) -> Iterator[Machine]:
        self.plane.bring_to(self.before)
        yield self.plane.machine

    def state(self, machine: Machine) -> State:
        return state(machine)

    def finish(self, machine: Machine) -> None:
        """Run the same command again: it ends in the state of an undisturbed run, and nothing is left to complete."""
        kubewright(machine, *self.arguments)
        self.require_finished(machine)

    def require_finished(self, machine: Machine) -> None:
        require_running(machine, self.after)
        require_same(self.reference.state, self.state(machine))
        assert machine.run("systemctl", "cat", "kubewright-recover", check=False).code != 0

    def boot_again(self, machine: Machine) -> None:
        """Let the machine lose power, and boot it."""
        boot_again(machine)

    def forget(self) -> None:
        return

    def close(self) -> None:
        self.plane.close()


class Apply(UpgradeStage):
    name = "upgrade apply"
    arguments = ("upgrade", "apply", NEXT, "--yes", "--force", *WITHOUT_CHECKS)
    before, after = KUBERNETES, NEXT
    writes = ("plan.json", "state", "snapshot.db", "apiserver.crt", *MANIFESTS, "scheduler.conf", "admin.conf", "machine.json")


class NodeUpgrade(UpgradeStage):
    """The cluster stores the new version already, as after `apply` on another machine."""

    name = "upgrade node"
    arguments = ("upgrade", "node", *WITHOUT_CHECKS)
    before, after = KUBERNETES, NEXT
    writes = Apply.writes

    @contextmanager
    def fresh(self) -> Iterator[Machine]:
        self.plane.bring_to(KUBERNETES)
        kubewright(self.plane.machine, "upgrade", "apply", "phase", "upload-config", "kubeadm", NEXT)
        yield self.plane.machine


class Rollback(UpgradeStage):
    name = "upgrade rollback"
    arguments = ("upgrade", "rollback", "--yes")
    before, after = NEXT, KUBERNETES
    writes = ("state", *MANIFESTS, "machine.json")

    def finish(self, machine: Machine) -> None:
        """A run that was through before it was killed has left nothing to take back."""
        ended = kubewright(machine, *self.arguments, check=False)
        assert ended.code == 0 or TAKEN_BACK in ended.err, ended.err
        self.require_finished(machine)
