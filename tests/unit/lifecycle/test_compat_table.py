"""docs/compat: every row names a test, and the test exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "compat" / "kubeadm.md"


def test_every_deliberate_difference_names_a_test_that_exists():
    lines = PAGE.read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| kubeadm |")]
    named = [re.search(r"\| `([\w/]+\.py)::(\w+)` \|$", row) for row in rows]
    assert len(rows) > 25
    assert [row for row, found in zip(rows, named, strict=True) if found is None] == []
    missing = [found[0] for found in named if found and f"def {found[2]}(" not in (ROOT / "tests" / found[1]).read_text()]
    assert missing == []
