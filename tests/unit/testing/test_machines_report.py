"""The page about clusters of machines that are killed."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.soak import machines_report
from tests.soak.machines_report import Outcome


def outcome(step: str, target: str, where: str, *, ended: str = "it was killed", error: str = "") -> Outcome:
    return Outcome(step=step, target=target, where=where, ended=ended, seed=7, number=1, took=30.0, day="2026-01-02", error=error)


def test_kills_are_counted_by_command_and_target_and_failures_named(tmp_path: Path) -> None:
    for one in (
        outcome("create", "command", "at step 3"),
        outcome("create", "command", "after 1.00 s", error="nothing serves"),
        outcome("grow", "machine", "at step 9", ended="it exited with 1"),
        outcome("remove", "daemon", "after 2.00 s", ended=machines_report.ENDED_BEFORE),
        outcome("remove", "daemon", "after 1.00 s", ended=machines_report.NOTHING_THERE),
    ):
        machines_report.keep(tmp_path / "build", one)
    lines = machines_report.page(machines_report.load(tmp_path / "build")).splitlines()
    assert "3 kills, 2 of them at steps; 2 further commands were not disturbed. Taken 2026-01-02, seeds 7." in lines
    assert "| `up --machines --nodes 1` of a new cluster | 1 of 2 ok | - | - |" in lines
    assert "| `up --nodes 2` | - | - | 1 of 1 ok |" in lines
    assert "| `down` | - | - | - |" in lines
    assert lines[-1] == "- `up --machines --nodes 1` of a new cluster, command killed after 1.00 s, seed 7: nothing serves"
