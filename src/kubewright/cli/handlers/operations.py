"""The only handler of all operations on a machine: `init`, `join`, `certs renew`, `agent install` and so on, and each of their phases.

The command's row names its operation (`Workflow`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubewright.apis.machine import Layout
from kubewright.base.clock import SystemClock
from kubewright.base.errors import UsageError
from kubewright.base.randomness import SystemRandom
from kubewright.cli.handlers import machine
from kubewright.cli.parsing import inputs
from kubewright.cli.parsing.inputs import is_on
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers.output import write_plan, write_result
from kubewright.cli.printers.reporters import JsonLines, MachineText, PlainLines, logged
from kubewright.cli.rows.commands import imported
from kubewright.host.filesystem.files import Files
from kubewright.lifecycle import engine
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.machine import TargetMachine
from kubewright.lifecycle.operation import nothing

if TYPE_CHECKING:
    from kubewright.base.events import Reporter
    from kubewright.cli.rows.model import Workflow
    from kubewright.lifecycle.operation import Operation, Result


def run(parsed: Parsed) -> int:
    """Run the operation of a command's row, or one of its phases, or show what it would do."""
    row = parsed.command.workflow
    assert row is not None  # every command with this handler has one
    if is_on(parsed, "plan") and is_on(parsed, "dry-run"):
        raise UsageError("--plan and --dry-run exclude each other", remedy="--plan shows differences, --dry-run is kubeadm's form")
    operation: Operation[Any, Any, Any] = imported(row.operation)
    only = inputs.phase_of(parsed, operation.phases) if "phase" in parsed.command.words else ()
    request = imported(row.request)(parsed, only=only)
    form, mode = parsed.text("output"), Mode.PLAN if is_on(parsed, "plan") else Mode.APPLY
    result = engine.run(operation, request, this_machine(batches=row.batches), reporter=_reporter(row, form, mode), mode=mode)
    return _print_result(operation, result, form=form, mode=mode)


def this_machine(*, batches: bool = False) -> TargetMachine:
    """Return the machine that the program runs on."""
    files = Files(batch=True) if batches else None
    return TargetMachine(
        at=lambda layout: machine.host(layout, files=files),
        clock=SystemClock(),
        random=SystemRandom(),
        layout=Layout(),
        environment=os.environ,
        sync=files.sync if files is not None else nothing,
        program=machine.program_words(),
    )


def exists(path: str) -> bool:
    """Return whether a path of this machine exists. Tests replace the machine."""
    return Path(path).exists()


def _print_result(operation: Operation[Any, Any, Any], result: Result[Any], *, form: str, mode: Mode) -> int:
    """Print what was done, or would be done; then fail if something could not be done."""
    if mode is Mode.PLAN:
        write_plan(result.plan, form=form)
        return 0
    if form != "text":
        write_result(result.change_list if operation.report is None else operation.report(result), form=form)
    sys.stdout.flush()
    result.require_complete()
    return 0


def _reporter(row: Workflow, form: str, mode: Mode) -> Reporter:
    """Return the reporter for progress.

    For a plan, it shows only warnings, because the phases' other messages did not happen.
    """
    if mode is Mode.PLAN:
        return logged(PlainLines())
    if form != "text":
        return logged(JsonLines())
    return logged(imported(row.text)() if row.text else MachineText(silent=row.silent))
