"""Commands that are killed: at a boundary between two phases, or some seconds after their start."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from machine_kit import ENVIRONMENT, argv
from testbed.sharing import PYTHON

from kubewright.machines.machine import Machine

SEED_NAME = "KUBEWRIGHT_KILL_SEED"
SEED = int(os.environ.get(SEED_NAME) or 20261127)
"""The seed of random choices: boundaries and moments. The same in each run, so that a failure is caused by the change under test."""

_DYING = """\
import io, json, os, runpy, signal, sys

class Dying(io.TextIOWrapper):
    def write(self, text):
        written = super().write(text)
        if text.startswith("{"):
            said = json.loads(text)
            if [said.get("event"), said.get("phase")] == place:
                self.flush()
                os.kill(os.getpid(), signal.SIGKILL)
        return written

place = sys.argv[1:3]
del sys.argv[1:3]
sys.stderr = Dying(sys.stderr.detach(), encoding="utf-8", line_buffering=True)
runpy.run_module("kubewright", run_name="__main__", alter_sys=True)
"""
"""Runs kubewright and kills it as it reports an event of a phase, before it does anything else: a signal from outside would come later."""


_DYING_AT_A_RENAME = """\
import os, runpy, signal, sys

def look(event, values, name=sys.argv.pop(1)):
    if event == "os.rename" and values[1] == name:
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(look)
runpy.run_module("kubewright", run_name="__main__", alter_sys=True)
"""
"""Runs kubewright and kills it just before a file gets its name: what was written before is there, and this file is not."""


_SAID = {"PhaseStarted": "begins", "PhaseFinished": "has ended", "Writes": "is about to be written"}


@dataclass(frozen=True)
class Boundary:
    """A place in a run: a phase begins, or has ended, or a file of this name is about to be written."""

    event: str
    phase: str

    @classmethod
    def before_writing(cls, name: str) -> Boundary:
        """Return the place before a file gets its name, for steps within a phase."""
        return cls("Writes", name)

    def __str__(self) -> str:
        return f"{self.phase} {_SAID[self.event]}"


class Command:
    """A kubewright that runs in a machine, whose events can be read as they happen."""

    def __init__(self, machine: Machine, arguments: Sequence[str], *, dying_at: Boundary | None = None) -> None:
        self.said: list[str] = []
        self._at_work = threading.Event()
        called = argv(*arguments) if dying_at is None else [PYTHON, "-c", _DYING, dying_at.event, dying_at.phase, *arguments]
        self._process = machine.start(
            *called, "-o", "json", env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    def boundaries(self) -> list[Boundary]:
        """Read events until the command ends, and return those of phases."""
        return [
            Boundary(event["event"], event["phase"]) for event in self._events() if event.get("event") in {"PhaseStarted", "PhaseFinished"}
        ]

    def interrupt(self, number: int) -> None:
        """Send a signal as a user would, after the first output. Before that, Python itself ends by the signal."""
        self._at_work.wait(600)
        self.send(number)

    def send(self, number: int) -> None:
        """Send a signal to kubewright itself, not to the programs that started it.

        Does nothing if it has ended, which it may at any moment.
        """
        pid = self._process.pid
        while self._process.poll() is None:
            with suppress(FileNotFoundError, ProcessLookupError):
                if children := Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
                    for child in children:
                        os.kill(int(child), number)
                    return
            time.sleep(0.005)  # the machine is being entered

    def end(self) -> int:
        """Read the remaining output and return the exit code; negative for a signal."""
        assert self._process.stderr is not None
        for _ in self._events():
            pass
        self._process.stderr.close()
        return self._process.wait(600)

    def _events(self) -> Iterator[dict[str, Any]]:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.said.append(line.decode(errors="replace"))
            if line.startswith(b"{"):
                self._at_work.set()
                yield json.loads(line)
        self._at_work.set()  # it has ended


@dataclass(frozen=True)
class Course:
    """An undisturbed run: the boundaries at which it can be killed, and its duration."""

    boundaries: Sequence[Boundary]
    seconds: float


def undisturbed(machine: Machine, arguments: Sequence[str]) -> Course:
    """Run a command to its end."""
    began = time.monotonic()
    command = Command(machine, arguments)
    found = command.boundaries()
    assert command.end() == 0, "".join(command.said)
    # between two phases, the end of one and the beginning of the next are the same place
    begins = [boundary for boundary in found if boundary.event == "PhaseStarted"]
    assert len(begins) == len(set(begins)), "a phase began twice: its name is ambiguous"
    return Course(boundaries=[*begins, found[-1]], seconds=time.monotonic() - began)


def killed_at(machine: Machine, boundary: Boundary, arguments: Sequence[str]) -> int:
    """Run a command that is killed at a boundary, and require that it ended there; returns the exit code, that of SIGKILL."""
    if boundary.event == "Writes":
        return killed_before_writing(machine, boundary.phase, arguments)
    command = Command(machine, arguments, dying_at=boundary)
    passed = command.boundaries()
    code = command.end()
    assert (code, passed[-1:]) == (-signal.SIGKILL, [boundary]), f"was not killed where {boundary}:\n{''.join(command.said)}"
    return code


def killed_before_writing(machine: Machine, name: str, arguments: Sequence[str]) -> int:
    """Run a command that is killed just before it replaces a file of this name, and require that; returns the exit code, that of SIGKILL."""
    code = machine.run(PYTHON, "-c", _DYING_AT_A_RENAME, name, *arguments, env=ENVIRONMENT, check=False).code
    assert code in {-signal.SIGKILL, 128 + signal.SIGKILL}, f"was not killed before it wrote {name}"
    return -signal.SIGKILL


def killed_after(machine: Machine, seconds: float, arguments: Sequence[str], *, by: int = signal.SIGKILL) -> int:
    """Run a command for some seconds and kill it then, if it has not ended."""
    command = Command(machine, arguments)
    timer = threading.Timer(seconds, partial(command.send if by == signal.SIGKILL else command.interrupt, by))
    timer.start()
    try:
        return command.end()  # reads its output: a full pipe would block it
    finally:
        timer.cancel()
        timer.join()


def moments(seconds: float, *, count: int, seed: int = SEED) -> list[float]:
    """Return random moments of a run: one in each of `count` equal parts, so that no part is left out."""
    chosen = random.Random(seed)
    return [seconds * (index + chosen.random()) / count for index in range(count)]


def chosen(boundaries: Sequence[Boundary], *, count: int, seed: int = SEED) -> list[Boundary]:
    """Return some of the boundaries of a run: a random one from each of `count` parts of about the same size.

    There must be at least as many.
    """
    ends = [index * len(boundaries) // count for index in range(count + 1)]
    choice = random.Random(seed)
    return [choice.choice(boundaries[begin:end]) for begin, end in pairwise(ends)]
