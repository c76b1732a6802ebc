"""A few rows of tables, left out one at a time: some test must miss each (`python -m tests.mutation` tries all)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fuzzing import SEED

ROOT = Path(__file__).parents[2]
ROWS = 5


def test_rows_that_are_left_out_are_missed():
    argv = [sys.executable, "-m", "tests.mutation", "--sample", str(ROWS), "--seed", str(SEED), "--jobs", "2"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "survived: " not in done.stdout
    assert done.returncode == 0, done.stderr
    assert sum(int(line.split()[1]) for line in done.stdout.splitlines() if " rows, " in line) == ROWS
