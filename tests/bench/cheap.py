"""Cheap commands compared with real kubeadm's: `--help`, `version`, `token generate`.

Whole processes, from fork to exit, in alternating pairs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.bench.model import Figure, Result, figure, ratios
from tests.bench.results import result
from tests.bench.running import BenchmarkFailed
from tests.bench.setup import Setup, installed

import kubewright

COMMANDS: Final = {"help": ("--help",), "version": ("version",), "tokenGenerate": ("token", "generate")}
TARGET: Final = 1.0


def run(setup: Setup, rounds: int) -> Result:
    """Measure this many pairs of each command."""
    if "kubeadm" not in setup.programs:
        raise BenchmarkFailed("kubeadm not found: run `kubewright binaries fetch kubeadm` first")
    ours = str(script(setup))
    theirs = str(setup.programs["kubeadm"])
    environment = {**setup.environment, "PYTHONDONTWRITEBYTECODE": ""}  # an installation has byte code as well
    rows: list[dict[str, Any]] = []
    for number in range(-1, rounds):  # the first round warms up
        row = {}
        for key, words in COMMANDS.items():
            pair = [(f"{key}Kubewright", ours), (f"{key}Kubeadm", theirs)]
            for name, program in pair if number % 2 == 0 else reversed(pair):
                row[name] = _time([program, *words], environment)
        if number >= 0:
            rows.append(row)
    figures: list[Figure] = []
    for key, words in COMMANDS.items():
        text = " ".join(words)
        figures += [
            ratios(f"`{text}`, relative to kubeadm", rows, f"{key}Kubewright", f"{key}Kubeadm", target=TARGET),
            figure(f"`kubewright {text}`", rows, f"{key}Kubewright"),
            figure(f"`kubeadm {text}`", rows, f"{key}Kubeadm"),
        ]
    setup.say(f"commands: {rounds} pairs each, " + ", ".join(f"{one.name} {one.value:.2f} x" for one in figures if one.target))
    return result("commands", figures, rows)


def script(setup: Setup) -> Path:
    """Return the installed console script, or make one."""
    return installed() or _throwaway(setup.work / "venv")


def _time(argv: Sequence[str], environment: Mapping[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=dict(environment), check=True)
    return time.perf_counter() - began


def _throwaway(directory: Path) -> Path:
    """Install kubewright's console script from the sources if it is not installed, as `pip install -e` does."""
    venv.create(directory, with_pip=False)
    site = next((directory / "lib").glob("python3*")) / "site-packages"
    paths = [str(Path(kubewright.__file__).parents[1]), *(path for path in sys.path if path.endswith("site-packages"))]
    (site / "kubewright.pth").write_text("\n".join(paths) + "\n", encoding="utf-8")
    script = directory / "bin" / "kubewright"
    script.write_text(f"#!{directory}/bin/python\n{_SCRIPT}", encoding="utf-8")
    os.chmod(script, 0o755)  # noqa: PTH101
    return script


_SCRIPT: Final = """import sys
from kubewright.cli.main import main
if __name__ == "__main__":
    sys.exit(main())
"""
