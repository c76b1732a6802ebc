"""Skips in CI: the set-up there provides everything that tests need, so a skip is a failure unless its reason is in this list."""

from __future__ import annotations

import os
from typing import Final

import pytest

ALLOWED: Final = {
    "root may write anywhere": "a directory that one may not write to: for ordinary users, whose run has this test",
    "the file system here takes no labels": "SELinux labels: neither every kernel nor every file system has them",
    "the tiny program is for x86-64": "a program in machine code; CI may run on arm64",
}
"""Allowed reasons, each with an explanation."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Make a test fail in CI if it is skipped for a reason that is not in the list."""
    report = yield
    if report.skipped and os.environ.get("CI") and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if reason not in ALLOWED:
            report.outcome, report.longrepr = "failed", f"skipped in CI, and the reason is not on the list of tests/skips.py: {reason}"
    return report
