"""What the page of the conformance tests says: how many passed, which failed, and why tests did not run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.soak.conformance_report import told


def spec(name: str, state: str, *, message: str = "", kind: str = "It") -> dict[str, Any]:
    failure = {"Failure": {"Message": message}} if message else {}
    return {"ContainerHierarchyTexts": ["[sig-node]"], "LeafNodeText": name, "LeafNodeType": kind, "State": state, **failure}


def report(directory: Path, *specs: dict[str, Any]) -> Path:
    path = directory / "report.json"
    path.write_text(json.dumps([{"SpecReports": [*specs, spec("other", "skipped")]}]))
    return path


def test_passed_tests_and_the_reasons_of_others_are_reported(tmp_path: Path) -> None:
    specs = [spec("a [NodeConformance]", "passed"), spec("b [NodeConformance]", "passed"), spec("c [NodeConformance]", "skipped")]
    itself = spec("d [NodeConformance]", "skipped", message="no AppArmor")
    assert told(report(tmp_path, *specs, itself), {"] c": "no device", "elsewhere": "no reason"}, code=0) == (
        "2 tests",
        "2 passed, 0 failed; left out: ] c (no device); skipped by itself: [sig-node] d [NodeConformance] (no AppArmor)",
    )


def test_failed_tests_are_named(tmp_path: Path) -> None:
    specs = [spec("a [NodeConformance]", "passed"), spec("b [NodeConformance]", "failed"), spec("c [NodeConformance]", "panicked")]
    with pytest.raises(
        AssertionError, match=r"^2 failed, 1 passed: \[sig-node\] b \[NodeConformance\]; \[sig-node\] c \[NodeConformance\]$"
    ):
        told(report(tmp_path, *specs), {}, code=1)


def test_a_failure_outside_tests_is_named(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"^1 failed, 0 passed: \[sig-node\] SynchronizedBeforeSuite$"):
        told(report(tmp_path, spec("", "failed", kind="SynchronizedBeforeSuite")), {}, code=1)


@pytest.mark.parametrize(("state", "code", "reason"), [("skipped", 0, "no test ran"), ("passed", 2, "exited with 2")])
def test_a_run_without_tests_or_with_an_error_is_a_failure(tmp_path: Path, state: str, code: int, reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        told(report(tmp_path, spec("a [NodeConformance]", state)), {}, code=code)
