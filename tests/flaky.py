"""`python -m tests.flaky COUNT WHAT...`: run tests COUNT times alongside busy loops, to find those that depend on how fast the machine is.

WHAT is passed to pytest: files, node ids, options. There are twice as many busy loops as cores, and the tests run at a lower priority than
these: a test that passes here waits for conditions, not for a number of seconds. Python changes threads as often as it can, which shows races
between threads of one process (tests/switching.py). The output of each run that failed is written to build/flaky/RUN.txt. Exits 1 if any run
failed.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FOUND: Final = ROOT / "build" / "flaky"
LOOPS: Final = 2
"""Busy loops for each core."""
NICE: Final = 2
"""How much lower the priority of the tests is."""
_BUSY: Final = "import ctypes\nctypes.CDLL(None).prctl(1, 9)\nwhile True: pass"
"""A loop that ends with its parent (PR_SET_PDEATHSIG, SIGKILL)."""
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


def main(count: int, arguments: Sequence[str]) -> int:
    """Run the tests. Returns the exit code."""
    failed: Counter[str] = Counter()
    runs = 0
    with busy():
        for number in range(1, count + 1):
            code, output, seconds = one(arguments)
            sys.stdout.write(f"run {number} of {count}, {seconds:.0f} s: {output.splitlines()[-1] if output else f'exit code {code}'}\n")
            sys.stdout.flush()
            if code:
                runs += 1
                failed.update(set(_FAILED.findall(output)))
                FOUND.mkdir(parents=True, exist_ok=True)
                (FOUND / f"{number}.txt").write_text(output)
    sys.stdout.write(f"{runs} of {count} runs failed{f'; see {FOUND}' if runs else ''}\n")
    sys.stdout.writelines(f"{times:4}  {name}\n" for name, times in failed.most_common())
    return 1 if runs else 0


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """Keep all cores busy."""
    loops = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(LOOPS * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def one(arguments: Sequence[str]) -> tuple[int, str, float]:
    """Run the tests once. Returns the exit code, the output, and the seconds that it took."""
    began = time.monotonic()
    done = subprocess.run(
        ["nice", "-n", str(NICE), sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", "-p", "switching", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.strip(), time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
