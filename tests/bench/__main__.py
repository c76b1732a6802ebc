"""`python -m tests.bench [NAME ...] [--rounds N] [--out DIRECTORY]`: measure, print a table, write docs/performance.

Without names, all benchmarks that take only minutes run; longer ones run only if they are named.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench import (
    approver,
    cheap,
    cold_build,
    controllers,
    drawing,
    files,
    hostile,
    hub,
    machines_agent,
    machines_hub,
    machines_init,
    machines_join,
    machines_timeline,
    machines_up,
    machines_upgrade,
    many_nodes,
    report,
    results,
    snapshots,
    starting,
)
from tests.bench.model import Result
from tests.bench.running import BenchmarkFailed
from tests.bench.setup import Setup, make

ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One benchmark: the function that measures it, and how many rounds make a result."""

    run: Callable[[Setup, int], Result]
    rounds: int
    by_default: bool = True


BENCHMARKS: Final[Mapping[str, Benchmark]] = {
    "commands": Benchmark(run=cheap.run, rounds=40),
    "files": Benchmark(run=files.run, rounds=20),
    "start": Benchmark(run=starting.run, rounds=12),
    "nodes": Benchmark(run=many_nodes.run, rounds=5),
    "snapshot": Benchmark(run=snapshots.run, rounds=7, by_default=False),
    "controllers": Benchmark(run=controllers.run, rounds=6, by_default=False),
    "approver": Benchmark(run=approver.run, rounds=6, by_default=False),
    "hub": Benchmark(run=hub.run, rounds=5, by_default=False),
    "hostile": Benchmark(run=hostile.run, rounds=5, by_default=False),
    "agent": Benchmark(run=machines_agent.run, rounds=6, by_default=False),
    "cold-build": Benchmark(run=cold_build.run, rounds=1, by_default=False),
    "machines-hub": Benchmark(run=machines_hub.run, rounds=3, by_default=False),
    "machines-init": Benchmark(run=machines_init.run, rounds=10, by_default=False),
    "machines-join": Benchmark(run=machines_join.worker, rounds=10, by_default=False),
    "machines-first-join": Benchmark(run=machines_join.first, rounds=10, by_default=False),
    "machines-control-plane": Benchmark(run=machines_join.control_plane, rounds=10, by_default=False),
    "machines-cluster": Benchmark(run=machines_join.cluster, rounds=10, by_default=False),
    "machines-up": Benchmark(run=machines_up.run, rounds=5, by_default=False),
    "machines-upgrade": Benchmark(run=machines_upgrade.run, rounds=5, by_default=False),
    "machines-upgrade-worker": Benchmark(run=machines_upgrade.worker, rounds=15, by_default=False),
}


def main(arguments: Sequence[str]) -> int:
    """Run the requested benchmarks. Returns 1 if one could not be measured; a missed target is a finding, not a failure."""
    asked = _parse(arguments)
    measured, status = [], 0
    for name in asked.names or [name for name, one in BENCHMARKS.items() if one.by_default]:
        try:
            found = _measure(name, asked.rounds)
        except BenchmarkFailed as error:
            sys.stderr.write(f"{name}: {error}\n")
            status = 1
            continue
        results.save(found, asked.out / "performance")
        measured.append(found)
    _write(asked.out)
    sys.stdout.write("\n" + report.text(measured))
    return status


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure kubewright and compare it with its peers.")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"one of {', '.join(BENCHMARKS)}; machines for all of those; default: all but controllers, approver, agent, hub, hostile, cold-build and machines",
    )
    parser.add_argument("--rounds", "--runs", type=int, default=0, help="rounds of each benchmark (default: its own number)")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="directory of performance.md and performance/ (default: docs)")
    asked = parser.parse_args(arguments)
    asked.names = [
        one
        for name in asked.names
        for one in ([row for row in BENCHMARKS if row.startswith("machines-")] if name == "machines" else [name])
    ]
    unknown = [name for name in asked.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    return asked


def _measure(name: str, rounds: int) -> Result:
    with tempfile.TemporaryDirectory(prefix="kubewright-bench-") as directory:
        setup = make(Path(directory), say=_say)
        try:
            return BENCHMARKS[name].run(setup, rounds or BENCHMARKS[name].rounds)
        finally:
            _clean(setup)


def _clean(setup: Setup) -> None:
    """Remove the clusters that a failed round left."""
    for record in setup.work.glob("*/*/cluster.json"):
        setup.run("down", "--state-dir", str(record.parents[1]), "--name", record.parent.name)


def _write(out: Path) -> None:
    """Write the document and the pictures from all existing results."""
    directory = out / "performance"
    directory.mkdir(parents=True, exist_ok=True)
    found = results.load(directory, list(BENCHMARKS))
    document = out / "performance.md"
    if not document.exists():
        shutil.copy(ROOT / "docs" / "performance.md", document)
    report.fill(document, found)
    (directory / "targets.svg").write_text(drawing.targets([one for row in found for one in row.figures]), encoding="utf-8")
    for one in found:
        if "courses" in one.extra:
            (directory / "machines-timeline.svg").write_text(machines_timeline.picture(one.extra["courses"]), encoding="utf-8")
        if "timeline" in one.extra:
            (directory / "timeline.svg").write_text(drawing.course(one.extra["timeline"]), encoding="utf-8")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
