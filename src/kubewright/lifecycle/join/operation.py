"""`join` as a row: how its configuration is made, what its phases work with, and in which order a control plane is started."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from kubewright.apis.kubeadm.node_types import JoinConfiguration
from kubewright.apis.machine import Layout
from kubewright.base.durations import Duration
from kubewright.base.records import replace
from kubewright.lifecycle import checking, machine_record
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.join import closing
from kubewright.lifecycle.join.context import JoinContext, Sources
from kubewright.lifecycle.join.phases import PHASES
from kubewright.lifecycle.join.request import JoinRequest, configure
from kubewright.lifecycle.join.turns import further_control_plane
from kubewright.lifecycle.machine import Machine
from kubewright.lifecycle.operation import Bound, DryRun, Operation, Policy, Prepared, Start
from kubewright.lifecycle.steps import stand_ins

if TYPE_CHECKING:
    from kubewright.apis.kubeadm.types import Configuration
    from kubewright.etcd.api import Etcd
    from kubewright.kube.core import Object
    from kubewright.kube.credentials import Access

_STARTING: Final = frozenset({"control-plane-prepare/control-plane", "kubelet-start", "etcd-join", "wait-control-plane"})
_AT_ONCE: Final = Duration(0)
_BOOTSTRAP: Final = "bootstrap-kubelet"


def prepare(request: JoinRequest, machine: Machine) -> Prepared[JoinConfiguration]:
    """Load the configuration. Raises as `configure` does."""
    here = machine.at(machine.layout)
    loaded = configure(
        request,
        detected=machine_record.with_runtime(here.facts.detected, here),
        exists=lambda path: here.state(PurePosixPath(path)) is not None,
        admin_kubeconfig=str(here.layout.kubeconfig("admin")),
    )
    configuration = loaded.configuration
    socket = configuration.node_registration.cri_socket
    return Prepared(
        configuration=configuration,
        host=here if socket == here.layout.cri_socket else machine.at(replace(machine.layout, cri_socket=socket)),
        warnings=loaded.warnings,
        only=request.only,
        skip=tuple(configuration.skip_phases),
        dry_run=configuration.dry_run,
        adopts=request.adopt,
        record=lambda: machine_record.of_join(configuration),
    )


def context(_: JoinRequest, configuration: JoinConfiguration, bound: Bound) -> JoinContext:
    """Make what the phases work with."""
    return JoinContext(bound=bound, join=configuration, addresses=checking.addresses(configuration), sources=SOURCES)


def _opening(ctx: JoinContext) -> None:
    """Require, before a plan, that the cluster of a control plane which something else made can be asked. Raises as `administrators.load` does."""
    from kubewright.lifecycle import administrators, adopting

    host, layout = ctx.bound.base, ctx.bound.base.layout
    if ctx.bound.mode is Mode.PLAN and adopting.traces(host) and host.state(layout.manifest("kube-apiserver")) is not None:
        administrators.load(host, layout.kubeconfig("admin"), now=ctx.clock.now())


def _discover(ctx: JoinContext) -> Access:
    """Find the cluster as the configuration says. A dry run to which none answers goes on with stand-ins (spec/kubeadm.md 2.5)."""
    from kubewright.lifecycle.join import discovering

    return ctx.bound.connections.find(lambda: discovering.find(ctx), instead=lambda: _nobody(ctx))


def _nobody(ctx: JoinContext) -> tuple[Access, list[Mapping[str, Any]]]:
    """Return kubeadm's stand-ins: whatever token and pin are given, because there is nobody to prove anything."""
    from kubewright.kube.credentials import Access, Anonymous, BearerToken
    from kubewright.lifecycle.join import stand_ins as clusters

    plane, token = ctx.join.control_plane, ctx.join.discovery.tls_bootstrap_token
    key = plane.certificate_key if plane is not None else ""
    shared = [clusters.shared(key, clock=ctx.clock, random=ctx.random)] if key else []
    access = Access(server=clusters.SERVER, ca_pem=clusters.authority(), identity=BearerToken(token) if token else Anonymous())
    return access, [*clusters.objects(), stand_ins.node(ctx.join.node_registration.name), *shared]


def _configuration(ctx: JoinContext) -> Configuration:
    from kubewright.lifecycle.join import reading

    return reading.configuration(ctx)


def _node(ctx: JoinContext) -> Object | None:
    from kubewright.lifecycle.join import registration

    return registration.find(ctx)


def _etcd(ctx: JoinContext) -> Etcd:
    """Find the cluster's etcd through its pods."""
    from kubewright.lifecycle import etcd_access

    timeouts = ctx.join.timeouts
    return etcd_access.connect(
        ctx.admin,
        pki=ctx.layout.pki,
        files=ctx.host,
        clock=ctx.clock,
        api_within=timeouts.kubernetes_api_call.seconds,
        within=timeouts.etcd_api_call.seconds,
    )


SOURCES: Final = Sources(discover=_discover, configuration=_configuration, node=_node, etcd=_etcd)


def _bootstrap_kubeconfig(layout: Layout) -> list[PurePosixPath]:
    """Return what the kubelet is let in with: people want to see it in a dry run."""
    return [layout.kubeconfig(_BOOTSTRAP)]


def _remove_token(bound: Bound) -> None:
    """Remove what a kubelet asks for its certificate with where join ends before the phase that does so: it holds a token."""
    if "kubelet-start" in bound.phases:
        bound.host.remove(bound.host.layout.kubeconfig(_BOOTSTRAP))


def _impatient(configuration: JoinConfiguration) -> JoinConfiguration:
    """Ask a cluster once: where it does not answer, stand-ins take its place."""
    return replace(configuration, timeouts=replace(configuration.timeouts, discovery=_AT_ONCE, kubernetes_api_call=_AT_ONCE))


JOIN: Final = Operation(
    name="join",
    phases=PHASES,
    configure=prepare,
    context=context,
    policy=Policy(traces_resume=True),
    preflight={
        Mode.APPLY: "kubewright.lifecycle.join.checks:checked",
        Mode.PLAN: "kubewright.lifecycle.join.checks:named",
        Mode.NARRATE: "kubewright.lifecycle.join.checks:named",
    },
    start=Start(phases=_STARTING, turns=further_control_plane),
    dry_run=DryRun(variable="KUBEADM_JOIN_DRYRUN_DIR", prefix="kubeadm-join-dryrun", keeps=_bootstrap_kubeconfig, configure=_impatient),
    opening=_opening,
    closing=closing.say,
    abandon=_remove_token,
    kubelet_makes=stand_ins.kubelet_files,
)
