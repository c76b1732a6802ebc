"""Progress of a run with several processes: prints every half minute how much is done and about how long the rest will take."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection
from typing import Final

import pytest

import lanes

EVERY: Final = 30
"""Seconds between two lines."""


class Progress:
    """Counts finished work in the seconds that `lanes` expects for each file. How long they take on this machine follows from the run so far."""

    def __init__(self, now: float) -> None:
        self._began = self._printed = now
        self._share: dict[str, float] = {}
        self._done = 0.0

    def expect(self, nodeids: Collection[str]) -> None:
        """Note the tests of the run. Each test gets the same share of its file's seconds."""
        scopes = {nodeid: lanes.scope(nodeid) for nodeid in nodeids}
        counts = Counter(scopes.values())
        self._share = {nodeid: lanes.cost(scope).seconds / counts[scope] for nodeid, scope in scopes.items()}

    def finish(self, nodeid: str) -> None:
        """Note that a test has finished."""
        self._done += self._share.get(nodeid, 0.0)

    def line(self, now: float) -> str | None:
        """Return the line to print; None if the last one is less than half a minute old, or nothing is known yet."""
        total = sum(self._share.values())
        if now - self._printed < EVERY or not self._done or not total:
            return None
        self._printed = now
        done = min(self._done / total, 1.0)
        left = (now - self._began) * (1 - done) / done
        return f"{done:.0%} of the work is done, {_words(left)} left"


def _words(seconds: float) -> str:
    return f"about {seconds / 60:.0f} minutes" if seconds >= 90 else "about a minute" if seconds >= 30 else "less than a minute"


class Plugin:
    """Prints the progress, in the process that distributes the tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._progress = Progress(time.monotonic())
        self._known = False

    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Note the tests of the first process that has collected them: all processes collect the same tests."""
        if not self._known:
            self._known, self._progress = True, Progress(time.monotonic())
            self._progress.expect(ids)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print a separate line between the dots."""
        if report.when != "teardown":
            return
        self._progress.finish(report.nodeid)
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and (line := self._progress.line(time.monotonic())):
            reporter.write(f"\n{line}; load average {os.getloadavg()[0]:.1f}\n")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin in the process to which the others report."""
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Plugin(config))
