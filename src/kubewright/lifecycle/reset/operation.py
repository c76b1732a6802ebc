"""`reset` as a row: its configuration, the context of its phases, the phase `preflight`, and the final messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.kubeadm.node_types import ResetConfiguration
from kubewright.apis.machine import Layout
from kubewright.base.change import Change
from kubewright.base.checks import PRIVILEGED, Check, Finding, run_checks
from kubewright.base.errors import UsageError
from kubewright.base.events import Event, Line, Reporter
from kubewright.base.records import dataclass, replace
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.machine import TargetMachine
from kubewright.lifecycle.operation import Bound, Operation, Policy, Prepared
from kubewright.lifecycle.reset.context import ResetContext
from kubewright.lifecycle.reset.phases import PHASES
from kubewright.lifecycle.reset.request import ResetOptions, configure
from kubewright.lifecycle.steps import checkpoint, own_runtime, preflight
from kubewright.lifecycle.steps.detected_cluster import DetectedCluster
from kubewright.lifecycle.steps.inventory import CleanupOptions, Inventory

_DEFAULT_PKI: Final = ResetConfiguration().certificates_dir
_PAGE: Final = "https://k8s.io/docs/reference/setup-tools/kubeadm/kubeadm-reset/"
_QUESTION: Final = "[reset] Are you sure you want to proceed? [y/N]: "
_YES: Final = frozenset({"y", "yes"})
_CLEANUP: Final = "cleanup-node"


@dataclass(frozen=True, kw_only=True)
class ResetTask:
    """The configuration of a reset, and the detected cluster. `default_pki` is the default certificate directory."""

    configuration: ResetConfiguration
    detected: DetectedCluster
    options: CleanupOptions
    default_pki: PurePosixPath


def prepare(request: ResetOptions, machine: TargetMachine) -> Prepared[ResetTask]:
    """Load the configuration and detect the cluster of the machine. The default runtime is the kubelet's.

    Raises as `configure` does.
    """
    here = machine.at(machine.layout)
    loaded = configure(request, detected=own_runtime.preferred(here))
    configuration, detected, default_pki = loaded.configuration, DetectedCluster(here), here.layout.pki
    host = machine.at(_places(configuration, detected.layout, here.layout))
    options = CleanupOptions(
        temporary=configuration.cleanup_tmp_dir,
        cni=request.cleanup_cni,
        packet_filter=request.cleanup_packet_filter,
        node=request.delete_node,
        whole_pki=_named(configuration) or host.layout.pki == default_pki,
    )
    return Prepared(
        configuration=ResetTask(configuration=configuration, detected=detected, options=options, default_pki=default_pki),
        host=host,
        warnings=(*loaded.warnings, *detected.warnings),
        only=request.only,
        skip=tuple(configuration.skip_phases),
        dry_run=bool(configuration.dry_run),
    )


def _named(configuration: ResetConfiguration) -> bool:
    """Return whether the certificate directory was named explicitly: the configuration's default is indistinguishable from none."""
    return configuration.certificates_dir != _DEFAULT_PKI


def _places(configuration: ResetConfiguration, found: Layout, layout: Layout) -> Layout:
    moved = replace(found, pki=PurePosixPath(configuration.certificates_dir)) if _named(configuration) else found
    return replace(moved, cri_socket=configuration.cri_socket or layout.cri_socket)


def context(request: ResetOptions, task: ResetTask, bound: Bound) -> ResetContext:
    """Return the context of the phases."""
    return ResetContext(
        bound=bound,
        configuration=task.configuration,
        inventory=Inventory(bound.host, detected=task.detected, options=task.options, default_pki=task.default_pki),
        request=request,
    )


class BestEffortReporter:
    """Continues if the inner reporter is closed, or its disk is full."""

    def __init__(self, inner: Reporter) -> None:
        self._inner = inner

    def emit(self, event: Event, /) -> None:
        with suppress(OSError, ValueError):  # ValueError: its stream is closed
            self._inner.emit(event)


def _opening(ctx: ResetContext) -> None:
    """Start slow queries, unless this is a plan."""
    if ctx.bound.mode is Mode.APPLY:
        ctx.inventory.begin()


def _closing(ctx: ResetContext) -> None:
    """Report what is left."""
    if ctx.bound.whole:
        ctx.report_text(_left_on_machine(ctx.inventory.options))


def _asked(ctx: ResetContext) -> Iterable[Change]:
    """Check the user, list what will be removed, and ask for confirmation, unless the configuration sets `force` or nothing is there.

    Raises HostError without `force` if an upgrade was interrupted.
    """
    _checked(ctx)
    if not ctx.configuration.force:
        checkpoint.require_none_in_progress(ctx.host)
    ask = None if ctx.configuration.force else ctx.request.ask
    if ask is None:
        _stop_kubelet_early(ctx)
    lines = ctx.inventory.listing()
    if not lines:
        ctx.say("There is nothing of a cluster on this machine")
    else:
        ctx.say("This will be removed from this machine:\n" + "\n".join(f"\t{line}" for line in lines))
        _confirm(ask)
    return ()


def _stop_kubelet_early(ctx: ResetContext) -> None:
    """Start to stop the kubelet, which takes time, if no confirmation is needed."""
    with suppress(Exception):  # the step that stops it meets the same error, and reports it
        if _CLEANUP in ctx.bound.phases and ctx.inventory.kubelet is not None:
            ctx.cleanup.stopping.begin()


def _confirm(ask: Callable[[str], str] | None) -> None:
    """Ask whether to continue. Raises UsageError for any other answer than y or yes."""
    if ask is not None and ask(_QUESTION).rstrip("\r\n").lower() not in _YES:
        raise UsageError("nothing was reset: the answer was not y", remedy="answer y, or use --force")


def _checked(ctx: ResetContext) -> Iterable[Change]:
    """Check that the user may do this. Raises PreflightFailed."""
    ctx.reporter.emit(Line(topic="preflight", text="Running pre-flight checks"))
    report = run_checks(_CHECKS, ctx, ignored=ctx.configuration.ignore_preflight_errors)
    preflight.require_passed(report, reporter=ctx.reporter)
    return ()


def _privileged(ctx: ResetContext) -> Iterable[Finding]:
    if ctx.host.facts.user != 0:
        yield Finding(text="user is not running as root", remedy="run it with sudo")


_CHECKS: Final = (Check(name=PRIVILEGED, find=_privileged, comes_first=True),)


def _left_on_machine(options: CleanupOptions) -> str:
    """Return the final text."""
    return "\n".join(
        ["Reset leaves on this machine, or in the cluster:", *(f"- {line}" for line in _not_removed(options)), f"See also {_PAGE}"]
    )


def _not_removed(options: CleanupOptions) -> Iterator[str]:
    if not options.cni:
        yield "CNI configuration; `reset --cleanup-cni` removes it"
    if not options.packet_filter:
        yield "rules of kube-proxy and CNI plugins in the packet filter; `reset --cleanup-packet-filter` removes them"
    if not options.node:
        yield "the Node object; `reset --delete-node` deletes it, or `kubectl delete node NAME`"
    yield "images, and kubeconfigs of users such as $HOME/.kube/config"


RESET: Final = Operation(
    name="reset",
    phases=PHASES,
    configure=prepare,
    context=context,
    policy=Policy(reporter=BestEffortReporter),
    preflight={
        Mode.APPLY: _asked,
        Mode.NARRATE: _checked,
    },
    opening=_opening,
    closing=_closing,
    failures=lambda ctx: ctx.cleanup.failures,
    incomplete="not everything could be reset",
)
