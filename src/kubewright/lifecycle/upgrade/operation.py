"""The operations `upgrade apply` and `upgrade node`: their configuration, context, and first and last messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final

from kubewright.apis.kubeadm.codec import cluster_document
from kubewright.apis.kubeadm.node_types import UpgradeApply, UpgradeConfiguration, UpgradeNode
from kubewright.apis.kubeadm.types import InitConfiguration, LocalAPIEndpoint
from kubewright.apis.kubeadm.versions import resolve
from kubewright.apis.machine import CRI_SOCKET, Addresses
from kubewright.base import yaml
from kubewright.base.errors import HostError, KubewrightError, UsageError
from kubewright.base.events import Warned
from kubewright.base.records import replace
from kubewright.base.versions import Version
from kubewright.host.seam import Host
from kubewright.kube.credentials import ClientCertificate
from kubewright.kube.kubeconfigs import load_access
from kubewright.lifecycle import kept_patches, machine_record
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.machine import TargetMachine
from kubewright.lifecycle.operation import Bound, DryRun, Operation, Prepared
from kubewright.lifecycle.steps import own_runtime, stand_ins
from kubewright.lifecycle.steps.detected_cluster import API_SERVER, DetectedCluster
from kubewright.lifecycle.upgrade.configuration import machine_part
from kubewright.lifecycle.upgrade.context import UpgradeContext, UpgradeTask, kubeconfig_path, report
from kubewright.lifecycle.upgrade.phases import APPLY as APPLY_PHASES
from kubewright.lifecycle.upgrade.phases import NODE as NODE_PHASES
from kubewright.lifecycle.upgrade.planning import versions
from kubewright.lifecycle.upgrade.request import APPLY as APPLY_SECTION
from kubewright.lifecycle.upgrade.request import UpgradeOptions, configure, target
from kubewright.pki import certificates
from kubewright.workflow.phases import Phases, Step

_ANYWHERE: Final = "0.0.0.0"  # noqa: S104 - a worker has no API server that listens

_AGENT: Final = "kubewright-agent"
"""The service of `agent install`."""
_CHECKS: Final = "kubewright.lifecycle.upgrade.control_plane.checks"
Checks = Callable[[UpgradeContext], Iterable[Step]] | str
"""The function of the phase `preflight`, or its name."""
_TREES: Final[dict[str, Phases[UpgradeContext]]] = {"apply": APPLY_PHASES, "node": NODE_PHASES}
_NODE: Final = "system:node:"


def prepare(request: UpgradeOptions, machine: TargetMachine) -> Prepared[UpgradeTask]:
    """Load the configuration and read the state of this machine. The phases read the cluster.

    Raises as `configure` does, UsageError for an unusable version and an unknown phase, HostError for a machine that
    joined through a hub, and for a kubelet if the machine runs kubewright's agent, CertificateError for a machine that
    is not part of a cluster (unless this is a dry run), and DocumentError for a control plane whose manifest does not
    contain its endpoint.
    """
    loaded = configure(request)
    configuration = loaded.configuration
    _require_compatible(request, configuration)
    settings = getattr(configuration, request.section)
    version, ignored = _version(request, configuration) if request.section == APPLY_SECTION else ("", [])
    _TREES[request.section].select(only=request.only, skip=settings.skip_phases)
    host, init, control_plane = machine_of(machine, configuration, settings)
    if request.keep_changes:
        init = replace(init, patches_directory=str(host.layout.patches))
    if request.kubelet:
        _require_kubelet(host)
    task = UpgradeTask(configuration=configuration, settings=settings, version=version, init=init, control_plane=control_plane)
    applies = request.section == APPLY_SECTION
    path = kubeconfig_path(request, host.layout, control_plane=control_plane or applies)
    if settings.dry_run and host.state(path) is None:
        task = _without_cluster(task, host, control_plane=control_plane or applies)
    elif applies and not control_plane:
        raise UsageError("this machine is not a control plane", remedy="run `upgrade apply` on a control plane, and `upgrade node` here")
    elif not request.kubeconfig:
        load_access(path, read=host.read)
    return Prepared(
        configuration=task,
        host=host,
        warnings=[*loaded.warnings, *ignored],
        only=request.only,
        skip=tuple(settings.skip_phases),
        dry_run=bool(settings.dry_run),
    )


def _require_compatible(request: UpgradeOptions, configuration: UpgradeConfiguration) -> None:
    """Raise UsageError for options that have no effect without another one, or exclude each other."""
    if request.drain and not request.kubelet:
        raise UsageError(
            "--drain evicts the pods of this machine before its kubelet is replaced",
            remedy="pass the new kubelet with --kubelet FILE as well",
        )
    if request.keep_changes and getattr(configuration, request.section).patches:
        raise UsageError(
            "--keep-changes adds to the patches of the last run, but other patches were given",
            remedy="use one of --keep-changes and --patches",
        )


def _without_cluster(task: UpgradeTask, host: Host, *, control_plane: bool) -> UpgradeTask:
    """Return the request of a dry run on stand-ins, for which a machine without a manifest can be a control plane.

    As in every dry run of kubeadm, etcd is left out and no certificate is renewed (kubeadm v1.36:
    phases/upgrade/staticpods.go, DryRunStaticPodUpgrade).
    """
    init, detected = task.init, host.facts.detected
    if control_plane and not task.control_plane:
        address = detected.default_ipv4 or detected.default_ipv6 or _ANYWHERE
        init = replace(init, local_api_endpoint=LocalAPIEndpoint(advertise_address=address))
    settings = replace(task.settings, certificate_renewal=False, etcd_upgrade=False)
    return replace(task, settings=settings, init=init, control_plane=control_plane, without_cluster=True)


def machine_of(
    machine: TargetMachine, configuration: UpgradeConfiguration, settings: UpgradeApply | UpgradeNode
) -> tuple[Host, InitConfiguration, bool]:
    """Return a machine with its layout, its part of the configuration, and whether it is a control plane.

    kubeadm reads the name of the Node and the rest from the cluster (kubeadm v1.36: util/config/cluster.go). They are
    read from files of the machine here, which works without a cluster that answers. Raises HostError for a machine
    whose version a hub determines.
    """
    here = machine.at(DetectedCluster(machine.at(machine.layout)).layout)
    _require_own(here)
    control_plane = _is_control_plane(here)
    socket = _runtime_socket(here)
    init = machine_part(
        settings,
        name=_node_name(here),
        socket=socket,
        endpoint=_endpoint(here) if control_plane else LocalAPIEndpoint(advertise_address=_ANYWHERE),
        timeouts=configuration.timeouts,
    )
    init = replace(init, patches_directory=kept_patches.chosen(here, init.patches_directory))
    host = here if socket in ("", here.layout.cri_socket) else machine.at(replace(here.layout, cri_socket=socket))
    return host, init, control_plane


def _version(request: UpgradeOptions, configuration: UpgradeConfiguration) -> tuple[str, list[str]]:
    """Return the version to upgrade to, and the reasons against it that `--force` overrides. Raises UsageError."""
    text, asked = target(request, configuration), configuration.apply
    try:
        resolved = resolve(text)
        version = Version.parse(resolved.version)
    except ValueError as error:
        raise UsageError(f"{text} is not a version to upgrade to: it {error}", remedy="name a version like v1.36.3") from error
    if request.only and "preflight" not in request.only:  # as in kubeadm, whose other phases do not have the flag --force
        return str(version), list(resolved.warnings)
    verdict = versions.judge_target(version, experimental=bool(asked.allow_experimental_upgrades), candidates=bool(asked.allow_rc_upgrades))
    ignored = verdict.require(str(version), force=bool(asked.force_upgrade))
    return str(version), [*resolved.warnings, *(f"ignored: {reason}" for reason in ignored)]


def _require_own(host: Host) -> None:
    """Raise HostError for a machine whose version its hub determines."""
    record = machine_record.current(host)
    if record is not None and record.workflow == "node join":
        raise HostError(
            "this machine has joined its cluster through a hub, which decides its version",
            remedy="change the version of the cluster at the hub, then run `kubewright node join` again",
        )


def _require_kubelet(host: Host) -> None:
    """Raise HostError for a machine whose node is kubewright's agent."""
    agent = host.service(_AGENT)
    if agent is not None and agent.running:
        raise HostError(
            "this machine has no kubelet that could be replaced: kubewright's agent runs in its place",
            remedy=f"install the kubewright of the new version and restart {_AGENT}; run the upgrade without --kubelet",
        )


