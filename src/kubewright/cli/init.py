"""The `init` command and its phases, also as plans and dry runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from kubewright.apis.kubeadm.overrides import InitOverrides, refuse_beside_config
from kubewright.apis.layout import Layout
from kubewright.base import events, yaml
from kubewright.base.clock import SystemClock
from kubewright.base.durations import Duration
from kubewright.base.errors import UsageError
from kubewright.base.randomness import SystemRandom
from kubewright.base.yaml.preloading import preload
from kubewright.cli import secret_input
from kubewright.cli.machine_calls import absolute
from kubewright.cli.machine_text import MachineText
from kubewright.cli.output import write_documents, write_plan, write_result
from kubewright.cli.parser import Parsed
from kubewright.cli.report import JsonLines, PlainLines
from kubewright.cli.run_log import logged
from kubewright.host.real import RealHost
from kubewright.host.seam import Host
from kubewright.lifecycle.configuration import read_documents
from kubewright.lifecycle.init import dry_run_directory, request
from kubewright.lifecycle.init.calls import Call
from kubewright.lifecycle.init.phases import INIT
from kubewright.lifecycle.init.request import InitRequest
from kubewright.lifecycle.means import Means

_OURS: Final = frozenset({"plan", "adopt"})
"""Flags that kubeadm does not have; they may stand beside --config."""

_EXTRA_ARGUMENTS: Final = "-extra-args"

_TEXTS: Final[Mapping[str, str]] = {
    "kubernetes-version": "kubernetes_version",
    "node-name": "node_name",
    "apiserver-advertise-address": "advertise_address",
    "cert-dir": "cert_dir",
    "control-plane-endpoint": "control_plane_endpoint",
    "cri-socket": "cri_socket",
    "image-repository": "image_repository",
    "pod-network-cidr": "pod_network_cidr",
    "service-cidr": "service_cidr",
    "service-dns-domain": "service_dns_domain",
    "patches": "patches",
}
_SECRETS: Final[Mapping[str, str]] = {"token": "token", "certificate-key": "certificate_key"}
_LISTS: Final[Mapping[str, str]] = {
    "apiserver-cert-extra-sans": "cert_sans",
    "skip-phases": "skip_phases",
    "ignore-preflight-errors": "ignore_preflight_errors",
}


def init(parsed: Parsed) -> int:
    """Make this machine a control plane, or show what that would take."""
    return _call(parsed, only=())


def phase(parsed: Parsed) -> int:
    """Run one phase, or show what it would do."""
    node = INIT.named(parsed.command.words[2:])
    if node is None:
        raise UsageError(f"there is no phase {' '.join(parsed.command.words[2:])}", remedy="see `init phase --help`")
    return _call(parsed, only=(node.name,))


def machine(layout: Layout) -> Host:
    """Return this machine. Tests put another one in its place."""
    return RealHost(layout=layout, looks_for_services=True)


def writer(layout: Layout) -> Host:
    """Return the machine that a dry run's directory is on."""
    return RealHost(layout=layout)


def _call(parsed: Parsed, *, only: tuple[str, ...]) -> int:
    preload()
    asked = request_of(parsed, only=only)
    form = parsed.text("output")
    means = Means(clock=SystemClock(), random=SystemRandom(), reporter=_reporter(parsed, form))
    call = Call.of(asked, machine=machine, means=means)
    # Each way out loads what it needs: the phases that only write files are as quick as kubeadm's.
    if _given(parsed, "print-manifest"):
        from kubewright.lifecycle.init import printing

        return _manifest(printing.manifest(call, only[0]), form=form)
    if _given(parsed, "plan"):
        from kubewright.lifecycle.init import planning

        write_plan(planning.plan(call), form=form)
        return 0
    if call.configuration.init.dry_run:
        return _dry_run(call, means, form=form)
    from kubewright.lifecycle.init import acting

    changes = acting.act(call, lock_directory=dry_run_directory.lock_directory(call.host, environment=os.environ))
    if form != "text":
        from kubewright.workflow.plan import Plan

        write_result(Plan(changes=changes).as_list(), form=form)
    return 0


