"""Upgrades of one control plane that are killed, or lose power: the same command reaches the state of an undisturbed run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kill_kit import SEED, SEED_NAME, chosen, killed_after, killed_at, killed_before_writing, moments
from level_kit import COMPONENTS, content, running
from machine_kit import eventually, kubectl
from upgrade_stages import Apply, ControlPlane, NodeUpgrade, Rollback, UpgradeStage

from kubewright.base.level import KUBERNETES
from kubewright.machines.machine import Machine
from kubewright.machines.parts import Parts
from matrices import Matrix


@pytest.fixture(scope="module")
def stages(parts: Parts) -> Iterator[dict[str, UpgradeStage]]:
    plane = ControlPlane(parts)
    yield {row.name: row(plane) for row in (Apply, NodeUpgrade, Rollback)}
    plane.close()


def boot_again(machine: Machine) -> None:
    """Let a machine lose power, and boot it."""
    machine.cut_power()
    machine.boot()
    machine.ready()


def test_a_machine_that_loses_power_between_a_key_and_its_certificate_comes_up_by_itself(stages: dict[str, UpgradeStage]) -> None:
    stage = stages["upgrade apply"]
    assert stage.reference
    with stage.fresh() as machine:
        before = content(machine)
        killed_before_writing(machine, "apiserver.crt", stage.arguments)
        after = content(machine)
        assert [before[name] == after[name] for name in ("pki/apiserver.key", "pki/apiserver.crt")] == [False, True]
        boot_again(machine)
        eventually(lambda: running(machine) == dict.fromkeys(COMPONENTS, KUBERNETES), "the components of the earlier version to run")
        eventually(lambda: bool(kubectl(machine, "get", "nodes").get("items")), "the API server to answer")
        found = content(machine)
        assert (found["pki/apiserver.key"], found["pki/apiserver.crt"] != before["pki/apiserver.crt"]) == (after["pki/apiserver.key"], True)
        stage.finish(machine)


KILLS = (
    ("upgrade rollback", "at a moment", False),
    ("upgrade node", "at a step", True),
    ("upgrade rollback", "at a step", False),
    ("upgrade apply", "at a boundary", False),
    ("upgrade rollback", "at a moment", True),
    ("upgrade node", "at a moment", False),
    ("upgrade rollback", "at a boundary", False),
    ("upgrade apply", "at a step", True),
)
"""The command, where it is killed, and whether the power fails then. Each begins where the one before has ended."""


def kill(stage: UpgradeStage, machine: Machine, where: str, *, seed: int) -> str:
    """Run the command of a stage and kill it; returns where."""
    if where == "at a moment":
        [seconds] = moments(stage.reference.course.seconds, count=1, seed=seed)
        killed_after(machine, seconds, stage.arguments)
        return f"after {seconds:.3f} s"
    steps = {place for place in stage.reference.course.boundaries if place.event == "Writes"}
    [place] = chosen([one for one in stage.reference.course.boundaries if (one in steps) is (where == "at a step")], count=1, seed=seed)
    killed_at(machine, place, stage.arguments)
    return f"where {place}"


@pytest.mark.parametrize("number", range(len(KILLS)))
def test_a_killed_upgrade_ends_as_an_undisturbed_one(stages: dict[str, UpgradeStage], matrix: Callable[[str], Matrix], number: int) -> None:
    name, where, power = KILLS[number]
    stage, place = stages[name], where
    assert stage.reference
    try:
        with stage.fresh() as machine, matrix(f"kill, {SEED_NAME}={SEED}").cell(name, f"{where}{', power cut' if power else ''}"):
            place = kill(stage, machine, where, seed=SEED + number)
            if power:
                boot_again(machine)
                eventually(lambda: bool(kubectl(machine, "get", "nodes").get("items")), "the API server to answer")
            stage.finish(machine)
    except Exception as error:
        error.add_note(f"{name} was killed {place} ({SEED_NAME}={SEED})")
        raise
