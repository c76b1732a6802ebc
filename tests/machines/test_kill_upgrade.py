"""Upgrades of one control plane that are killed, or lose power: the same command reaches the state of an undisturbed run.

The power cut is the most telling one. The others are in `make soak-tests`; `make soak` kills `apply`, `node` and `rollback` at all boundaries
and steps, and at many moments, half of them with a power cut.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kill_kit import killed_after, killed_before_writing, moments
from kill_tests import Matrices, a_machine
from level_kit import COMPONENTS, content, running
from machine_kit import eventually
from upgrade_stages import Apply, ControlPlane, Rollback, UpgradeStage, boot_again

from kubewright.base.level import KUBERNETES
from kubewright.machines.parts import Parts


@pytest.fixture(scope="module")
def stages(parts: Parts) -> Iterator[dict[str, UpgradeStage]]:
    plane = ControlPlane(parts)
    yield {row.name: row(plane) for row in (Apply, Rollback)}
    plane.close()


def test_a_machine_that_loses_power_between_a_key_and_its_certificate_comes_up_by_itself(
    stages: dict[str, UpgradeStage], matrix: Matrices
) -> None:
    stage = stages["upgrade apply"]
    with a_machine(stage, matrix, "step, power cut", "where apiserver.crt is about to be written") as machine:
        before = content(machine)
        killed_before_writing(machine, "apiserver.crt", stage.arguments)
        after = content(machine)
        assert [before[name] == after[name] for name in ("pki/apiserver.key", "pki/apiserver.crt")] == [False, True]
        boot_again(machine)
        eventually(lambda: running(machine) == dict.fromkeys(COMPONENTS, KUBERNETES), "the components of the earlier version to run")
        found = content(machine)
        assert (found["pki/apiserver.key"], found["pki/apiserver.crt"] != before["pki/apiserver.crt"]) == (after["pki/apiserver.key"], True)
        stage.finish(machine)


@pytest.mark.parametrize("name", ["upgrade rollback", "upgrade apply"])
def test_a_killed_upgrade_ends_as_an_undisturbed_one(stages: dict[str, UpgradeStage], matrix: Matrices, name: str) -> None:
    stage = stages[name]
    [seconds] = moments(stage.reference.course.seconds, count=1)
    with a_machine(stage, matrix, "random moment", f"after {seconds:.3f} s") as machine:
        killed_after(machine, seconds, stage.arguments)
        stage.finish(machine)