def context(request: UpgradeOptions, task: UpgradeTask, bound: Bound) -> UpgradeContext:
    """Return the context of the phases."""
    endpoint = task.init.local_api_endpoint
    addresses = Addresses.of_machine(endpoint.advertise_address, bind_port=endpoint.bind_port)
    return UpgradeContext(bound=bound, addresses=addresses, task=task, request=request)


def _opening(ctx: UpgradeContext) -> None:
    """Report which patches are used, and print the cluster's configuration if `--print-config` was given.

    In a dry run without a cluster, stand-ins replace it first (kubeadm v1.36: cmd/upgrade/common.go, getClient).
    """
    if ctx.without_cluster:
        reason = f"the kubeconfig {ctx.kubeconfig} does not exist"
        ctx.bound.connections.replace_cluster(stand_ins.objects_of_upgrade(ctx.node_name), server=stand_ins.SERVER, reason=reason)
    kept = ctx.host.layout.patches
    if ctx.task.init.patches_directory == str(kept) and ctx.host.state(kept) is not None:
        ctx.say("patches", "Using the patches of the last run; `--patches DIR` uses others, and `--patches none` deletes them")
        if changed := kept_patches.changed(ctx.host):
            text = f"these patches in {kept} have changed since they were kept: {', '.join(changed)}"
            ctx.reporter.emit(Warned(text=f"{text}; use --patches DIR if that was not intended"))
    given = ctx.task.settings.patches
    if difference := kept_patches.difference(ctx.host, given.directory if given else ""):
        ctx.say("patches", f"These patches differ from those of the last run, which they replace:\n{difference.rstrip()}")
    if ctx.request.section == APPLY_SECTION and ctx.task.configuration.apply.print_config:
        lines = yaml.dump(cluster_document(ctx.cluster)).splitlines()
        ctx.say("upgrade/config", "The cluster's configuration:\n" + "\n".join(f"\t{line}" for line in lines))


