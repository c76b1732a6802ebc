"""Every difference that the differential tests accept is documented for users."""

from __future__ import annotations

from pathlib import Path

import pytest
from accepted import TABLES

PAGES = Path(__file__).parents[2] / "docs" / "compat"
ROWS = {row.reason: row for table in TABLES for row in table}


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_an_accepted_difference_is_documented_in_a_table(row):
    lines = [line for line in (PAGES / row.page).read_text().splitlines() if line.startswith("|") and row.words in line]
    assert len(lines) == 1
    assert lines[0].count(" | ") == 2
