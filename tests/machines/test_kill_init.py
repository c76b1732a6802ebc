"""`init` that is killed, interrupted, or stopped by a power failure."""

from __future__ import annotations

import pytest
from kill_kit import SEED, killed_after, moments
from kill_stages import Init, require_finished
from kill_tests import Kills, Matrices, a_machine

from kubewright.machines.parts import Parts


@pytest.fixture(scope="module")
def stage(parts: Parts) -> Init:
    return Init(parts)


class TestInit(Kills):
    boundaries = 4
    moments = 2

    def test_the_power_fails_at_a_random_moment(self, stage: Init, matrix: Matrices) -> None:
        [moment] = moments(stage.reference.course.seconds, count=1, seed=SEED + 3)
        with a_machine(stage, matrix, "power cut", f"by a power cut after {moment:.3f} s") as machine:
            killed_after(machine, moment, stage.arguments)
            machine.cut_power()
            machine.boot()
            machine.ready()
            require_finished(stage, machine)
