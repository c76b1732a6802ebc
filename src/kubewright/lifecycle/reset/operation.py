"""`reset` as a row: how its configuration is made, what its phases work with, the phase `preflight`, and what is said at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.apis.kubeadm.node_types import ResetConfiguration
from kubewright.apis.machine import Layout
from kubewright.base.change import Change
from kubewright.base.errors import CheckFailed, HostError, UsageError
from kubewright.base.events import Line
from kubewright.base.records import dataclass, replace
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.machine import Machine
from kubewright.lifecycle.operation import Bound, Operation, Policy, Prepared
from kubewright.lifecycle.reset.context import ResetContext
from kubewright.lifecycle.reset.detected_cluster import DetectedCluster
from kubewright.lifecycle.reset.inventory import BestEffortReporter, CleanupOptions, Inventory
from kubewright.lifecycle.reset.phases import PHASES
from kubewright.lifecycle.reset.request import ResetRequest, configure

if TYPE_CHECKING:
    from kubewright.etcd.api import Etcd
    from kubewright.kube.api import KubeAPI


PAGE = "https://k8s.io/docs/reference/setup-tools/kubeadm/kubeadm-reset/"


def _left_on_machine(wanted: CleanupOptions) -> str:
    """Return the last text."""
    return "\n".join(["Reset leaves on this machine, or in the cluster:", *(f"- {line}" for line in _left(wanted)), f"See also {PAGE}"])


def _left(wanted: CleanupOptions) -> Iterator[str]:
    if not wanted.cni:
        yield "CNI configuration; `reset --cleanup-cni` removes it"
    if not wanted.packet_filter:
        yield "rules of kube-proxy and CNI plugins in the packet filter; `reset --cleanup-packet-filter` removes them"
    if not wanted.node:
        yield "the Node object; `reset --delete-node` deletes it, or `kubectl delete node NAME`"
    yield "images, and kubeconfigs of users such as $HOME/.kube/config"


_DEFAULT_PKI: Final = ResetConfiguration().certificates_dir
PATIENCE: Final = 3.0
"""Seconds for one request to the cluster, which may be down."""


@dataclass(frozen=True, kw_only=True)
class ResetTask:
    """The configuration of a reset, and what was found on the machine. `default_pki` is where its certificates would be."""

    configuration: ResetConfiguration
    traces: DetectedCluster
    wanted: CleanupOptions
    default_pki: PurePosixPath


def prepare(request: ResetRequest, machine: Machine) -> Prepared[ResetTask]:
    """Load the configuration and look what is on the machine. Raises as `configure` does."""
    here = machine.at(machine.layout)
    loaded = configure(request, detected=here.facts.detected)
    configuration, traces, default_pki = loaded.configuration, DetectedCluster(here), here.layout.pki
    host = machine.at(_places(configuration, traces.layout, here.layout))
    wanted = CleanupOptions(
        temporary=configuration.cleanup_tmp_dir,
        cni=request.cleanup_cni,
        packet_filter=request.cleanup_packet_filter,
        node=request.delete_node,
        whole_pki=_named(configuration) or host.layout.pki == default_pki,
    )
    return Prepared(
        configuration=ResetTask(configuration=configuration, traces=traces, wanted=wanted, default_pki=default_pki),
        host=host,
        warnings=(*loaded.warnings, *traces.warnings),
        only=request.only,
        skip=tuple(configuration.skip_phases),
        dry_run=bool(configuration.dry_run),
    )


def _named(configuration: ResetConfiguration) -> bool:
    """Whether somebody has named the certificate directory: the default of the configuration cannot be told from none."""
    return configuration.certificates_dir != _DEFAULT_PKI


def _places(configuration: ResetConfiguration, found: Layout, layout: Layout) -> Layout:
    moved = replace(found, pki=PurePosixPath(configuration.certificates_dir)) if _named(configuration) else found
    return replace(moved, cri_socket=configuration.cri_socket or layout.cri_socket)


def context(request: ResetRequest, task: ResetTask, bound: Bound) -> ResetContext:
    """Make what the phases work with."""
    return ResetContext(
        bound=bound,
        configuration=task.configuration,
        remains=Inventory(bound.host, traces=task.traces, wanted=task.wanted, default_pki=task.default_pki),
        request=request,
        reach_cluster=_cluster,
        reach_etcd=_etcd,
    )


def _cluster(ctx: ResetContext) -> KubeAPI:
    """Make a client of the cluster: with the kubeconfig that was named, else the administrator's, else the kubelet's."""
    from kubewright.kube.kubeconfigs import load_access

    layout, base = ctx.remains.layout, ctx.bound.base
    named = [PurePosixPath(ctx.request.kubeconfig)] if ctx.request.kubeconfig else []
    for path in named or [layout.kubeconfig("admin"), layout.kubeconfig("kubelet")]:
        if base.read(path) is not None or named:
            return ctx.bound.connections.kube(load_access(path, read=base.read), timeout=PATIENCE, proxied=False)
    raise HostError("there is no kubeconfig to ask the cluster with", remedy="name one with --kubeconfig")


def _etcd(ctx: ResetContext, endpoints: tuple[str, ...]) -> Etcd:
    """Make a client of etcd: at the endpoints that the machine tells, else at those that the cluster tells."""
    from kubewright.lifecycle import stacked_etcd

    urls = list(endpoints) or stacked_etcd.endpoints(ctx.connect())
    return stacked_etcd.client(urls, pki=ctx.remains.layout.pki, files=ctx.host, clock=ctx.clock)


def _opening(ctx: ResetContext) -> None:
    """Begin to ask what takes long, where something will be done."""
    if ctx.bound.mode is Mode.APPLY:
        ctx.remains.begin()


def _closing(ctx: ResetContext) -> None:
    """Say what is left."""
    if ctx.bound.whole:
        ctx.tell_people(_left_on_machine(ctx.remains.wanted))


RESET: Final = Operation(
    name="reset",
    phases=PHASES,
    configure=prepare,
    context=context,
    policy=Policy(reporter=BestEffortReporter),
    preflight={
        Mode.APPLY: "kubewright.lifecycle.reset.operation:asked",
        Mode.NARRATE: "kubewright.lifecycle.reset.operation:checked",
    },
    opening=_opening,
    closing=_closing,
    failures=lambda ctx: ctx.failures,
    incomplete="not everything could be reset",
)


ROOT = "IsPrivilegedUser"
QUESTION = "[reset] Are you sure you want to proceed? [y/N]: "
_CLEANUP = "cleanup-node"
_YES = frozenset({"y", "yes"})


def asked(ctx: ResetContext) -> Iterable[Change]:
    """Check a run that changes the machine: list what goes, and ask, unless the configuration says `force` or nothing is there."""
    ask = None if ctx.configuration.force else ctx.request.ask
    if ask is None:
        checked(ctx)
        _hurry(ctx)
    lines = ctx.remains.listing()
    if not lines:
        ctx.say("There is nothing of a cluster on this machine")
    else:
        ctx.say("What goes from this machine:\n" + "\n".join(f"\t{line}" for line in lines))
        confirm(ask)
    if ask is not None:
        checked(ctx)
    return ()


def _hurry(ctx: ResetContext) -> None:
    """Begin what takes time and will be done: nobody is asked."""
    with suppress(Exception):  # the step that stops it meets the same, and tells it
        if _CLEANUP in ctx.bound.phases and ctx.remains.kubelet is not None:
            ctx.stopping.begin()


def confirm(ask: Callable[[str], str] | None) -> None:
    """Ask whether to go on. Raises UsageError for any other answer than y or yes."""
    if ask is not None and ask(QUESTION).rstrip("\r\n").lower() not in _YES:
        raise UsageError("nothing was reset: the answer was not y", remedy="answer y, or give --force, which does not ask")


def checked(ctx: ResetContext) -> Iterable[Change]:
    """Check that the user may do this. Raises CheckFailed."""
    ctx.reporter.emit(Line(topic="preflight", text="Running pre-flight checks"))
    ignored = {name.lower() for name in ctx.configuration.ignore_preflight_errors}
    if ctx.host.facts.user != 0 and not ignored & {ROOT.lower(), "all"}:
        raise CheckFailed(
            "this machine cannot be reset by this user", detail=f"[ERROR {ROOT}]: user is not running as root", remedy="run it with sudo"
        )
    return ()
