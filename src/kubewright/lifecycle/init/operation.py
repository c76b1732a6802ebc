"""`init` as a row: its configuration, the context of its phases, its requirements, and the start order of a control plane."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.apis.kubeadm.arguments import of_control_plane
from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.machine import Addresses, Detected, Layout
from kubewright.base.errors import HostError, UsageError
from kubewright.base.events import Line
from kubewright.base.records import replace
from kubewright.host.seam import Host
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.deferred_manifests import StartCondition
from kubewright.lifecycle.init.context import InitContext
from kubewright.lifecycle.init.phases import PHASES
from kubewright.lifecycle.init.request import InitOptions, argument_warnings, configure
from kubewright.lifecycle.machine import TargetMachine
from kubewright.lifecycle.operation import Bound, DryRun, Operation, Policy, Prepared, Start
from kubewright.pki import store, table

if TYPE_CHECKING:
    from kubewright.lifecycle.machine_record import MachineRecord

_SIGNED: Final = {"ca": ("apiserver", "apiserver-kubelet-client"), "front-proxy-ca": ("front-proxy-client",)}
"""The certificates that kubeadm requires to exist, by the file name of their CA."""
START_ORDER: Final = (
    *("certs", "certs/ca", "kubeconfig", "kubeconfig/kubelet", "control-plane", "kubelet-start"),
    *("certs/etcd-ca", "certs/etcd-server", "certs/etcd-peer", "certs/etcd-healthcheck-client", "etcd/local"),
    *("certs/apiserver-etcd-client", "certs/apiserver", "certs/apiserver-kubelet-client", "certs/front-proxy-ca"),
    *("certs/front-proxy-client", "certs/sa", "control-plane/apiserver", "kubeconfig/super-admin"),
)
"""The phases in the order of their dependencies: a kubelet takes a second to start its first pod, and needs only its own files; then come etcd's keys, then the API server's, while the kubelet and etcd start."""
_STARTING: Final = frozenset({"etcd/local", "kubeconfig/super-admin", "kubelet-start", "wait-control-plane", "control-plane-check"})
_AUTHORITIES: Final = tuple(row.base for row in table.CERTIFICATES if isinstance(row, table.Authority))
_PATIENCE: Final = 3.0
"""Seconds that one request of a start condition may take."""


def prepare(request: InitOptions, machine: TargetMachine) -> Prepared[Configuration]:
    """Load the configuration and apply the paths in it.

    Raises as `configure` does, UsageError for a phase that cannot run alone, before the configuration is loaded, and
    ConfigurationChanged for a machine that was upgraded since.
    """
    if request.only:
        PHASES.select(only=request.only)
    here = machine.at(machine.layout)
    loaded = configure(request, detected=_detected(here), random=machine.random, layout=machine.layout)
    configuration = loaded.configuration
    places = _places(request, configuration, machine.layout)
    host = here if places == machine.layout else machine.at(places)
    if not request.only and _has_api_server(host):
        from kubewright.lifecycle.init import downgrades  # most machines are created once

        downgrades.require_no_older_machine(host, configuration)
    return Prepared(
        configuration=configuration,
        host=host,
        warnings=[*loaded.warnings, *_about_arguments(request, configuration, host)],
        only=request.only,
        skip=tuple(configuration.init.skip_phases),
        dry_run=configuration.init.dry_run,
        adopts=request.adopt,
        record=lambda: _record(configuration),
    )


def _has_api_server(host: Host) -> bool:
    with suppress(HostError):  # the writing phase reports it
        return host.state(host.layout.manifest("kube-apiserver")) is not None
    return False


def _detected(here: Host) -> Detected:
    found = here.facts.detected
    if found.cri_sockets:
        return found
    from kubewright.lifecycle import machine_record  # most machines have a container runtime

    return machine_record.with_runtime(found, here)


def _places(request: InitOptions, configuration: Configuration, layout: Layout) -> Layout:
    local = configuration.cluster.etcd.local
    moved = layout.at(pki=configuration.cluster.certificates_dir, etcd_data=local.data_dir if local else None)
    moved = replace(moved, cri_socket=configuration.init.node_registration.cri_socket)
    return replace(moved, kubernetes=PurePosixPath(request.kubeconfig_directory)) if request.kubeconfig_directory else moved


def _about_arguments(request: InitOptions, configuration: Configuration, host: Host) -> list[str]:
    given = list(of_control_plane(configuration))
    if not given:
        return []

    chosen = PHASES.select(only=request.only, skip=configuration.init.skip_phases)
    return argument_warnings(given, configuration=configuration, host=host, phases=frozenset(node.name for node in chosen))


def _record(configuration: Configuration) -> MachineRecord:
    from kubewright.lifecycle import machine_record

    return machine_record.of_init(configuration)


def context(request: InitOptions, configuration: Configuration, bound: Bound) -> InitContext:
    """Return the context of the phases. Naming admin.conf is the same as naming no kubeconfig, as in kubeadm."""
    endpoint = configuration.init.local_api_endpoint
    is_default = request.kubeconfig == str(bound.host.layout.kubeconfig("admin"))
    return InitContext(
        bound=bound,
        configuration=configuration,
        layout=bound.host.layout,
        addresses=Addresses.of_machine(endpoint.advertise_address, bind_port=endpoint.bind_port),
        request=replace(request, kubeconfig="") if is_default else request,
    )


def _opening(ctx: InitContext) -> None:
    """Require files that a run cannot create, and report the version."""
    _require_signed(ctx)
    if ctx.bound.whole:
        ctx.reporter.emit(Line(topic="init", text=f"Using Kubernetes version: {ctx.cluster.kubernetes_version}"))


def _require_signed(ctx: InitContext) -> None:
    """Require files that a run cannot create: certificates and, for the cluster's own CA, all kubeconfigs.

    Nothing is written. Raises CertificateError, naming the first file that is missing or does not match, and UsageError
    if certificates must be uploaded.
    """
    elsewhere = [base for base in _SIGNED if store.is_external(ctx.certificates, base)]
    if elsewhere and ctx.request.upload_certs:
        raise UsageError(
            f"certificates cannot be uploaded: {elsewhere[0]}.key is not on this machine",
            remedy="leave out --upload-certs, and copy the certificates to further control planes yourself",
        )
    for base in elsewhere:
        for row in table.CERTIFICATES:
            if row.name in _SIGNED[base]:
                _require_certificate(ctx, row)
    if "ca" in elsewhere:
        for kubeconfig in table.KUBECONFIGS:
            _require_kubeconfig(ctx, kubeconfig)


def _require_certificate(ctx: InitContext, row: table.CertificateRow) -> None:
    """Check the certificate as its phase does: creating one fails with the error that its CA's key is missing."""
    from kubewright.pki import ensure, specs  # few machines have such CAs

    ensure.ensure(ctx.certificates, specs.of(row, ctx.configuration, ctx.addresses), ctx.issuing)


