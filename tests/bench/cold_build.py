"""The build of a control plane's binaries from their Go modules: with an empty build cache, and modules that are already downloaded."""

from __future__ import annotations

import shutil
from typing import Final

from tests.bench.model import Result, figure
from tests.bench.results import result
from tests.bench.running import timed
from tests.bench.setup import COMPONENTS, Setup

PROGRAMS: Final = (*COMPONENTS, "kubectl")
TARGET: Final = 360.0


def run(setup: Setup, rounds: int) -> Result:
    """Build this many times, each time from an empty cache."""
    rows = []
    for number in range(rounds):
        work = setup.work / "cold-build"
        caches = {"KUBEWRIGHT_CACHE_DIR": str(work / "kubewright"), "GOCACHE": str(work / "go")}
        environment = {**setup.environment, **caches, "KUBEWRIGHT_OFFLINE": "1"}
        environment.pop("KUBEWRIGHT_BINARIES_DIR", None)
        work.mkdir()
        ended = timed(setup.argv("binaries", "fetch", *PROGRAMS), env=environment, log=work / "log")
        shutil.rmtree(work)
        rows.append({"seconds": ended.seconds, "cpuSeconds": ended.cpu_seconds, "peakBytes": ended.peak_bytes})
        setup.say(f"cold build {number + 1}/{rounds}: {ended.seconds:.0f} s")
    return result("cold-build", [figure(f"building {', '.join(PROGRAMS)}", rows, "seconds", target=TARGET)], rows)
