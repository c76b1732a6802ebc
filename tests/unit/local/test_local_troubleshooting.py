"""Each row of the guide to troubleshooting names at least one test, and each of these exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "guide" / "troubleshooting.md"


def test_each_row_of_the_guide_has_a_test() -> None:
    rows = [
        line for line in GUIDE.read_text().splitlines() if line.startswith("| ") and line.count("|") >= 5 and not line.startswith("| fault")
    ]
    named = [re.findall(r"`(?:[\w./]+::)?(test_\w+)`", row) for row in rows]
    assert len(rows) >= 30
    assert [row for row, tests in zip(rows, named, strict=True) if not tests] == []
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    assert [test for tests in named for test in tests if test not in there] == []
