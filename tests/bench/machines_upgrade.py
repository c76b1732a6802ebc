"""`upgrade apply` of a control plane, and `upgrade node` of another and of a worker, to the next patch level, with images that are present.

The cluster was made by kubeadm, and serves both tools: before each measured run it is taken back to the earlier version.
Right after that, the components of the control planes are still starting, so `worker` measures a worker of a cluster in
which nothing else happens.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from testbed import patch_level
from testbed.bed import Bed
from tests.bench.machines_join import Settled, compared
from tests.bench.machines_running import IGNORED, KUBEADM, KUBEWRIGHT, Command, Row, field, join, pairs, program
from tests.bench.machines_watching import Looker, Watch, nodes_ready
from tests.bench.model import Result
from tests.bench.results import result
from tests.bench.setup import Setup

from kubewright.base.level import KUBERNETES
from kubewright.machines.images import of_release
from kubewright.machines.machine import Machine

MACHINES: Final = ("one", "two", "three")
NEXT: Final = "v1.36.4"
TARGET_COMMAND: Final = 0.7
TARGET_OUTAGE: Final = 0.8
TARGET_WORKER: Final = 1.2
_EVERY: Final = 0.05
_NEXT_SECOND: Final = 1.1
"""Seconds between two runs on a worker: kubeadm cannot create its backup directory twice in a second."""


def run(setup: Setup, rounds: int) -> Result:
    """Measure the commands, and for how long the API server does not answer meanwhile."""
    with field() as ground, _Upgradable(ground, "--upload-certs") as there:
        rows = pairs(setup, "machines-upgrade", rounds, lambda tool: _upgrade(there.bed, tool), tell="Wall", failed=there.close)
    figures = (
        *compared("`upgrade apply` of a control plane", rows, "Wall", target=TARGET_COMMAND),
        *compared("time without an API server during `upgrade apply`", rows, "Outage", target=TARGET_OUTAGE),
        *compared("`upgrade node` of a further control plane", rows, "Further", target=TARGET_COMMAND),
        *compared("`upgrade node` of a worker", rows, "Worker", target=TARGET_WORKER),
    )
    return result("machines-upgrade", figures, rows)


def worker(setup: Setup, rounds: int) -> Result:
    """Measure `upgrade node` of a worker, with the processor time that it and the programs that it runs need."""
    with field() as ground, _WithWorker(ground) as there:
        rows = pairs(
            setup, "machines-upgrade-worker", rounds, lambda tool: _worker(there.bed["two"], tool), tell="Wall", failed=there.close
        )
    figures = (
        *compared("`upgrade node` of a worker in a settled cluster", rows, "Wall", target=TARGET_WORKER),
        *compared("`upgrade node` of a worker, processor time", rows, "Cpu"),
    )
    return result("machines-upgrade-worker", figures, rows)


def _worker(machine: Machine, tool: str) -> Row:
    time.sleep(_NEXT_SECOND)
    used = _command(tool, machine, "node").wait()
    return {"Wall": used.seconds, "Cpu": used.cpu, "Peak": used.peak}


def _upgrade(bed: Bed, tool: str) -> Row:
    one, two, three = (bed[name] for name in MACHINES)
    _command(KUBEWRIGHT, one, "apply", KUBERNETES, "--yes", "--force").wait()
    _command(KUBEWRIGHT, two, "node").wait()
    _wait_until_ready(one, *MACHINES)
    with Outage(one) as outage:
        applied = _command(tool, one, "apply", NEXT, "--yes", "--force").wait()
    _wait_until_ready(one, *MACHINES)
    further = _command(tool, two, "node").wait()
    worker = _command(tool, three, "node").wait()
    return {"Wall": applied.seconds, "Outage": outage.seconds, "Further": further.seconds, "Worker": worker.seconds, "Peak": applied.peak}


def _wait_until_ready(server: Machine, *names: str) -> None:
    watch = Watch(server, {"Ready": nodes_ready(*names)})
    watch.start()
    watch.wait()


def _command(tool: str, machine: Machine, *words: str) -> Command:
    return Command(machine, *program(tool), "upgrade", *words, IGNORED)


class Outage:
    """Adds up the time for which the API server of a machine is not ready during a block."""

    def __init__(self, machine: Machine) -> None:
        self.seconds = 0.0
        self._machine = machine
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Outage:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        look = Looker(self._machine, self._machine)
        last = time.monotonic()
        while not self._ended.wait(_EVERY):
            ready = look.answers(f"https://{self._machine.address}:6443/readyz")
            now = time.monotonic()
            self.seconds += 0.0 if ready else now - last
            last = now


class _Upgradable(Settled):
    """Two settled control planes and a worker, with the images of both versions."""

    machines = MACHINES

    def settle(self, bed: Bed) -> None:
        """Add the images and the other nodes."""
        for machine in bed.machines.values():
            patch_level.give(machine, patch_level.images(of_release(self.ground.parts.base), KUBERNETES, NEXT))
        join(KUBEADM, bed["two"], via=bed["one"], control_plane=True).wait()
        join(KUBEADM, bed["three"], via=bed["one"]).wait()
        _wait_until_ready(bed["one"], *MACHINES)


class _WithWorker(Settled):
    """A settled control plane and a worker."""

    def settle(self, bed: Bed) -> None:
        """Add the worker."""
        join(KUBEADM, bed["two"], via=bed["one"]).wait()
        _wait_until_ready(bed["one"], *self.machines)
