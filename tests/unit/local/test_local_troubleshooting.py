"""The guide of faults names a test in each row; each of them exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "guide" / "troubleshooting.md"


def test_each_row_of_the_guide_is_tried_by_a_test() -> None:
    rows = [
        line for line in GUIDE.read_text().splitlines() if line.startswith("| ") and line.count("|") >= 5 and not line.startswith("| fault")
    ]
    named = [re.findall(r"`(test_\w+)`", row) for row in rows]
    assert len(rows) >= 30
    assert [row for row, tests in zip(rows, named, strict=True) if len(tests) != 1] == []
    files = (ROOT / "tests" / "controlplane").glob("test_*.py")
    there = {node.name for path in files for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}
    assert [test for (test,) in named if test not in there] == []
