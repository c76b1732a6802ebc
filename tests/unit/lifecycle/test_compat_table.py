"""docs/compat/kubeadm.md: every row about a deliberate difference names a test. tests/unit/repository checks that these tests exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "compat" / "kubeadm.md"


DEFECTS = "| defect | here | test |"
"""The table of defects has its own test: some belong to later commands."""


def _tables() -> dict[str, list[str]]:
    """The rows of all tables with a column of tests, by the line of their heading and its position."""
    tables: dict[str, list[str]] = {}
    blocks = re.findall(r"(?:^\|.*\n)+", PAGE.read_text(), re.MULTILINE)
    for number, block in enumerate(blocks):
        head, _, *rows = block.splitlines()
        if head.endswith("| test |") and head != DEFECTS:
            tables[f"{number} {head}"] = rows
    return tables


def test_every_deliberate_difference_names_a_test():
    rows = [row for found in _tables().values() for row in found]
    assert len(rows) > 25
    assert [row for row in rows if re.search(r"\| `[\w/]+\.py(?:::\w+)?`(?:, `[\w/]+\.py(?:::\w+)?`)* \|$", row) is None] == []
