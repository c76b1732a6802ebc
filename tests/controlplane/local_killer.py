"""A process that runs `up` in children and kills them, or the daemon, where a test says so: `python local_killer.py`.

It reads one order per line of its input and writes one answer per line, all JSON. Children are forked from it, so
that no run has to import everything again; pytest itself has threads and should not fork.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from kubewright import binaries
from kubewright.base.errors import KubewrightError
from kubewright.base.events import Event, PhaseStarted
from kubewright.base.records import asdict, dataclass
from kubewright.local import daemon_process
from kubewright.local.cluster.up import up
from kubewright.local.paths import ClusterPaths
from kubewright.local.supervisor.procfs import find_components
from kubewright.local.up_options import UpOptions

COMMAND = "command"
DAEMON = "daemon"


@dataclass(frozen=True, kw_only=True)
class Order:
    """Run `up` once. Kill `victim` when the `boundary`-th phase begins, right after the previous phases, or `after` some seconds."""

    root: str
    nodes: int = 1
    victim: str = COMMAND
    boundary: int = 0
    groups: bool = False
    """Count only the phases of the first level."""
    phase: str = ""
    """The name of the phase at whose beginning to kill."""
    after: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Report:
    """How a run ended: `finished`, `failed` or `killed`; and the last boundary that it passed."""

    ended: str
    boundaries: int = 0
    last: str = ""
    error: str = ""


class Killer:
    """The caller's side."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def run(self, order: Order) -> Report:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(asdict(order)), file=self._process.stdin, flush=True)
        return Report(**json.loads(self._process.stdout.readline()))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.communicate()


class _Executioner:
    """A reporter that kills at a boundary. It first writes the boundaries that it passed to a pipe."""

    def __init__(self, order: Order, told: int) -> None:
        self._order = order
        self._told = told
        self._passed = 0

    def emit(self, event: Event, /) -> None:
        if not isinstance(event, PhaseStarted) or (self._order.groups and "/" in event.phase):
            return
        self._passed += 1
        os.write(self._told, f"{event.phase}\n".encode())
        if self._passed == self._order.boundary or event.phase == self._order.phase:
            kill(self._order)


def kill(order: Order) -> None:
    if order.victim == COMMAND:
        os.kill(os.getpid(), signal.SIGKILL)
    for one in daemons(order.root):
        os.kill(one, signal.SIGKILL)


def daemons(root: str) -> list[int]:
    """Find the daemon, even one that has not written its record yet: a marked process that is no component."""
    components = {one.identity.pid for one in find_components(daemon_process.mark_of(ClusterPaths(Path(root))))}
    return [one.pid for one in daemon_process.marked_processes(ClusterPaths(Path(root))) if one.pid not in components]


def _child(order: Order, told: int) -> None:
    try:
        up(
            ClusterPaths(Path(order.root)),
            UpOptions(nodes=order.nodes),
            sources=binaries.sources_from(os.environ),
            reporter=_Executioner(order, told),
        )
    except KubewrightError as error:
        os.write(told, f"error {error}".encode())


def _run(order: Order) -> Report:
    reading, told = os.pipe()
    child = os.fork()
    if child == 0:
        _child(order, told)
        os._exit(0)
    os.close(told)
    if order.after:
        time.sleep(order.after)
        if order.victim == COMMAND:
            os.kill(child, signal.SIGKILL)
        else:
            kill(order)
    with os.fdopen(reading) as stream:
        said, _, error = stream.read().partition("error ")
    _, status = os.waitpid(child, 0)
    ended = "killed" if os.WIFSIGNALED(status) else "failed" if error else "finished"
    lines = said.splitlines()
    return Report(ended=ended, boundaries=len(lines), last=lines[-1] if lines else "", error=error)


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(asdict(_run(Order(**json.loads(line))))) + "\n")
        sys.stdout.flush()
