"""Upgrades of one control plane that are killed at random moments: the same command reaches the state of an undisturbed run.

`test_upgrade_machines.py` has a power cut. `make soak` kills `apply`, `node` and `rollback` at all boundaries and steps, and at many moments,
half of them with a power cut.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kill_kit import killed_after, moments
from kill_tests import Matrices, a_machine
from upgrade_stages import Apply, ControlPlane, Rollback, UpgradeStage

from kubewright.machines.parts import Parts


@pytest.fixture(scope="module")
def stages(parts: Parts) -> Iterator[dict[str, UpgradeStage]]:
    plane = ControlPlane(parts)
    yield {row.name: row(plane) for row in (Apply, Rollback)}
    plane.close()


@pytest.mark.parametrize("name", ["upgrade rollback", "upgrade apply"])
def test_a_killed_upgrade_ends_as_an_undisturbed_one(stages: dict[str, UpgradeStage], matrix: Matrices, name: str) -> None:
    stage = stages[name]
    [seconds] = moments(stage.reference.course.seconds, count=1)
    with a_machine(stage, matrix, "random moment", f"after {seconds:.3f} s") as machine:
        killed_after(machine, seconds, stage.arguments)
        stage.finish(machine)
