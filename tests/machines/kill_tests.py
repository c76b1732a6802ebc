"""The tests that every workflow has to stand: killed at any moment, the same command again ends in the state of an undisturbed run.

A module of tests gives the fixture `stage` and a subclass of `Kills`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

import pytest
from kill_kit import SEED, killed_after, killed_at, moments
from kill_stages import Stage, require_finished
from machine_kit import kubewright
from testbed.machine import Machine

from matrices import Cell, Matrix

Matrices = Callable[[str], Matrix]
MOMENTS = 8


class Kills:
    """`chains` is the number of machines among which the boundaries are shared out: each run is killed at the next of its boundaries."""

    chains: ClassVar[int]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "chain" in metafunc.fixturenames:
            metafunc.parametrize("chain", range(self.chains))

    def test_killed_at_every_boundary_between_phases(self, stage: Stage, matrix: Matrices, chain: int) -> None:
        boundaries = stage.reference.course.boundaries[chain :: self.chains]
        with a_machine(stage, matrix, "phase boundaries", f"where {', then where '.join(map(str, boundaries))}") as (machine, cell):
            for boundary in boundaries:
                killed_at(machine, boundary, stage.arguments)
            require_finished(stage, machine)
            cell.covers(len(boundaries))

    @pytest.mark.parametrize("index", range(MOMENTS))
    def test_killed_at_a_random_moment(self, stage: Stage, matrix: Matrices, index: int) -> None:
        moment = moments(stage.reference.course.seconds, count=MOMENTS)[index]
        with a_machine(stage, matrix, "random moments", f"after {moment:.3f} s (seed {SEED})") as (machine, _):
            killed_after(machine, moment, stage.arguments)
            require_finished(stage, machine)

    def test_interrupted_and_run_again(self, stage: Stage, matrix: Matrices) -> None:
        [moment] = moments(stage.reference.course.seconds, count=1, seed=SEED + 1)
        with a_machine(stage, matrix, "SIGTERM, again", f"by SIGTERM after {moment:.3f} s (seed {SEED})") as (machine, _):
            assert killed_after(machine, moment, stage.arguments, by=signal.SIGTERM) in {143, 0}
            require_no_token(machine)
            require_finished(stage, machine)

    def test_interrupted_and_reset(self, stage: Stage, matrix: Matrices) -> None:
        [moment] = moments(stage.reference.course.seconds, count=1, seed=SEED + 2)
        with a_machine(stage, matrix, "SIGHUP, reset", f"by SIGHUP after {moment:.3f} s (seed {SEED})") as (machine, _):
            assert killed_after(machine, moment, stage.arguments, by=signal.SIGHUP) in {129, 0}
            require_no_token(machine)
            kubewright(machine, "reset", "--force")
            stage.forget()
            require_finished(stage, machine)


def require_no_token(machine: Machine) -> None:
    """Look that what a kubelet asks for its certificate with did not stay: an interrupted command cleans up."""
    assert machine.run("sh", "-c", "ls -d /etc/kubernetes/bootstrap-kubelet.conf", check=False).out == ""


@contextmanager
def a_machine(stage: Stage, matrix: Matrices, column: str, how: str) -> Iterator[tuple[Machine, Cell]]:
    """Give out a machine and the cell of the matrix; a failure says how the run before was killed."""
    assert stage.reference  # made before the machine that is killed
    try:
        with stage.fresh() as machine, matrix("kill").cell(stage.name, column) as cell:
            yield machine, cell
    except Exception as error:
        error.add_note(f"{stage.name} was killed {how}")
        raise
