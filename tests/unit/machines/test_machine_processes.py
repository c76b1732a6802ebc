"""The processes of machines: a number that the kernel has given to another process is not a machine's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kubewright.machines import machine as machines
from kubewright.machines.machine import Machine
from kubewright.machines.places import MachinePlaces


class Cgroups:
    """The cgroups of a machine with these processes."""

    frozen = False

    def __init__(self, *pids: int) -> None:
        self.pids = set(pids)

    def processes(self) -> set[int]:
        return self.pids


def test_a_machine_does_not_run_in_the_process_that_has_got_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "_is_leader", bool)  # also of the next process with a number, as of another container's
    machine = Machine("m", group="kw-none", places=MachinePlaces(tmp_path), lower=(), namespace="", address="")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        cgroups = Cgroups(process.pid)
        machine.cgroups = cgroups  # type: ignore[assignment]
        assert (machine.leader, machine.runs) == (process.pid, True)
        process.kill()
        process.wait()
    cgroups.pids.clear()
    assert (machine.runs, machine.leader) == (False, 0)
