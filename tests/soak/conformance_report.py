"""The result of a run of Kubernetes' tests: ginkgo's JSON report, in a row of the page."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

FOCUS: Final = r"\[NodeConformance\]"
"""What the names of the chosen tests contain."""
_GOOD: Final = frozenset({"passed", "skipped", "pending"})


def told(report: Path, left_out: Mapping[str, str], *, code: int) -> tuple[str, str]:
    """Return how many tests ran, and how they ended.

    `left_out` has the reasons why tests were not chosen, by a part of their names; `code` is ginkgo's exit code.
    Raises AssertionError that names the tests that failed, or if none ran.
    """
    found = [test for suite in json.loads(report.read_text(encoding="utf-8")) for test in suite["SpecReports"] or ()]
    tests = {_name(test): test for test in found if test["LeafNodeType"] == "It" and re.search(FOCUS, _name(test))}
    passed = [name for name, test in tests.items() if test["State"] == "passed"]
    failed = [_name(test) for test in found if test["State"] not in _GOOD]
    assert not failed, f"{len(failed)} failed, {len(passed)} passed: {'; '.join(failed)}"
    assert passed, f"no test ran, and ginkgo exited with {code}"
    assert code == 0, f"ginkgo exited with {code}"
    never = [f"{name} ({reason})" for name, reason in left_out.items() if any(name in test for test in tests)]
    skipped = [f"{name} ({reason})" for name, test in tests.items() if (reason := _reason(test))]
    outcome = [f"{len(passed)} passed, 0 failed", *(f"left out: {one}" for one in never), *(f"skipped by itself: {one}" for one in skipped)]
    return f"{len(passed)} tests", "; ".join(outcome)


def _name(test: Mapping[str, Any]) -> str:
    return " ".join([*(test["ContainerHierarchyTexts"] or ()), test["LeafNodeText"] or test["LeafNodeType"]])


def _reason(test: Mapping[str, Any]) -> str:
    """Return why a test skipped itself, '' if it did not: others are skipped because they were not chosen."""
    return str(test.get("Failure", {}).get("Message", "")) if test["State"] == "skipped" else ""
