"""`reset` as a row: how its configuration is made, and what its phases work with."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.apis.kubeadm.node_types import ResetConfiguration
from kubewright.apis.machine import Layout
from kubewright.base.errors import HostError
from kubewright.base.records import dataclass, replace
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.machine import Machine
from kubewright.lifecycle.operation import Bound, Operation, Policy, Prepared
from kubewright.lifecycle.reset.closing import hint
from kubewright.lifecycle.reset.context import ResetContext
from kubewright.lifecycle.reset.phases import PHASES
from kubewright.lifecycle.reset.remains import Remains, Wanted
from kubewright.lifecycle.reset.request import ResetRequest, configure
from kubewright.lifecycle.reset.traces import Traces
from kubewright.lifecycle.reset.trying import Undisturbed

if TYPE_CHECKING:
    from kubewright.etcd.api import Etcd
    from kubewright.kube.api import KubeAPI

_DEFAULT_PKI: Final = ResetConfiguration().certificates_dir
PATIENCE: Final = 3.0
"""Seconds for one request to the cluster, which may be down."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """The configuration of a reset, and what was found on the machine. `default_pki` is where its certificates would be."""

    configuration: ResetConfiguration
    traces: Traces
    wanted: Wanted
    default_pki: PurePosixPath


def prepare(request: ResetRequest, machine: Machine) -> Prepared[Task]:
    """Load the configuration and look what is on the machine. Raises as `configure` does."""
    here = machine.at(machine.layout)
    loaded = configure(request, detected=here.facts.detected)
    configuration, traces, default_pki = loaded.configuration, Traces(here), here.layout.pki
    host = machine.at(_places(configuration, traces.layout, here.layout))
    wanted = Wanted(
        temporary=configuration.cleanup_tmp_dir,
        cni=request.cleanup_cni,
        packet_filter=request.cleanup_packet_filter,
        node=request.delete_node,
        whole_pki=_named(configuration) or host.layout.pki == default_pki,
    )
    return Prepared(
        configuration=Task(configuration=configuration, traces=traces, wanted=wanted, default_pki=default_pki),
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


def context(request: ResetRequest, task: Task, bound: Bound) -> ResetContext:
    """Make what the phases work with."""
    return ResetContext(
        bound=bound,
        configuration=task.configuration,
        remains=Remains(bound.host, traces=task.traces, wanted=task.wanted, default_pki=task.default_pki),
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
    from kubewright.lifecycle import etcd_access

    urls = list(endpoints) or etcd_access.endpoints(ctx.connect())
    return etcd_access.client(urls, pki=ctx.remains.layout.pki, files=ctx.host, clock=ctx.clock)


def _opening(ctx: ResetContext) -> None:
    """Begin to ask what takes long, where something will be done."""
    if ctx.bound.mode is Mode.APPLY:
        ctx.remains.begin()


def _closing(ctx: ResetContext) -> None:
    """Say what is left."""
    if ctx.bound.whole:
        ctx.tell_people(hint(ctx.remains.wanted))


RESET: Final = Operation(
    name="reset",
    phases=PHASES,
    configure=prepare,
    context=context,
    policy=Policy(reporter=Undisturbed),
    preflight={
        Mode.APPLY: "kubewright.lifecycle.reset.checks:asked",
        Mode.NARRATE: "kubewright.lifecycle.reset.checks:checked",
    },
    opening=_opening,
    closing=_closing,
    failures=lambda ctx: ctx.failures,
    incomplete="not everything could be reset",
)
