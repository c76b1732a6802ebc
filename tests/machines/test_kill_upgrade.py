"""Upgrades of one control plane that are killed, or lose power: the same command reaches the state of an undisturbed run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kill_kit import SEED, SEED_NAME, killed_after, killed_before_writing, moments
from level_kit import COMPONENTS, content, running
from machine_kit import eventually, kubectl
from upgrade_stages import Apply, ControlPlane, Rollback, UpgradeStage

from kubewright.base.level import KUBERNETES
from kubewright.machines.parts import Parts
from matrices import Matrix


@pytest.fixture(scope="module")
def stages(parts: Parts) -> Iterator[dict[str, UpgradeStage]]:
    plane = ControlPlane(parts)
    yield {row.name: row(plane) for row in (Apply, Rollback)}
    plane.close()


def test_a_machine_that_loses_power_between_a_key_and_its_certificate_comes_up_by_itself(stages: dict[str, UpgradeStage]) -> None:
    stage = stages["upgrade apply"]
    assert stage.reference
    with stage.fresh() as machine:
        before = content(machine)
        killed_before_writing(machine, "apiserver.crt", stage.arguments)
        after = content(machine)
        assert [before[name] == after[name] for name in ("pki/apiserver.key", "pki/apiserver.crt")] == [False, True]
        machine.cut_power()
        machine.boot()
        machine.ready()
        eventually(lambda: running(machine) == dict.fromkeys(COMPONENTS, KUBERNETES), "the components of the earlier version to run")
        eventually(lambda: bool(kubectl(machine, "get", "nodes").get("items")), "the API server to answer")
        found = content(machine)
        assert (found["pki/apiserver.key"], found["pki/apiserver.crt"] != before["pki/apiserver.crt"]) == (after["pki/apiserver.key"], True)
        stage.finish(machine)


def test_a_killed_rollback_ends_as_an_undisturbed_one(stages: dict[str, UpgradeStage], matrix: Callable[[str], Matrix]) -> None:
    stage = stages["upgrade rollback"]
    [seconds] = moments(stage.reference.course.seconds, count=1, seed=SEED)
    try:
        with stage.fresh() as machine, matrix(f"kill, {SEED_NAME}={SEED}").cell(stage.name, "random moments"):
            killed_after(machine, seconds, stage.arguments)
            stage.finish(machine)
    except Exception as error:
        error.add_note(f"{stage.name} was killed after {seconds:.3f} s ({SEED_NAME}={SEED})")
        raise
