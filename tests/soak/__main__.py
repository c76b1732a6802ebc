"""`python -m tests.soak [--workflow NAME ...] [--count N] [--no-boundaries] [--seed S]`: kill init and joins, and write docs/soak.md.

Runs are killed at every boundary between two phases, and at many random moments. Each gets a machine that was never
used; running the same command again must lead to the state of an undisturbed run (files, objects, members). Outcomes
are kept in build/soak: an interrupted soak continues there, and one with another seed starts again (remove the
directory to start from scratch). The page is also written if the soak is interrupted. Exits 1 if any run failed. Needs
tests and tests/machines on PYTHONPATH, as in `make soak`.
"""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from etcd_stages import EtcdStage, MemberReplace, Restore
from kill_kit import Boundary, killed_after, killed_at, moments
from kill_stages import ControlPlaneJoin, Init, Stage, WorkerJoin
from testbed.bed import ensure_parts, sweep
from tests.soak import report
from tests.soak.report import Outcome
from upgrade_stages import Apply, NodeUpgrade, Rollback, UpgradeStage
from upgrade_stages import ControlPlane as UpgradedPlane

from kubewright.machines import host
from kubewright.machines.machine import Machine
from kubewright.machines.parts import Parts

ROOT: Final = Path(__file__).parents[2]
WORKFLOWS: Final[Mapping[str, Callable[[Parts], Stage]]] = {
    "init": Init,
    "worker": WorkerJoin,
    "control-plane": ControlPlaneJoin,
    "upgrade": lambda parts: Apply(UpgradedPlane(parts)),
    "upgrade-node": lambda parts: NodeUpgrade(UpgradedPlane(parts)),
    "upgrade-rollback": lambda parts: Rollback(UpgradedPlane(parts)),
    "etcd-restore": Restore,
    "etcd-replace": MemberReplace,
}
POWER_CUTS: Final = (UpgradeStage, EtcdStage)
"""Workflows whose machine also loses power after every second kill."""
STATE: Final = ROOT / "build" / "soak"
PAGE: Final = ROOT / "docs" / "soak.md"


def main(arguments: Sequence[str]) -> int:
    """Do the remaining runs, and write the page."""
    asked = _parsed(arguments)
    if reason := host.unfit():
        sys.stderr.write(f"error: {reason}\n")
        return 1
    done = report.load(STATE)
    seed = asked.seed or (done[-1].seed if done else secrets.randbelow(2**31))
    done = [one for one in done if one.seed == seed]
    sys.stdout.write(f"seed {seed}\n")
    sweep()
    parts = ensure_parts()
    try:
        for name in asked.workflow:
            _soak(name, parts, asked, seed=seed, known=done)
    finally:  # also if it is interrupted
        done = [one for one in report.load(STATE) if one.seed == seed]
        PAGE.write_text(report.page(done, before=PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 1 if any(one.error for one in done) else 0


@dataclass(frozen=True)
class Kill:
    """Where one run of a workflow is killed: at a boundary, or some seconds after its start. One of `count`.

    `power`: then the machine loses power and boots.
    """

    index: int
    count: int
    moment: float = 0.0
    boundary: Boundary | None = None
    power: bool = False

    def __str__(self) -> str:
        where = f"where {self.boundary}" if self.boundary else f"after {self.moment:.3f} s"
        return f"{where}, power cut" if self.power else where

    def __call__(self, stage: Stage, machine: Machine) -> int:
        """Run the command, kill it, return its exit code."""
        arguments = stage.arguments
        code = killed_at(machine, self.boundary, arguments) if self.boundary else killed_after(machine, self.moment, arguments)
        if self.power and isinstance(stage, POWER_CUTS):
            stage.boot_again(machine)
        return code


def _soak(name: str, parts: Parts, asked: argparse.Namespace, *, seed: int, known: Sequence[Outcome]) -> None:
    """Kill those runs of a workflow that have no outcome yet."""
    mine = [one for one in known if one.workflow == name]
    passed = {one.index for one in mine if one.boundary}
    ends = next((one.count for one in mine if one.boundary), None)
    tried = {one.index for one in mine if not one.boundary and one.count == asked.count}
    if (not asked.boundaries or len(passed) == ends) and len(tried) == asked.count:
        return
    stage = WORKFLOWS[name](parts)
    try:
        course, power = stage.reference.course, isinstance(stage, POWER_CUTS)
        places, chosen = course.boundaries if asked.boundaries else [], moments(course.seconds, count=asked.count, seed=seed)
        kills = [
            Kill(index, len(places), boundary=place, power=power and index % 2 == 1)
            for index, place in enumerate(places)
            if index not in passed
        ]
        kills += [
            Kill(index, len(chosen), moment=round(moment, 3), power=power and index % 2 == 1)
            for index, moment in enumerate(chosen)
            if index not in tried
        ]
        for kill in kills:
            _one(stage, name, kill, seed=seed)
    finally:
        stage.close()


def _one(stage: Stage, name: str, kill: Kill, *, seed: int) -> None:
    began, error = time.monotonic(), ""
    code: int | None = None
    try:
        with stage.fresh() as machine:
            code = kill(stage, machine)
            stage.finish(machine)
    except Exception as found:  # the other runs continue; the error is kept
        error = f"{type(found).__name__}: {found}".splitlines()[0]
        STATE.mkdir(parents=True, exist_ok=True)
        kind = "boundary-" if kill.boundary else ""
        (STATE / f"{name}-{kind}{kill.index}.txt").write_text(traceback.format_exc(), encoding="utf-8")
    outcome = Outcome(
        workflow=name,
        index=kill.index,
        count=kill.count,
        seed=seed,
        moment=kill.moment,
        undisturbed=round(stage.reference.course.seconds, 2),
        killed=code == -signal.SIGKILL,
        took=round(time.monotonic() - began, 1),
        ended=datetime.now(UTC).isoformat(timespec="seconds"),
        error=error,
        boundary=str(kill.boundary or ""),
    )
    report.keep(STATE, outcome)
    sys.stdout.write(f"{name} {kill.index + 1}/{kill.count} killed {kill}: {error or 'ok'}\n")
    sys.stdout.flush()


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--workflow", action="append", choices=tuple(WORKFLOWS), help="only this one; may be repeated")
    parser.add_argument("--count", type=int, default=50, help="random moments of each (50), in addition to all boundaries")
    parser.add_argument("--no-boundaries", dest="boundaries", action="store_false", help="only at random moments")
    parser.add_argument("--seed", type=int, default=0, help="of the moments; 0: that of the run that was interrupted, or a new one")
    parsed = parser.parse_args(arguments)
    parsed.workflow = parsed.workflow or list(WORKFLOWS)
    return parsed


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: the same command goes on where it was\n")
        sys.exit(130)
