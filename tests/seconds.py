"""The durations of tests, printed at the end of a run by tier.

The result of the part is printed as well, and written to a file for `make`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

CLOSING: Final = "build/{part}.txt"
"""Below the root directory: what `make test` and `make test-all` show last, after the output of other commands."""
FILES: Final = "build/{part}-files.txt"
"""The seconds of each file, the slowest first: from these, the costs in `lanes` are kept up to date."""
_BEGAN: Final = pytest.StashKey[float]()


def pytest_configure(config: pytest.Config) -> None:
    """Remember when the run began."""
    config.stash[_BEGAN] = time.monotonic()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the sums of the durations of set-up, test and tear-down by folder below `tests`, and those of the slowest files."""
    tiers, files = _sums(terminalreporter)
    if sum(tiers.values()) < 60:
        return
    terminalreporter.section("seconds")
    for name, seconds in [*tiers.most_common(), *files.most_common(12)]:
        terminalreporter.write_line(f"{seconds:8.1f}  {name}")


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Write the result of a part, and the seconds of its files."""
    reporter, part = config.pluginmanager.get_plugin("terminalreporter"), config.getoption("part", None)
    if not part or reporter is None or hasattr(config, "workerinput"):
        return
    path = config.rootpath / CLOSING.format(part=part)
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in closing(reporter, part, time.monotonic() - config.stash[_BEGAN])))
    _, files = _sums(reporter)
    (config.rootpath / FILES.format(part=part)).write_text("".join(f"{took:8.1f}  {name}\n" for name, took in files.most_common()))


def closing(reporter: pytest.TerminalReporter, part: str, seconds: float) -> Iterator[str]:
    """Yield the lines that summarise a run: counts, failures, and the total time of the tests of each tier."""
    counts = ", ".join(text for text, _ in reporter.build_summary_stats_line()[0])
    yield f"{part} part: {counts} in {seconds / 60:.1f} minutes"
    for outcome in ("failed", "error"):
        yield from (f"  {outcome}: {report.nodeid}" for report in reporter.stats.get(outcome, ()))
    tiers, _ = _sums(reporter)
    yield "  " + ", ".join(f"{name} {total:.0f} s" for name, total in tiers.most_common())


def _sums(reporter: pytest.TerminalReporter) -> tuple[Counter[str], Counter[str]]:
    """Return the seconds of tiers and of files, as if one process had run them."""
    tiers: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for report in (one for found in reporter.stats.values() for one in found if isinstance(one, pytest.TestReport)):
        path = Path(report.nodeid.partition("::")[0])
        tiers["/".join(path.parts[:2])] += report.duration
        files[str(path)] += report.duration
    return tiers, files
