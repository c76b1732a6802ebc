"""`join` as a row: its configuration, the context of its phases, the start order of a control plane, and the final messages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from kubewright.apis.kubeadm.node_types import JoinConfiguration
from kubewright.apis.machine import Layout
from kubewright.base.durations import Duration
from kubewright.base.records import replace
from kubewright.kube.credentials import Access, Anonymous, BearerToken
from kubewright.lifecycle import adoption, machine_record
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.deferred_manifests import StartCondition
from kubewright.lifecycle.join import configuration as cluster_configuration
from kubewright.lifecycle.join import discovery, kubelet
from kubewright.lifecycle.join.context import ClusterSources, JoinContext
from kubewright.lifecycle.join.phases import PHASES
from kubewright.lifecycle.join.request import JoinOptions, addresses, configure
from kubewright.lifecycle.machine import TargetMachine
from kubewright.lifecycle.operation import Bound, DryRun, Operation, Policy, Prepared, Start
from kubewright.lifecycle.steps import stand_ins

if TYPE_CHECKING:
    from kubewright.etcd.api import Etcd

_GET_NODES = "Run 'kubectl get nodes' on a control plane to see it."
_STARTING: Final = frozenset({"control-plane-prepare/control-plane", "kubelet-start", "etcd-join", "wait-control-plane"})
_AT_ONCE: Final = Duration(0)
_BOOTSTRAP: Final = "bootstrap-kubelet"


def prepare(request: JoinOptions, machine: TargetMachine) -> Prepared[JoinConfiguration]:
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


def context(_: JoinOptions, configuration: JoinConfiguration, bound: Bound) -> JoinContext:
    """Return the context of the phases."""
    return JoinContext(bound=bound, join=configuration, addresses=addresses(configuration), sources=SOURCES)


def _opening(ctx: JoinContext) -> None:
    """Require, before a plan, that the cluster of a control plane by another tool can be read.

    Raises as `adoption.load_administrator` does.
    """
    host, layout = ctx.bound.base, ctx.bound.base.layout
    if ctx.bound.mode is Mode.PLAN and adoption.traces(host) and host.state(layout.manifest("kube-apiserver")) is not None:
        adoption.load_administrator(host, layout.kubeconfig("admin"), now=ctx.clock.now())


def start_conditions(ctx: JoinContext) -> Mapping[str, StartCondition]:
    """Return the start conditions: the API server starts with the permanent etcd, the others when the API server answers."""

    def etcd_starts() -> bool:
        return ctx.cluster.etcd.external is not None or ctx.host.state(ctx.layout.manifest("etcd")) is not None

    def api_server_answers() -> bool:
        return ctx.host.state(ctx.layout.manifest("kube-apiserver")) is not None and bool(ctx.probe.raw("GET", "/livez"))

    return {"kube-apiserver": etcd_starts, "kube-controller-manager": api_server_answers, "kube-scheduler": api_server_answers}


def _discover(ctx: JoinContext) -> Access:
    """Find the cluster as configured.

    A dry run without an answer continues with stand-ins (kubeadm v1.36: util/apiclient/dryrun.go).
    """
    return ctx.bound.connections.find(lambda: discovery.find(ctx), instead=lambda: _nobody(ctx))


def _nobody(ctx: JoinContext) -> tuple[Access, list[Mapping[str, Any]]]:
    """Return kubeadm's stand-ins, for any token and pin, because no server proves anything."""
    plane, token = ctx.join.control_plane, ctx.join.discovery.tls_bootstrap_token
    key = plane.certificate_key if plane is not None else ""
    shared = [stand_ins.shared_certificates(key, clock=ctx.clock, random=ctx.random)] if key else []
    access = stand_ins.access(BearerToken(token) if token else Anonymous())
    return access, [*stand_ins.cluster_objects(), stand_ins.node(ctx.join.node_registration.name), *shared]