def _closing(ctx: UpgradeContext) -> None:
    """Remember the patches, and report the result."""
    if not ctx.bound.whole:
        return
    if ctx.bound.mode is Mode.APPLY:
        kept_patches.keep(ctx.host, ctx.task.settings.patches.directory if ctx.task.settings.patches else "")
    if ctx.bound.mode is Mode.NARRATE:
        ctx.say("upgrade/successful", "Finished dryrunning successfully!")
    elif ctx.bound.mode is Mode.APPLY and ctx.request.section == APPLY_SECTION:
        ctx.report_text("")
        ctx.say("upgrade", f'SUCCESS! A control plane node of your cluster was upgraded to "{ctx.cluster.kubernetes_version}".\n')
        ctx.say("upgrade", "Now upgrade the other control planes and the workers with `upgrade node`, and the kubelets of all machines.")


def _check_node(ctx: UpgradeContext) -> Iterator[Step]:
    """Check the machine, and pull the images of a control plane."""
    from kubewright.lifecycle.upgrade import preflight

    preflight.node(ctx)
    if ctx.control_plane:
        from kubewright.lifecycle.upgrade.control_plane import checks  # a worker needs few of the modules

        yield from checks.node(ctx)


def _plan_node(ctx: UpgradeContext) -> Iterator[Step]:
    """List the images of a plan."""
    if ctx.control_plane:
        from kubewright.lifecycle.upgrade.control_plane import checks

        yield from checks.planned(ctx)


def _operation(section: str, *, checked: Checks, planned: Checks) -> Operation[UpgradeOptions, UpgradeTask, UpgradeContext]:
    return Operation(
        name=f"upgrade {section}",
        phases=_TREES[section],
        configure=prepare,
        context=context,
        preflight={Mode.APPLY: checked, Mode.PLAN: planned, Mode.NARRATE: planned},
        dry_run=DryRun(variable="KUBEADM_UPGRADE_DRYRUN_DIR", prefix=f"kubeadm-upgrade-{section}-dryrun"),
        opening=_opening,
        closing=_closing,
        report=report,
    )


APPLY: Final = _operation("apply", checked=f"{_CHECKS}:apply", planned=f"{_CHECKS}:apply_planned")
NODE: Final = _operation("node", checked=_check_node, planned=_plan_node)


def _is_control_plane(host: Host) -> bool:
    """Whether the machine has the manifest of an API server. kubeadm decides by the same file."""
    return host.state(host.layout.manifest(API_SERVER)) is not None


def _node_name(host: Host) -> str:
    """Return the name of this machine's Node: that of the kubelet's certificate, otherwise the host name."""
    with suppress(KubewrightError):
        access = load_access(host.layout.kubeconfig("kubelet"), read=host.read)
        if isinstance(access.identity, ClientCertificate):
            found = certificates.first_common_name(access.identity.cert_pem, source="kubelet.conf")
            if found.startswith(_NODE):
                return found.removeprefix(_NODE)
    return host.facts.detected.host_name.strip().lower()


def _runtime_socket(host: Host) -> str:
    """Return the runtime's socket from the kubelet's files, otherwise a socket that exists, otherwise kubeadm's default."""
    return next(filter(None, (own_runtime.configured(host), *host.facts.detected.cri_sockets)), CRI_SOCKET)


def _endpoint(host: Host) -> LocalAPIEndpoint:
    """Return the endpoint of this machine's API server. Raises DocumentError if its manifest does not contain it."""
    from kubewright.lifecycle.upgrade.planning.diff import local_endpoint  # for control planes

    path = host.layout.manifest(API_SERVER)
    address, port = local_endpoint((host.read(path) or b"").decode(errors="replace"), source=str(path))
    return LocalAPIEndpoint(advertise_address=address, bind_port=port)
