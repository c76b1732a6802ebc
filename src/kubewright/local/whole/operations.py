"""Runs operations of the engine inside a machine: the program is called there, and its events are forwarded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kubewright.base.change import Action, Change, Lifetime
from kubewright.base.errors import ComponentFailed
from kubewright.base.events import PhaseStarted, Reporter, Waiting, Warned
from kubewright.machines import program
from kubewright.machines.machine import Machine

_DOCUMENT: Final = "/run/kubewright-configuration.yaml"
"""In memory, and only while the operation runs: it contains a token."""
_HINT: Final = "hint: "
_ERROR: Final = "error: "
_CHECKS: Final = "[preflight] "
"""Begins the lines before and after the failed checks of kubeadm's commands, which come before the error."""


def operate(machine: Machine, words: Sequence[str], document: str, *, reporter: Reporter) -> list[Change]:
    """Run `init` or `join`, with further flags, in a machine with a configuration; returns what it changed.

    Operations that a killed `up` has left running are ended first, because they hold the machine's lock. If this call
    is interrupted, the operation ends as well. Raises ComponentFailed with the error that the operation reported.
    """
    end(machine)
    machine.run("sh", "-c", f"umask 077; cat > {_DOCUMENT}", data=document)
    own = program.own()
    argv = (*own.argv, *words, "--config", _DOCUMENT, "-o", "json")
    try:
        with tempfile.TemporaryFile() as result:
            process = machine.start(*argv, env=own.environment, stdin=subprocess.DEVNULL, stdout=result.fileno(), stderr=subprocess.PIPE)
            assert process.stderr is not None
            with process.stderr as lines:
                said = [text for line in lines if (text := _passed_on(line.decode(errors="replace"), machine, reporter))]
            if process.wait():
                raise _failure(words[0], machine, said)
            result.seek(0)
            return _changes(result.read(), machine)
    except KeyboardInterrupt:
        end(machine)
        raise
    finally:
        machine.run("rm", "-f", _DOCUMENT, check=False)


def end(machine: Machine) -> None:
    """Kill the operations that run in a machine."""
    for pid in machine.cgroups.processes():
        with suppress(OSError):
            if _DOCUMENT.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                os.kill(pid, signal.SIGKILL)


def _passed_on(line: str, machine: Machine, reporter: Reporter) -> str:
    """Report the event in a line of output under the machine's name. Returns the line if it is not an event."""
    try:
        event: Any = json.loads(line)
        kind = event.pop("event")
    except (ValueError, KeyError, TypeError, AttributeError):
        return line.rstrip()
    with suppress(TypeError, KeyError):  # an event of another version
        if kind == "PhaseStarted":
            reporter.emit(PhaseStarted(phase=f"{machine.name}: {event['phase']}"))
        elif kind == "Waiting":
            reporter.emit(Waiting(what=f"{event['what']} on {machine.name}", reason=event["reason"], elapsed=event["elapsed"]))
        elif kind == "Warned":
            reporter.emit(Warned(text=f"{machine.name}: {event['text']}"))
    return ""


def _failure(operation: str, machine: Machine, said: list[str]) -> ComponentFailed:
    start = next((number for number, line in enumerate(said) if line.startswith((_ERROR, _CHECKS))), 0)
    lines = [line.removeprefix(_ERROR) for line in said[start:] if not line.startswith(_CHECKS)]
    hints = [line.removeprefix(_HINT) for line in lines if line.startswith(_HINT)]
    detail = "\n".join(line for line in lines if not line.startswith(_HINT))
    return ComponentFailed(f"{operation} failed on {machine.name}", detail=detail, remedy=" ".join(hints))


def _changes(result: bytes, machine: Machine) -> list[Change]:
    try:
        rows = json.loads(result)
        lasting = [row for row in rows if row["lifetime"] == Lifetime.DURABLE.value]  # the others are tokens of this run
        found = [Change(target=f"{row['target']} of {machine.name}", action=Action(row["action"])) for row in lasting]
    except (ValueError, KeyError, TypeError):
        return []
    return [change for change in found if change]
