"""Where runs are killed: the boundaries and moments that a seed chooses."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))
sys.path.insert(0, str(Path(__file__).parents[2] / "machines"))

from kill_kit import Boundary, chosen, moments

PHASES = [Boundary("PhaseStarted", name) for name in "abcdefghijk"]


@pytest.mark.parametrize("count", [1, 2, 4, 11])
def test_boundaries_are_chosen_from_parts_of_a_run_and_none_twice(count: int) -> None:
    found = chosen(PHASES, count=count, seed=7)
    assert len(set(found)) == count
    assert found == sorted(found, key=PHASES.index)
    assert chosen(PHASES, count=count, seed=7) == found


@pytest.mark.parametrize("count", [1, 2, 4])
def test_each_boundary_is_chosen_by_some_seed(count: int) -> None:
    assert {one for seed in range(200) for one in chosen(PHASES, count=count, seed=seed)} == set(PHASES)


def test_one_moment_is_chosen_from_each_equal_part_of_a_run() -> None:
    found = moments(8.0, count=4, seed=7)
    assert [int(moment / 2) for moment in found] == [0, 1, 2, 3]
    assert moments(8.0, count=0, seed=7) == []
