"""How long the tests of each tier take, printed at the end of the run: their sum is what one process would need."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the sums of the durations of set-up, test and tear-down, by the folder below `tests`, and of the longest files."""
    tiers: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for report in (one for found in terminalreporter.stats.values() for one in found if isinstance(one, pytest.TestReport)):
        path = Path(report.nodeid.partition("::")[0])
        tiers["/".join(path.parts[:2])] += report.duration
        files[str(path)] += report.duration
    if sum(tiers.values()) < 60:
        return
    terminalreporter.section("seconds")
    for name, seconds in [*tiers.most_common(), *files.most_common(12)]:
        terminalreporter.write_line(f"{seconds:8.1f}  {name}")
