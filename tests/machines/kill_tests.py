"""Tests that every workflow must pass: after a kill at any moment, the same command reaches the state of an undisturbed run.

A module of tests provides the fixture `stage` and a subclass of `Kills`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

import pytest
from kill_kit import SEED, SEED_NAME, chosen, killed_after, killed_at, moments
from kill_stages import Stage, require_finished
from machine_kit import kubewright

from kubewright.machines.machine import Machine
from matrices import Matrix

Matrices = Callable[[str], Matrix]


class Kills:
    """A seed chooses `boundaries` between phases and `moments` of a run; `make soak` covers all boundaries and more moments.

    What is promised of all of them is tested at a few of them in each run, at others in the next one, because the
    time of `make test-all` is limited.
    """

    boundaries: ClassVar[int]
    moments: ClassVar[int]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        for name, count in (("boundary", self.boundaries), ("moment", self.moments)):
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, range(count))

    def test_killed_at_a_boundary_between_phases(self, stage: Stage, matrix: Matrices, boundary: int) -> None:
        place = chosen(stage.reference.course.boundaries, count=self.boundaries)[boundary]
        with a_machine(stage, matrix, "phase boundaries", f"where {place}") as machine:
            killed_at(machine, place, stage.arguments)
            require_finished(stage, machine)

    def test_killed_at_a_random_moment(self, stage: Stage, matrix: Matrices, moment: int) -> None:
        seconds = moments(stage.reference.course.seconds, count=self.moments)[moment]
        with a_machine(stage, matrix, "random moments", f"after {seconds:.3f} s") as machine:
            killed_after(machine, seconds, stage.arguments)
            require_finished(stage, machine)

    def test_interrupted_and_run_again(self, stage: Stage, matrix: Matrices) -> None:
        [moment] = moments(stage.reference.course.seconds, count=1, seed=SEED + 1)
        with a_machine(stage, matrix, "SIGTERM, again", f"by SIGTERM after {moment:.3f} s") as machine:
            assert killed_after(machine, moment, stage.arguments, by=signal.SIGTERM) in {143, 0}
            require_no_token(machine)
            require_finished(stage, machine)

    def test_interrupted_and_reset(self, stage: Stage, matrix: Matrices) -> None:
        [moment] = moments(stage.reference.course.seconds, count=1, seed=SEED + 2)
        with a_machine(stage, matrix, "SIGHUP, reset", f"by SIGHUP after {moment:.3f} s") as machine:
            assert killed_after(machine, moment, stage.arguments, by=signal.SIGHUP) in {129, 0}
            require_no_token(machine)
            kubewright(machine, "reset", "--force")
            stage.forget()
            require_finished(stage, machine)


def require_no_token(machine: Machine) -> None:
    """Check that the credentials with which a kubelet requests its certificate were removed by the interrupted command."""
    assert machine.run("sh", "-c", "ls -d /etc/kubernetes/bootstrap-kubelet.conf", check=False).out == ""


@contextmanager
def a_machine(stage: Stage, matrix: Matrices, column: str, how: str) -> Iterator[Machine]:
    """Provide a machine and record a cell of the matrix; a failure says how the previous run was killed."""
    assert stage.reference  # made before the machine that is killed
    try:
        with stage.fresh() as machine, matrix(f"kill, {SEED_NAME}={SEED}").cell(stage.name, column):
            yield machine
    except Exception as error:
        error.add_note(f"{stage.name} was killed {how} ({SEED_NAME}={SEED})")
        raise
