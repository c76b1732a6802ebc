"""`python -m tests.fuzz SECONDS`: run the differential tests and the tests of malformed input repeatedly, each round with a new seed.

The findings of a round are written to build/fuzz/SEED.txt, which begins with the command that repeats it. Exits 1 if
any round found something.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FOUND: Final = ROOT / "build" / "fuzz"
TESTS: Final = (
    "tests/compat/test_config_differential.py",
    "tests/compat/test_init_differential.py",
    "tests/compat/test_command_differential.py",
    "tests/compat/test_malformed_input.py",
)
EXAMPLES: Final = 60
"""Examples of each test per round: enough to be worth the start-up, few enough to end soon after the time is up."""


def main(seconds: float) -> int:
    """Run rounds until the time is up. The last round is completed."""
    until = time.monotonic() + seconds
    rounds, found = 0, []
    while time.monotonic() < until:
        seed = secrets.randbelow(2**31)
        rounds += 1
        report = one(seed)
        if report:
            found.append(report)
    sys.stdout.write(f"{rounds} rounds, {len(found)} with failures\n" + "".join(f"  {report}\n" for report in found))
    return 1 if found else 0


def one(seed: int) -> Path | None:
    """Run one round. Returns a report of its findings."""
    argv = ["pytest", "-q", f"--hypothesis-seed={seed}", *TESTS]
    environment = {"KUBEWRIGHT_DIFFERENTIAL_SEED": str(seed), "KUBEWRIGHT_DIFFERENTIAL_EXAMPLES": str(EXAMPLES)}
    done = subprocess.run(
        [sys.executable, "-m", *argv],
        cwd=ROOT,
        env={**os.environ, **environment, "CI": "1"},  # a test that is skipped because something is missing is a failure
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    sys.stdout.write(f"seed {seed}: {done.stdout.splitlines()[-1] if done.stdout else done.returncode}\n")
    sys.stdout.flush()
    if not done.returncode:
        return None
    FOUND.mkdir(parents=True, exist_ok=True)
    report = FOUND / f"{seed}.txt"
    again = " ".join((*(f"{name}={value}" for name, value in environment.items()), *argv))
    report.write_text(f"{again}\n\n{done.stdout}")
    return report


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
