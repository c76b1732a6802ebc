"""The `reset` command and its phases, also as plans and dry runs."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Final

from kubewright.apis.kubeadm.overrides import refuse_beside_config
from kubewright.apis.layout import Layout
from kubewright.base import events
from kubewright.base.clock import SystemClock
from kubewright.base.errors import HostError, UsageError
from kubewright.base.randomness import SystemRandom
from kubewright.base.records import replace
from kubewright.cli import machine_calls
from kubewright.cli.machine_calls import given_names, given_switch, given_text
from kubewright.cli.output import write_plan, write_result
from kubewright.cli.parser import Parsed
from kubewright.cli.report import JsonLines, KubeadmText, PlainLines
from kubewright.cli.run_log import logged
from kubewright.host.files import Files
from kubewright.host.real import RealHost
from kubewright.host.seam import Host
from kubewright.lifecycle.configuration import read_documents
from kubewright.lifecycle.means import Means
from kubewright.lifecycle.reset.calls import Call, Outcome
from kubewright.lifecycle.reset.phases import RESET
from kubewright.lifecycle.reset.request import ResetFlags, ResetRequest

_OURS: Final = frozenset({"plan", "cleanup-cni", "cleanup-packet-filter", "delete-node"})
"""Flags that kubeadm does not have; they may stand beside --config."""


def reset(parsed: Parsed) -> int:
    """Undo what init or join did, or show what that would take."""
    return _call(parsed, only=())


def phase(parsed: Parsed) -> int:
    """Run one phase, or show what it would do."""
    return _call(parsed, only=machine_calls.phase_of(parsed, RESET))


def machine(layout: Layout, *, files: Files) -> Host:
    """Return this machine. Tests put another one in its place."""
    return RealHost(layout=layout, files=files, looks_for_services=True)


def request_of(parsed: Parsed, *, only: tuple[str, ...]) -> ResetRequest:
    """Turn the flags into a request. Raises UsageError for flags beside --config, DocumentError for the file."""
    path = given_text(parsed, "config")
    if path:
        refuse_beside_config(sorted(parsed.given - _OURS))
    if given_switch(parsed, "plan") and given_switch(parsed, "dry-run"):
        raise UsageError("--plan and --dry-run exclude each other", remedy="--plan shows differences, --dry-run is kubeadm's form")
    return ResetRequest(
        documents=read_documents(path) if path else [],
        from_file=bool(path),
        flags=ResetFlags(
            cert_dir=given_text(parsed, "cert-dir"),
            cri_socket=given_text(parsed, "cri-socket"),
            cleanup_tmp_dir=given_switch(parsed, "cleanup-tmp-dir"),
            dry_run=given_switch(parsed, "dry-run"),
            force=given_switch(parsed, "force"),
            skip_phases=given_names(parsed, "skip-phases"),
            ignore_preflight_errors=given_names(parsed, "ignore-preflight-errors"),
        ),
        only=only,
        looks_for_runtime=machine_calls.has(parsed, "cri-socket"),
        kubeconfig=machine_calls.absolute(given_text(parsed, "kubeconfig")),
        cleanup_cni=given_switch(parsed, "cleanup-cni") or False,
        cleanup_packet_filter=given_switch(parsed, "cleanup-packet-filter") or False,
        delete_node=given_switch(parsed, "delete-node") or False,
    )


def _call(parsed: Parsed, *, only: tuple[str, ...]) -> int:
    form = parsed.text("output")
    request = request_of(parsed, only=only)
    plans = bool(given_switch(parsed, "plan"))
    means = Means(clock=SystemClock(), random=SystemRandom(), reporter=_reporter(form, plans=plans))
    files = Files(batch=True)  # what is removed is made sure of once, at the end
    call = Call.of(request, machine=lambda layout: machine(layout, files=files), means=means)
    if plans:
        from kubewright.lifecycle.reset import planning

        write_plan(planning.plan(call), form=form)
        return 0
    try:
        outcome = _outcome(call, form=form)
    except BaseException:
        with suppress(HostError):  # why it ended is told, not this
            files.sync()
        raise
    try:
        files.sync()
    except HostError as error:
        outcome = replace(outcome, failures=(*outcome.failures, error))
    return _finish(outcome, form=form)


def _outcome(call: Call, *, form: str) -> Outcome:
    if call.configuration.dry_run:
        from kubewright.lifecycle.reset import planning

        return planning.dry_run(call)
    from kubewright.lifecycle.init import dry_run_directory
    from kubewright.lifecycle.reset import acting

    directory = dry_run_directory.lock_directory(call.host, environment=os.environ)
    return acting.act(call, lock_directory=directory, ask=lambda question: _ask(question, form=form))


def _finish(outcome: Outcome, *, form: str) -> int:
    """Print what was done, then fail if something could not be done."""
    if form != "text":
        from kubewright.workflow.plan import Plan

        write_result(Plan(changes=outcome.changes).as_list(), form=form)
    sys.stdout.flush()
    outcome.require_complete()
    return 0


def _ask(question: str, *, form: str) -> str:
    stream = sys.stdout if form == "text" else sys.stderr
    stream.write(question)
    stream.flush()
    return sys.stdin.readline()


def _reporter(form: str, *, plans: bool) -> events.Reporter:
    """Return where progress goes. A plan has none: what its phases say did not happen, only warnings are true."""
    if plans:
        return logged(PlainLines())
    return logged(_ResetText() if form == "text" else JsonLines())


class _ResetText:
    """kubeadm's lines, and the final text without a topic."""

    def __init__(self) -> None:
        self._lines = KubeadmText()

    def emit(self, event: events.Event, /) -> None:
        if isinstance(event, events.Line) and not event.topic:
            sys.stdout.write(f"\n{event.text}\n")
        else:
            self._lines.emit(event)