def _require_kubeconfig(ctx: InitContext, row: table.Kubeconfig) -> None:
    from kubewright.pki import kubeconfigs, specs

    spec = specs.of_kubeconfig(row, ctx.configuration, ctx.addresses)
    kubeconfigs.ensure_kubeconfig(ctx.kubeconfigs, ctx.certificates, spec, ctx.issuing)


def _start_conditions(ctx: InitContext) -> Mapping[str, StartCondition]:
    from kubewright.lifecycle.init import startup

    return startup.start_conditions(ctx.cluster, ctx.host, connect=lambda: ctx.connect("super-admin", timeout=_PATIENCE))


def _reused(host: Host) -> list[PurePosixPath]:
    """Return the existing CAs; if the cluster's own CA is external, also the kubeconfigs, which cannot be created here."""
    layout, there = host.layout, host.state
    wanted = [path for base in _AUTHORITIES for path in (layout.certificate(base), layout.key(base))]
    if there(layout.certificate("ca")) is not None and there(layout.key("ca")) is None:
        wanted += [layout.kubeconfig(row.name) for row in table.KUBECONFIGS]
    return [path for path in wanted if there(path) is not None]


def _require_administrators(host: Host, machine: TargetMachine) -> None:
    """Require that an existing kubeconfig for writing can be used. Raises as `adoption.load_administrator` does."""
    from kubewright.lifecycle import adoption

    writes = host.layout.kubeconfig("super-admin")
    if host.state(writes) is not None:
        adoption.load_administrator(host, writes, now=machine.clock.now())


def _closing(ctx: InitContext) -> None:
    """Keep the patches for upgrades."""
    if ctx.bound.whole and ctx.bound.mode is Mode.APPLY and ctx.configuration.init.patches_directory:
        from kubewright.lifecycle import kept_patches  # few runs have any

        kept_patches.keep(ctx.host, ctx.configuration.init.patches_directory)


INIT: Final = Operation(
    name="init",
    phases=PHASES,
    configure=prepare,
    context=context,
    policy=Policy(before_adopting=_require_administrators),
    preflight={
        Mode.APPLY: "kubewright.lifecycle.init.preflight:checked",
        Mode.PLAN: "kubewright.lifecycle.init.preflight:named",
        Mode.NARRATE: "kubewright.lifecycle.init.preflight:named",
    },
    start=Start(phases=_STARTING, conditions=_start_conditions, order=START_ORDER),
    dry_run=DryRun(variable="KUBEADM_INIT_DRYRUN_DIR", prefix="kubeadm-init-dryrun", copies=_reused),
    opening=_opening,
    closing=_closing,
    kubelet_makes="kubewright.lifecycle.steps.stand_ins:kubelet_files",
)
