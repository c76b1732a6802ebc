"""Some rows of tables, left out one at a time: a test must fail for each (`python -m tests.mutation` tries all)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fuzzing import SEED

ROOT = Path(__file__).parents[2]
ROWS = 5


def test_a_test_fails_for_each_removed_row():
    argv = [sys.executable, "-m", "tests.mutation", "--sample", str(ROWS), "--seed", str(SEED), "--jobs", "2"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "survived: " not in done.stdout
    assert done.returncode == 0, done.stderr
    assert sum(int(line.split()[1]) for line in done.stdout.splitlines() if " rows, " in line) == ROWS