def _etcd(ctx: JoinContext) -> Etcd:
    """Find the cluster's etcd through its pods."""
    from kubewright.lifecycle import stacked_etcd

    timeouts = ctx.join.timeouts
    return stacked_etcd.connect(
        ctx.admin,
        pki=ctx.layout.pki,
        files=ctx.host,
        clock=ctx.clock,
        api_within=timeouts.kubernetes_api_call.seconds,
        within=timeouts.etcd_api_call.seconds,
    )


SOURCES: Final = ClusterSources(
    discover=_discover, known=discovery.known, configuration=cluster_configuration.configuration, node=kubelet.find_node, etcd=_etcd
)


def _bootstrap_kubeconfig(layout: Layout) -> list[PurePosixPath]:
    """Return the kubelet's bootstrap credentials, which users want to see in a dry run."""
    return [layout.kubeconfig(_BOOTSTRAP)]


def _remove_token(bound: Bound) -> None:
    """Remove the kubelet's bootstrap credentials, which contain a token, if join ends before the phase that does so."""
    if "kubelet-start" in bound.phases:
        bound.host.remove(bound.host.layout.kubeconfig(_BOOTSTRAP))


def _impatient(configuration: JoinConfiguration) -> JoinConfiguration:
    """Return the configuration with a single attempt: if the cluster does not answer, stand-ins take its place."""
    return replace(configuration, timeouts=replace(configuration.timeouts, discovery=_AT_ONCE, kubernetes_api_call=_AT_ONCE))


def _closing(ctx: JoinContext) -> None:
    """Report the result for this machine if something was done, and keep its patches for upgrades."""
    if ctx.bound.whole and ctx.bound.mode is Mode.APPLY:
        if ctx.join.patches_directory:
            from kubewright.lifecycle import kept_patches  # few runs have any

            kept_patches.keep(ctx.host, ctx.join.patches_directory)
        ctx.report_text("\n".join(_control_plane(ctx) if ctx.control_plane else _worker(ctx)))


def _worker(ctx: JoinContext) -> list[str]:
    return [
        f"This machine has joined the cluster as the node {ctx.node_name}:",
        "* its certificate signing request was sent to the API server, and answered",
        "* the kubelet uses the certificate",
        "",
        _GET_NODES,
    ]


def _control_plane(ctx: JoinContext) -> list[str]:
    admin = ctx.layout.kubeconfig("admin")
    member = ["* the etcd cluster has a new member on it"] if ctx.cluster.etcd.local is not None else []
    return [
        f"This machine has joined the cluster as the control plane {ctx.node_name}:",
        "* its certificate signing request was sent to the API server, and answered",
        "* the kubelet uses the certificate",
        "* the Node has the label and the taint of a control plane",
        "* the components of the control plane run on it",
        *member,
        "",
        "To use the cluster from here as an ordinary user:",
        "",
        "  mkdir -p $HOME/.kube",
        f"  sudo cp -i {admin} $HOME/.kube/config",
        "  sudo chown $(id -u):$(id -g) $HOME/.kube/config",
        "",
        _GET_NODES,
    ]


JOIN: Final = Operation(
    name="join",
    phases=PHASES,
    configure=prepare,
    context=context,
    policy=Policy(traces_resume=True),
    preflight={
        Mode.APPLY: "kubewright.lifecycle.join.preflight:checked",
        Mode.PLAN: "kubewright.lifecycle.join.preflight:named",
        Mode.NARRATE: "kubewright.lifecycle.join.preflight:named",
    },
    start=Start(phases=_STARTING, conditions=start_conditions),
    dry_run=DryRun(variable="KUBEADM_JOIN_DRYRUN_DIR", prefix="kubeadm-join-dryrun", keeps=_bootstrap_kubeconfig, configure=_impatient),
    opening=_opening,
    closing=_closing,
    abandon=_remove_token,
    kubelet_makes="kubewright.lifecycle.steps.stand_ins:kubelet_files",
)