def request_of(parsed: Parsed, *, only: tuple[str, ...]) -> InitRequest:
    """Turn the flags that were given into a request. Raises UsageError for flags that exclude each other, DocumentError for the file."""
    config = _text(parsed, "config")
    if "config" in parsed.given:  # an empty one too, as with kubeadm
        refuse_beside_config(sorted(parsed.given - _OURS))
    if _given(parsed, "plan") and _given(parsed, "dry-run"):
        raise UsageError("--plan and --dry-run exclude each other", remedy="--plan shows differences, --dry-run is kubeadm's form")
    flags = {name.removesuffix(_EXTRA_ARGUMENTS): parsed.strings(name) for name in parsed.given if name.endswith(_EXTRA_ARGUMENTS)}
    return InitRequest(
        documents=read_documents(config) if config else request.extra_arguments(flags),
        from_file=bool(config),
        overrides=_overrides(parsed),
        only=only,
        upload_certs=_given(parsed, "upload-certs"),
        adopt=_given(parsed, "adopt"),
        show_token=not _given(parsed, "skip-token-print"),
        show_certificate_key=not _given(parsed, "skip-certificate-key-print"),
        looks_for_runtime=any(flag.name == "cri-socket" for flag in parsed.command.flags),
        kubeconfig_directory=absolute(_chosen(parsed, "kubeconfig-dir")),
        kubeconfig=absolute(_chosen(parsed, "kubeconfig")),
    )


def _overrides(parsed: Parsed) -> InitOverrides:
    given: dict[str, object] = {field: parsed.text(name) for name, field in _TEXTS.items() if name in parsed.given}
    given |= {field: secret_input.secret(parsed.text(name)) for name, field in _SECRETS.items() if name in parsed.given}
    given |= {field: parsed.strings(name) for name, field in _LISTS.items() if name in parsed.given}
    if "apiserver-bind-port" in parsed.given:
        given["bind_port"] = parsed.number("apiserver-bind-port")
    if "token-ttl" in parsed.given:
        given["token_ttl"] = Duration.parse(parsed.text("token-ttl"))
    if "feature-gates" in parsed.given:
        given["feature_gates"] = request.feature_gates(parsed.text("feature-gates"))
    if "dry-run" in parsed.given:
        given["dry_run"] = parsed.flag("dry-run")
    return InitOverrides(**given)  # type: ignore[arg-type]  # the tables above pair names and types; a test goes through all of them


def _given(parsed: Parsed, name: str) -> bool:
    """Whether a boolean flag is set; a command that does not have it has it not set."""
    return name in parsed.given and parsed.flag(name)


def _text(parsed: Parsed, name: str) -> str:
    return parsed.text(name) if any(flag.name == name for flag in parsed.command.flags) else ""


def _chosen(parsed: Parsed, name: str) -> str:
    return parsed.text(name) if name in parsed.given else ""


def _reporter(parsed: Parsed, form: str) -> events.Reporter:
    """Return where progress goes. A plan has none: what its phases say did not happen, only warnings are true."""
    if _given(parsed, "plan") or _given(parsed, "print-manifest"):
        return logged(PlainLines())
    return logged(MachineText() if form == "text" else JsonLines())


def _manifest(text: str, *, form: str) -> int:
    if form == "json":
        write_documents([one.value for one in yaml.load_all(text) if isinstance(one.value, Mapping)], form=form)
    else:
        sys.stdout.write(text)
    return 0


def _dry_run(call: Call, means: Means, *, form: str) -> int:
    from kubewright.lifecycle.init import planning
    from kubewright.lifecycle.init.telling import announce

    disk = writer(Layout())
    with dry_run_directory.directory(disk, environment=os.environ, random=means.random) as place:
        plan, _ = planning.dry_run(call, place, writer=disk)
    if not os.environ.get(dry_run_directory.VARIABLE):
        announce(means.reporter, f"That directory is removed again; name one with {dry_run_directory.VARIABLE} to keep it")
    if form != "text":
        write_result(plan.as_list(), form=form)
    return 0
