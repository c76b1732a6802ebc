"""The `preflight` commands."""

from __future__ import annotations

import os
from typing import Final

from kubewright.apis.machine import Layout
from kubewright.base.checks import CheckResult, Report
from kubewright.base.messages import indented
from kubewright.base.records import replace
from kubewright.cli.handlers import machine, operations
from kubewright.cli.handlers import operation_requests as init_command
from kubewright.cli.handlers import operation_requests as join_command
from kubewright.cli.parsing import inputs
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers.output import write_output
from kubewright.lifecycle.init.operation import prepare
from kubewright.lifecycle.init.preflight import examine
from kubewright.lifecycle.join.preflight import for_join
from kubewright.lifecycle.join.request import configure

FAILED: Final = 4


def init(parsed: Parsed) -> int:
    """Check this machine for init."""
    prepared = prepare(init_command.init_request(parsed, only=()), operations.this_machine())
    inputs.warn(prepared.warnings)
    return _print_report(parsed, examine(prepared.configuration, host=prepared.host, user=os.geteuid()))


def join(parsed: Parsed) -> int:
    """Check this machine for join."""
    request = join_command.join_request(parsed, only=())
    layout = Layout()
    loaded = configure(request, detected=machine.detected(), exists=operations.exists, admin_kubeconfig=str(layout.kubeconfig("admin")))
    inputs.warn(loaded.warnings)
    host = machine.host(replace(layout, cri_socket=loaded.configuration.node_registration.cri_socket))
    return _print_report(parsed, for_join(loaded.configuration, host=host, user=os.geteuid()))


def machines(parsed: Parsed) -> int:
    """Check this host for whole machines."""
    from kubewright.cli.handlers.local import sources  # other checks need nothing of local clusters
    from kubewright.local.whole.preflight import examine as examine_host
    from kubewright.local.whole.preflight import this_host

    return _print_report(parsed, examine_host(this_host(sources(parsed))))


def _print_report(parsed: Parsed, report: Report) -> int:
    form = parsed.text("output")
    passed = not any(result.errors for result in report.results)
    verdict = f"{len(report.results)} checks: {'this machine is ready' if passed else 'this machine is not ready'}\n"
    data = {"passed": passed, "checks": [result.as_map() for result in report.results]}
    write_output(data, "".join(map(_text, report.results)) + verdict, form=form)
    return 0 if passed else FAILED


def _text(result: CheckResult) -> str:
    """Return the findings of a check in kubeadm's form, with the remedies below."""
    stops = result.errors
    return "".join(
        f"[{'ERROR' if found in stops else 'WARNING'} {result.name}]: {indented(found.text)}\n\thint: {indented(found.remedy)}\n"
        for found in result.findings
    )
