"""The phase `preflight` on a control plane: checks of the cluster and of etcd, version policy, confirmation, images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kubewright.apis.kubeadm import cluster_document
from kubewright.apis.kubeadm.versions import component_image, images
from kubewright.base.checks import Check, Finding, run_checks
from kubewright.base.errors import UsageError
from kubewright.base.versions import Version
from kubewright.lifecycle.steps import preflight, running
from kubewright.lifecycle.steps.detected_cluster import ETCD
from kubewright.lifecycle.upgrade.control_plane import hand_edits, phase
from kubewright.lifecycle.upgrade.planning import versions
from kubewright.lifecycle.upgrade.planning.health import Health
from kubewright.lifecycle.upgrade.preflight import TOPIC, check_machine
from kubewright.workflow.phases import Step

if TYPE_CHECKING:
    from kubewright.lifecycle.upgrade.context import UpgradeContext

_QUESTION: Final = "[upgrade] Are you sure you want to proceed? [y/N]: "
_YES: Final = frozenset({"y", "yes"})


def apply(ctx: UpgradeContext) -> Iterator[Step]:
    """Check the machine, the cluster and the version, ask for confirmation, and pull the images."""
    ctx.say(TOPIC, "Running preflight checks")
    check_machine(ctx)
    health = Health(api=ctx.api, host=ctx.host, clock=ctx.clock, waiter=ctx.waiter, ignored=ctx.task.settings.ignore_preflight_errors)
    preflight.require_passed(health.check_dns(), reporter=ctx.reporter)
    preflight.require_passed(health.check(cluster_document(ctx.cluster)), reporter=ctx.reporter)
    _judge(ctx)
    _etcd(ctx)
    edits = hand_edits.found(ctx)
    _confirm(ctx)
    yield from hand_edits.keep(ctx, edits)
    yield from _pull(ctx)


def apply_planned(ctx: UpgradeContext) -> Iterable[Step]:
    """Check the version and list the images of a plan. The cluster is not asked to run a Job."""
    _judge(ctx)
    return planned(ctx)


def node(ctx: UpgradeContext) -> Iterator[Step]:
    """Check etcd of a further control plane, and pull the images."""
    _etcd(ctx)
    yield from hand_edits.keep(ctx, hand_edits.found(ctx))
    yield from _pull(ctx)


def _etcd(ctx: UpgradeContext) -> None:
    """Check which version of etcd the new version brings. Raises CheckFailed."""
    ignored = ctx.task.settings.ignore_preflight_errors
    preflight.require_passed(run_checks((Check(name="EtcdMinor", find=_other_minor),), ctx, ignored=ignored), reporter=ctx.reporter)


def _other_minor(ctx: UpgradeContext) -> Iterator[Finding]:
    """Find an etcd of a newer minor release: it converts its data, so that the earlier release cannot read them.

    The versions of Kubernetes that can be deployed differ only in the patch level of etcd (kubeadm v1.36:
    constants/constants.go), but `etcd.local.imageTag` may name any.
    """
    if not ctx.upgrades_etcd or ctx.cluster.etcd.external is not None:
        return
    manifest = ctx.host.read(ctx.host.layout.manifest(ETCD)) or b""
    present, wanted = phase.version_of(manifest), running.core(component_image(ctx.cluster, ETCD).rpartition(":")[2])
    if running.is_older(present, wanted) and _minor(present) != _minor(wanted):
        yield Finding(
            text=f"etcd {wanted} is of another minor release than {present}: if it fails, the way back is the snapshot that is saved before",
            remedy="keep the present one with etcd.local.imageTag or --etcd-upgrade=false; etcd's upgrade guide says which patch level all members need first",
        )


def _minor(version: str) -> str:
    return version.rpartition(".")[0]


def _judge(ctx: UpgradeContext) -> None:
    """Compare the version with those of the cluster, and report what `--force` overrides. Raises UsageError."""
    target = Version.parse(ctx.cluster.kubernetes_version)
    ctx.say(TOPIC, f'You have chosen to upgrade the cluster version to "{target}"')
    observed = versions.observe(ctx.api)
    present = observed.cluster
    ctx.say("upgrade/versions", f"Cluster version: {str(present).removeprefix('v')}")
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
    ctx.say(TOPIC, "Pulling images required for setting up a Kubernetes cluster")
    registration = ctx.task.init.node_registration
    return preflight.pull(ctx.cluster, registration, host=ctx.host, clock=ctx.clock, reporter=ctx.reporter)


def planned(ctx: UpgradeContext) -> Iterable[Step]:
    """List the images, and the changes by hand that would be kept."""
    if ctx.request.keep_changes:
        yield from hand_edits.keep(ctx, hand_edits.found(ctx))
    ctx.say(TOPIC, "The container runtime would need these images:\n" + "\n".join(f"\t{image}" for image in images(ctx.cluster)))
