"""`python -m tests.soak [--workflow NAME ...] [--count N] [--seed S]`: kill init and joins at many random moments, and write docs/soak.md.

Each moment gets a machine that was never used; the same command again has to end in the state of an undisturbed run (files, objects, members).
What was done lies in build/soak: a run that was interrupted goes on where it was, one with another seed begins anew (remove the directory for
a fresh one). Exits 1 if any failed. Needs tests and tests/machines on PYTHONPATH, as `make soak` has it.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from kill_kit import killed_after, moments
from kill_stages import ControlPlaneJoin, Init, Stage, WorkerJoin, require_finished
from testbed import host
from testbed.bed import Parts, ensure_parts, sweep
from tests.soak import report
from tests.soak.report import Outcome

ROOT: Final = Path(__file__).parents[2]
WORKFLOWS: Final[Mapping[str, Callable[[Parts], Stage]]] = {"init": Init, "worker": WorkerJoin, "control-plane": ControlPlaneJoin}
STATE: Final = ROOT / "build" / "soak"
PAGE: Final = ROOT / "docs" / "soak.md"


def main(arguments: Sequence[str]) -> int:
    """Run what is left to do, and write the page."""
    asked = _parsed(arguments)
    if reason := host.unfit():
        sys.stderr.write(f"error: {reason}\n")
        return 1
    done = report.load(STATE)
    seed = asked.seed or (done[-1].seed if done else secrets.randbelow(2**31))
    done = [one for one in done if one.seed == seed]
    sys.stdout.write(f"seed {seed}\n")
    saved = host.sysctls()
    try:
        sweep()
        parts = ensure_parts()
        for name in asked.workflow:
            done += _soak(name, parts, count=asked.count, seed=seed, known=done)
    finally:
        host.restore(saved)
    PAGE.write_text(report.page(done), encoding="utf-8")
    return 1 if any(one.error for one in done) else 0


def _soak(name: str, parts: Parts, *, count: int, seed: int, known: Sequence[Outcome]) -> list[Outcome]:
    """Run the moments of a workflow that have no outcome yet."""
    left = sorted(set(range(count)) - {one.index for one in known if (one.workflow, one.count) == (name, count)})
    if not left:
        return []
    stage = WORKFLOWS[name](parts)
    try:
        seconds = stage.reference.course.seconds
        chosen = moments(seconds, count=count, seed=seed)
        return [_one(stage, name, index, count=count, seed=seed, moment=chosen[index], seconds=seconds) for index in left]
    finally:
        stage.close()


def _one(stage: Stage, name: str, index: int, *, count: int, seed: int, moment: float, seconds: float) -> Outcome:
    began, error = time.monotonic(), ""
    code: int | None = None
    try:
        with stage.fresh() as machine:
            code = killed_after(machine, moment, stage.arguments)
            require_finished(stage, machine)
    except Exception as found:  # the others go on; what went wrong is kept
        error = f"{type(found).__name__}: {found}".splitlines()[0]
        STATE.mkdir(parents=True, exist_ok=True)
        (STATE / f"{name}-{index}.txt").write_text(traceback.format_exc(), encoding="utf-8")
    outcome = Outcome(
        workflow=name,
        index=index,
        count=count,
        seed=seed,
        moment=round(moment, 3),
        undisturbed=round(seconds, 2),
        killed=code == -9,
        took=round(time.monotonic() - began, 1),
        ended=datetime.now(UTC).isoformat(timespec="seconds"),
        error=error,
    )
    report.keep(STATE, outcome)
    sys.stdout.write(f"{name} {index + 1}/{count} killed after {moment:.3f} s: {error or 'ok'}\n")
    sys.stdout.flush()
    return outcome


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--workflow", action="append", choices=tuple(WORKFLOWS), help="only this one; may be repeated")
    parser.add_argument("--count", type=int, default=50, help="random moments of each (50)")
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
