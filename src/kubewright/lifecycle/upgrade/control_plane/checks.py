"""The phase `preflight` on a control plane: checks of the cluster, of etcd and of API servers, version policy, confirmation, images."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from kubewright.apis.kubeadm import arguments
from kubewright.apis.kubeadm.codec import cluster_document
from kubewright.apis.kubeadm.versions import component_image, images
from kubewright.base.checks import Check, Finding, run_checks, warning
from kubewright.base.clock import rfc3339
from kubewright.base.errors import UsageError
from kubewright.base.patterns import Pattern
from kubewright.base.versions import Version
from kubewright.etcd import alarms
from kubewright.kube.kubeconfigs import load_access
from kubewright.kube.resources import NODE
from kubewright.kube.server_info import server_version
from kubewright.lifecycle import stacked_etcd
from kubewright.lifecycle.steps import component_versions, preflight, renewal
from kubewright.lifecycle.steps.detected_cluster import API_SERVER, ETCD
from kubewright.lifecycle.upgrade import kubelet_skew
from kubewright.lifecycle.upgrade.control_plane import disk_space, gate, hand_edits, phase
from kubewright.lifecycle.upgrade.planning import versions
from kubewright.lifecycle.upgrade.planning.health import Health
from kubewright.lifecycle.upgrade.preflight import TOPIC, check_machine
from kubewright.pki import certificates
from kubewright.workflow.phases import Step

if TYPE_CHECKING:
    from kubewright.lifecycle.upgrade.context import UpgradeContext

_QUESTION: Final = "[upgrade] Are you sure you want to proceed? [y/N]: "
_YES: Final = frozenset({"y", "yes"})
_VALID: Final = timedelta(days=1)
_REQUESTED: Final = Pattern(r"(?m)^apiserver_requested_deprecated_apis\{(?P<labels>[^}\n]*)\} 1")
_LABEL: Final = Pattern(r'(?P<name>\w+)="(?P<value>[^"\n]*)"')
_LEAST_ETCD: Final = {"3.6": "3.5.26", "3.7": "3.6.11"}
"""The patch level that all members need before they are upgraded to a minor release (etcd's upgrade guides)."""


def apply(ctx: UpgradeContext) -> Iterator[Step]:
    """Check the machine, the cluster and the version, ask for confirmation, and pull the images."""
    ctx.say(TOPIC, "Running preflight checks")
    check_machine(ctx)
    _require_no_alarm(ctx)
    health = Health(api=ctx.api, host=ctx.host, clock=ctx.clock, waiter=ctx.waiter, ignored=ctx.task.settings.ignore_preflight_errors)
    preflight.require_passed(health.check_dns(), reporter=ctx.reporter)
    preflight.require_passed(health.check(cluster_document(ctx.cluster)), reporter=ctx.reporter)
    _judge(ctx)
    _own(ctx)
    edits = hand_edits.found(ctx)
    _confirm(ctx)
    yield from hand_edits.keep(ctx, edits)
    yield from _pull(ctx)


def apply_planned(ctx: UpgradeContext) -> Iterable[Step]:
    """Check the version and list the images of a plan. The cluster is not asked to run a Job."""
    _judge(ctx)
    return planned(ctx)


def node(ctx: UpgradeContext) -> Iterator[Step]:
    """Run our own checks on a further control plane, and pull the images."""
    _require_no_alarm(ctx)
    _own(ctx)
    yield from hand_edits.keep(ctx, hand_edits.found(ctx))
    yield from _pull(ctx)


def _require_no_alarm(ctx: UpgradeContext) -> None:
    """Run the check of etcd's alarms before the checks that write objects: these would fail, or wait, for that reason. Raises CheckFailed."""
    check = Check(name="EtcdAlarms", find=_alarms)
    preflight.require_passed(run_checks([check], ctx, ignored=ctx.task.settings.ignore_preflight_errors), reporter=ctx.reporter)


def _alarms(ctx: UpgradeContext) -> Iterator[Finding]:
    """Find alarms that this machine's member reports: all members report those of all. One that does not answer is not a finding."""
    if ctx.cluster.etcd.external is not None:
        return
    raised = alarms.reported([ctx.etcd.status(stacked_etcd.client_url(ctx.addresses))])
    if raised:
        for text in alarms.described(raised, ctx.etcd.members(agreed=False)):
            yield Finding(text=text, remedy=alarms.remedy(raised))


def _own(ctx: UpgradeContext) -> None:
    """Run the checks that kubeadm does not have. Raises CheckFailed.

    If a component is going to be stopped, other machines are not checked while one of them stops its own.
    """
    replaced = phase.replaced(ctx)  # first: an error of the configuration or a patch is not a finding of a check
    ignored = ctx.task.settings.ignore_preflight_errors
    checks = [Check(name=name, find=partial(find, replaced=replaced)) for name, find in _OF_REPLACED.items()]
    with phase.turn(ctx) if replaced & {ETCD, API_SERVER} else nullcontext():
        report = run_checks([*checks, *_CHECKS], ctx, ignored=ignored, in_order=True)
    preflight.require_passed(report, reporter=ctx.reporter)


def _quorum(ctx: UpgradeContext, *, replaced: Collection[str]) -> Iterable[Finding]:
    """Require that etcd can lose this machine's member, if that is going to be restarted. Raises as the gate does."""
    if ETCD in replaced:
        gate.require_quorum(ctx)
    return ()


def _other_servers(ctx: UpgradeContext, *, replaced: Collection[str]) -> Iterable[Finding]:
    """Require another API server that is ready, if there are others and this one is going to be restarted. Raises as the gate does."""
    if API_SERVER in replaced:
        gate.require_another_server(ctx)
    return ()


def _other_minor(ctx: UpgradeContext) -> Iterator[Finding]:
    """Find an etcd of a newer minor release: it converts its data, so that the earlier release cannot read them.

    The versions of Kubernetes that can be deployed differ only in the patch level of etcd (kubeadm v1.36:
    constants/constants.go), but `etcd.local.imageTag` may name any.
    """
    if not ctx.upgrades_etcd or ctx.cluster.etcd.external is not None:
        return
    manifest = ctx.host.read(ctx.host.layout.manifest(ETCD)) or b""
    present, wanted = phase.version_of(manifest), component_versions.core(component_image(ctx.cluster, ETCD).rpartition(":")[2])
    if component_versions.is_older(present, wanted) and _minor(present) != _minor(wanted):
        least = _LEAST_ETCD.get(_minor(wanted), "")
        behind = [f"{one.endpoint} has {one.version}" for one in ctx.members.statuses() if component_versions.is_older(one.version, least)]
        needed = f" All members need {least} or later before: {', '.join(behind)}." if behind else ""
        yield Finding(
            text=f"etcd {wanted} is of another minor release than {present}: if it fails, the way back is the snapshot that is saved before."
            + needed,
            remedy="keep the present one with etcd.local.imageTag or --etcd-upgrade=false; etcd's upgrade guide describes the other way",
        )


def _minor(version: str) -> str:
    return version.rpartition(".")[0]


def _apart(ctx: UpgradeContext) -> Iterator[Finding]:
    """Find API servers that would be two minor releases apart: Kubernetes supports one (version skew policy)."""
    target = Version.parse(ctx.cluster.kubernetes_version)
    for text, nodes in versions.static_pods(ctx.api, API_SERVER).items():
        others, version = sorted({*nodes} - {ctx.node_name}), component_versions.core(text)
        if others and version and target.minor > Version.parse(version).minor + 1:
            yield Finding(
                text=f"the API servers of {', '.join(others)} have {text}, which is more than one minor release older than {target}",
                remedy="upgrade these control planes to the minor release before first",
            )


def _newer_kubelet(ctx: UpgradeContext) -> Iterator[Finding]:
    """Find API servers that are older than the kubelet which is to be installed: none may be (version skew policy)."""
    for text in kubelet_skew.newer_than_servers(ctx) if ctx.request.kubelet else ():
        yield Finding(text=text, remedy="leave out --kubelet until all control planes have been upgraded")


def _unknown_members(ctx: UpgradeContext) -> Iterator[Finding]:
    """Find members of etcd without a Node: each counts for the majority, although its machine may have left the cluster."""
    if not ctx.upgrades_etcd or ctx.cluster.etcd.external is not None:
        return
    nodes = {node["metadata"]["name"] for node in ctx.api.list(NODE)}
    for member in ctx.members.members(agreed=False):
        if member.name not in nodes:
            yield warning(
                f"etcd's member {member.shown} has no Node: if its machine is gone, remove it with `kubewright etcd member remove {member.hex_id}`",
                remedy="see `kubewright etcd status`",
            )


def _shared_endpoints(ctx: UpgradeContext) -> Iterator[Finding]:
    """Find components of this machine that may use an older API server than they support: that of another machine."""
    for name in ("controller-manager", "scheduler"):
        path = ctx.host.layout.kubeconfig(name)
        if ctx.host.state(path) is not None and (server := load_access(path, read=ctx.host.read).server) != ctx.addresses.api_server:
            yield warning(
                f"{path} names {server} instead of the API server of this machine: kube-{name} may be newer than the API server that answers",
                remedy=f"change it to {ctx.addresses.api_server}",
            )


def _expiring(ctx: UpgradeContext) -> Iterator[Finding]:
    """Find certificates with which new components would not serve for long: CAs, and others unless they are renewed."""
    names = [row.base for row in renewal.authorities(ctx.cluster)]
    names += [] if ctx.renews else [row.base for row in renewal.renewables(ctx.cluster) if row.base]
    for base in names:
        text = ctx.certificates.read(f"{base}.crt")
        until = certificates.first(text, source=f"{base}.crt").not_after if text is not None else None
        if until is not None and until - ctx.clock.now() < _VALID:
            yield Finding(
                text=f"{base}.crt is valid until {rfc3339(until)} only", remedy="renew it before: see `kubewright certs check-expiration`"
            )


def _arguments(ctx: UpgradeContext) -> Iterator[Finding]:
    """Find arguments and feature gates that the components of the new version do not know, and other mistakes in them."""
    given = [*arguments.of_control_plane(ctx.configuration)]
    if not given:
        return
    for text in preflight.argument_warnings(given, configuration=ctx.configuration, layout=ctx.layout, host=ctx.host):
        yield warning(text, remedy="change the ClusterConfiguration in the ConfigMap kube-system/kubeadm-config before the upgrade")


def _removed_apis(ctx: UpgradeContext) -> Iterator[Finding]:
    """Find APIs that clients have requested since the API server was started, and that the new version no longer serves.

    kube-apiserver v1.36: k8s.io/apiserver/pkg/endpoints/metrics, apiserver_requested_deprecated_apis.
    """
    target, present = (Version.parse(text).minor for text in (ctx.cluster.kubernetes_version, str(server_version(ctx.api))))
    answer = ctx.api.raw("GET", "/metrics") if target > present else None
    for found in _REQUESTED.finditer(answer.body.decode(errors="replace") if answer is not None and answer.status == 200 else ""):
        labels = {one["name"]: one["value"] for one in _LABEL.finditer(found["labels"])}
        removed = labels.get("removed_release", "").partition(".")[2]
        if removed.isdecimal() and int(removed) <= target:
            api = "/".join(filter(None, (labels.get("group"), labels.get("version"), labels.get("resource"))))
            yield warning(
                f"clients use {api}, which Kubernetes {labels['removed_release']} no longer serves",
                remedy="change these clients first: the audit log names them",
            )


_OF_REPLACED: Final = {"EtcdQuorum": _quorum, "OtherAPIServer": _other_servers, "DiskSpace": disk_space.find}
"""The checks that depend on the static pods which are going to be replaced."""
_CHECKS: Final = (
    Check(name="EtcdMinor", find=_other_minor),
    Check(name="APIServerSkew", find=_apart),
    Check(name="KubeletSkew", find=_newer_kubelet),
    Check(name="CertificateExpiration", find=_expiring),
    Check(name="EtcdMembers", find=_unknown_members),
    Check(name="LocalAPIServer", find=_shared_endpoints),
    Check(name="ExtraArgs", find=_arguments),
    Check(name="DeprecatedAPIs", find=_removed_apis),
)


def _judge(ctx: UpgradeContext) -> None:
    """Compare the version with those of the cluster, and report what `--force` overrides. Raises UsageError."""
    target = Version.parse(ctx.cluster.kubernetes_version)
    ctx.say(TOPIC, f'You have chosen to upgrade the cluster version to "{target}"')
    observed = versions.observe(ctx.api)
    present = observed.cluster
    for text in versions.announced(present):
        ctx.say("upgrade/versions", text)
    if target < present:
        ctx.say(TOPIC, f"This is a downgrade: the cluster has {present}, which is newer than {target}")
    asked = ctx.task.configuration.apply
    for reason in versions.judge(target, observed).require(str(target), force=bool(asked.force_upgrade)):
        ctx.say(TOPIC, f"Ignored because of --force: {reason}")


def _confirm(ctx: UpgradeContext) -> None:
    """Ask for confirmation. Raises UsageError for any answer other than y or yes."""
    if ctx.request.ask is None or ctx.request.yes or ctx.task.configuration.apply.force_upgrade:
        return
    if ctx.request.ask(_QUESTION).rstrip("\r\n").lower() not in _YES:
        raise UsageError("nothing was upgraded: the answer was not y", remedy="answer y, or use --yes")


def _pull(ctx: UpgradeContext) -> Iterable[Step]:
    registration = ctx.task.init.node_registration
    return preflight.pull(ctx.cluster, registration, host=ctx.host, clock=ctx.clock, reporter=ctx.reporter, topic=TOPIC)


def planned(ctx: UpgradeContext) -> Iterable[Step]:
    """List the images, and the changes by hand that would be kept."""
    if ctx.request.keep_changes:
        yield from hand_edits.keep(ctx, hand_edits.found(ctx))
    ctx.say(TOPIC, "The container runtime would need these images:\n" + "\n".join(f"\t{image}" for image in images(ctx.cluster)))
