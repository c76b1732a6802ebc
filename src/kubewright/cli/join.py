"""The `join` command and its phases, also as plans and dry runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from kubewright.base.clock import SystemClock
from kubewright.base.errors import UsageError
from kubewright.base.randomness import SystemRandom
from kubewright.base.yaml.preloading import preload
from kubewright.cli import machine_calls
from kubewright.cli.machine_calls import given_names, given_secret, given_switch, given_text
from kubewright.cli.machine_text import MachineText
from kubewright.cli.output import write_plan, write_result
from kubewright.cli.parser import Parsed
from kubewright.cli.report import JsonLines, PlainLines
from kubewright.cli.run_log import logged
from kubewright.lifecycle.init import dry_run_directory
from kubewright.lifecycle.join.calls import Call
from kubewright.lifecycle.join.context import WORKER
from kubewright.lifecycle.join.phases import JOIN
from kubewright.lifecycle.join.request import JoinFlags, JoinRequest
from kubewright.lifecycle.means import Means

if TYPE_CHECKING:
    from kubewright.base.events import Reporter

_OURS: Final = frozenset({"plan", "adopt"})
"""Flags that kubeadm does not have; they may stand beside --config."""


def join(parsed: Parsed) -> int:
    """Make this machine a node of a cluster, or show what that would take."""
    return _call(parsed, only=())


def phase(parsed: Parsed) -> int:
    """Run one phase, or show what it would do."""
    return _call(parsed, only=machine_calls.phase_of(parsed, JOIN))


def request_of(parsed: Parsed, *, only: tuple[str, ...]) -> JoinRequest:
    """Turn the flags into a request. Raises UsageError for flags beside --config, DocumentError for the file."""
    documents = machine_calls.documents(parsed, ours=_OURS)
    return JoinRequest(
        documents=documents,
        from_file=bool(given_text(parsed, "config")),
        flags=_flags(parsed),
        only=only,
        adopt=given_switch(parsed, "adopt") or False,
        looks_for_runtime=machine_calls.has(parsed, "cri-socket"),
        discovers=machine_calls.has(parsed, "discovery-file"),
    )


def _call(parsed: Parsed, *, only: tuple[str, ...]) -> int:
    preload()
    if given_switch(parsed, "plan") and given_switch(parsed, "dry-run"):
        raise UsageError("--plan and --dry-run exclude each other", remedy="--plan shows differences, --dry-run is kubeadm's form")
    request, form = request_of(parsed, only=only), parsed.text("output")
    means = Means(clock=SystemClock(), random=SystemRandom(), reporter=_reporter(parsed, form))
    call = Call.of(request, machine=machine_calls.machine, means=means)
    if given_switch(parsed, "plan"):
        from kubewright.lifecycle.join import planning

        write_plan(planning.plan(call), form=form)
        return 0
    if call.configuration.dry_run:
        return _dry_run(call, means, form=form)
    from kubewright.lifecycle.join import acting

    lock = dry_run_directory.lock_directory(call.host, environment=os.environ)
    changes = acting.act(call, lock_directory=lock)
    if form != "text":
        from kubewright.workflow.plan import Plan

        write_result(Plan(changes=changes).as_list(), form=form)
    return 0


def _dry_run(call: Call, means: Means, *, form: str) -> int:
    from kubewright.lifecycle.init.telling import announce
    from kubewright.lifecycle.join import dry_running

    disk, variable = machine_calls.machine(call.host.layout), dry_run_directory.JOIN_VARIABLE
    with dry_run_directory.directory(
        disk,
        environment=os.environ,
        random=means.random,
        variable=variable,
        prefix=dry_run_directory.JOIN_PREFIX,
    ) as place:
        plan, _ = dry_running.dry_run(call, place, writer=disk)
    if not os.environ.get(variable):
        announce(means.reporter, f"That directory is removed again; name one with {variable} to keep it")
    if form != "text":
        write_result(plan.as_list(), form=form)
    return 0


def _reporter(parsed: Parsed, form: str) -> Reporter:
    """Return where progress goes. A plan has none: what its phases say did not happen, only warnings are true."""
    if given_switch(parsed, "plan"):
        return logged(PlainLines())
    return logged(MachineText(silent=(WORKER,)) if form == "text" else JsonLines())


def _flags(parsed: Parsed) -> JoinFlags:
    endpoint = parsed.text("api-server-endpoint") if parsed.command.argument else ""
    port = parsed.number("apiserver-bind-port") if "apiserver-bind-port" in parsed.given else None
    return JoinFlags(
        endpoint=endpoint,
        discovery_file=given_text(parsed, "discovery-file"),
        discovery_token=given_secret(parsed, "discovery-token"),
        tls_bootstrap_token=given_secret(parsed, "tls-bootstrap-token"),
        token=given_secret(parsed, "token"),
        ca_cert_hashes=given_names(parsed, "discovery-token-ca-cert-hash"),
        unsafe_skip_ca_verification=given_switch(parsed, "discovery-token-unsafe-skip-ca-verification") or False,
        control_plane=given_switch(parsed, "control-plane") or False,
        advertise_address=given_text(parsed, "apiserver-advertise-address"),
        bind_port=JoinFlags.bind_port if port is None else port,
        certificate_key=given_secret(parsed, "certificate-key"),
        node_name=given_text(parsed, "node-name"),
        cri_socket=given_text(parsed, "cri-socket"),
        patches=machine_calls.absolute(given_text(parsed, "patches")),
        dry_run=given_switch(parsed, "dry-run"),
        skip_phases=given_names(parsed, "skip-phases"),
        ignore_preflight_errors=given_names(parsed, "ignore-preflight-errors"),
    )
