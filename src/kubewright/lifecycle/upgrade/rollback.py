"""The operation `upgrade rollback`: restores the files that the last upgrade of this machine has replaced.

It needs neither other machines nor a running API server. If the API server runs, and no other control plane has a newer
version, the configuration of the cluster and the add-ons are restored as well, before the static pods: kube-proxy must
not be newer than an API server. The earlier API server must be able to read what the later one has stored
(`stored_objects`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from kubewright.apis.kubeadm.node_types import UpgradeConfiguration
from kubewright.base import yaml
from kubewright.base.change import Change
from kubewright.base.errors import HostError, KubewrightError, Unreachable, UsageError
from kubewright.base.events import Warned
from kubewright.base.records import replace
from kubewright.base.versions import Version
from kubewright.base.wait import retry
from kubewright.kube.resources import NODE
from kubewright.lifecycle import stored_configuration
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.context import dns_disabled, proxy_disabled
from kubewright.lifecycle.operation import Bound, Operation, Prepared
from kubewright.lifecycle.steps import checkpoint, component_versions, health, operation_lease
from kubewright.lifecycle.steps.checkpoint import Checkpoint, State
from kubewright.lifecycle.steps.detected_cluster import API_SERVER
from kubewright.lifecycle.upgrade import cluster, kubelet_files, kubelet_program, stored_objects
from kubewright.lifecycle.upgrade.context import KUBELET_FILES, KUBELET_OPERATION, UpgradeContext, UpgradeTask, report
from kubewright.lifecycle.upgrade.control_plane import phase
from kubewright.lifecycle.upgrade.operation import context, machine_of
from kubewright.lifecycle.upgrade.planning import versions
from kubewright.lifecycle.upgrade.request import RollbackOptions, UpgradeOptions
from kubewright.workflow.phases import Phase, Phases, Step

if TYPE_CHECKING:
    from kubewright.host.seam import Host
    from kubewright.kube.api import KubeAPI
    from kubewright.lifecycle.machine import TargetMachine

TOPIC: Final = "upgrade/rollback"
_LATER: Final = "so use `upgrade apply` with the earlier version afterwards"
_QUESTION: Final = "[upgrade] Are you sure you want to proceed? [y/N]: "


def prepare(request: RollbackOptions, machine: TargetMachine) -> Prepared[UpgradeTask]:
    """Read the state of this machine. Raises HostError if there is nothing to restore."""
    configuration = UpgradeConfiguration()
    host, init, is_control_plane = machine_of(machine, configuration, configuration.node)
    of_last_upgrade(host)
    task = UpgradeTask(configuration=configuration, settings=configuration.node, version="", init=init, control_plane=is_control_plane)
    return Prepared(configuration=task, host=host, only=request.only)


def of_last_upgrade(host: Host) -> list[Checkpoint]:
    """Return the checkpoints of the last upgrade in the order in which they are taken back.

    The static pods go first: a kubelet that is restarted ends no earlier pods unless an API server answers. A
    replacement of the kubelet that was interrupted is taken back alone. Raises HostError if nothing is left to take
    back.
    """
    operations = (phase.OPERATION, KUBELET_FILES, KUBELET_OPERATION)
    found = [one for one in checkpoint.every(host) if one.operation in operations and one.state is not State.PREPARED]
    group: list[Checkpoint] = []
    for one in reversed(found):
        if one.goal != found[-1].goal:
            break
        if one.state is not State.ROLLED_BACK:
            group.append(one)
        if one.operation != KUBELET_FILES:
            break
    if not group:
        why = (
            f"the upgrade to {found[-1].goal} has been rolled back already" if found else "no upgrade has replaced anything on this machine"
        )
        raise HostError(
            f"there is nothing to roll back: {why}",
            remedy="`kubewright upgrade apply VERSION` goes to an older patch level; kubeadm keeps earlier manifests below /etc/kubernetes/tmp",
        )
    return sorted(group, key=lambda one: one.operation == KUBELET_FILES)


def _require_known(host: Host, group: Sequence[Checkpoint]) -> None:
    """Raise HostError for files that somebody has changed since. The same file may be in several checkpoints, the newest of which counts."""
    seen: set[PurePosixPath] = set()
    for one in group:
        checkpoint.require_known(host, replace(one, swaps=tuple(swap for swap in one.swaps if swap.target not in seen)))
        seen.update(swap.target for swap in one.swaps)


def check(ctx: UpgradeContext) -> Iterable[Change]:
    """List the files and ask for confirmation.

    Raises HostError for files that somebody has changed since, and if the other machines cannot work without this one,
    UsageError for any answer other than y or yes.
    """
    group = of_last_upgrade(ctx.host)
    _require_known(ctx.host, group)
    if (api := _ready_api(ctx)) is not None:
        with _turn(ctx, api):
            phase.require_spared(ctx, group[0])
    _require_readable(ctx)
    lines = "\n".join(dict.fromkeys(f"\t{swap.target}" for one in group for swap in one.changed))
    ctx.say(TOPIC, f"These files are restored to their state before the upgrade to {group[0].goal}:\n{lines}")
    ask = None if ctx.request.yes else ctx.request.ask
    if ask is not None and ask(_QUESTION).rstrip("\r\n").lower() not in {"y", "yes"}:
        raise UsageError("nothing was rolled back: the answer was not y", remedy="answer y, or use --yes")
    return ()


def _require_readable(ctx: UpgradeContext) -> None:
    """Raise HostError for objects that the earlier API server cannot read; warn if there is no API server to ask for them.

    One that ends in the meantime is asked again when it is back: an interrupted run may have replaced its manifest.
    """
    text, goal = _earlier_version(ctx.host), of_last_upgrade(ctx.host)[0].goal
    if text and stored_objects.unknown_to(Version.parse(text), later=Version.parse(goal)):
        within = ctx.timeouts.kubernetes_api_call.seconds
        retry(lambda: _require_readable_by(ctx, text, goal), clock=ctx.clock, on=Unreachable, within=within)


def _require_readable_by(ctx: UpgradeContext, text: str, goal: str) -> None:
    if (reason := health.unready(ctx.probe)) is not None:
        told = f"it was not checked whether kube-apiserver {text} can read all objects, because no API server answers here: {reason}"
        ctx.reporter.emit(Warned(text=told))
        return
    found = list(stored_objects.unreadable(ctx.probe, Version.parse(text), later=Version.parse(goal)))
    if found:
        raise HostError(
            f"kube-apiserver {text} cannot read objects that {goal} has stored",
            detail="\n".join(found),
            remedy="delete these objects with kubectl, then run the same command again",
        )


def cluster_stays(ctx: UpgradeContext) -> str | None:
    """Return why the cluster's configuration and its add-ons stay as they are; None if they go back."""
    version = _earlier_version(ctx.host)
    if not version:
        return "the API server is not replaced"
    if (reason := _unready(ctx, ctx.probe)) is not None:
        return f"the API server does not answer, {_LATER}: {reason}"
    try:
        stored = stored_configuration.document(ctx.client, stored_configuration.KUBEADM_CONFIG).value
        if not isinstance(stored, Mapping) or not component_versions.is_older(version, str(stored.get("kubernetesVersion") or "")):
            return "the cluster's configuration has no newer version"
        nodes = {node["metadata"]["name"] for node in ctx.client.list(NODE)} - {ctx.node_name}
        found = versions.static_pods(ctx.client, API_SERVER)
    except KubewrightError as error:
        return f"the cluster cannot be read, {_LATER}: {error}"
    newer = sorted(node for text, places in found.items() if component_versions.is_older(version, text) for node in places if node in nodes)
    return f"kube-apiserver has a newer version on {', '.join(newer)}" if newer else None


def take_cluster_back(ctx: UpgradeContext) -> Iterator[Step]:
    """Store the earlier version in the cluster, and take the add-ons back. An error is a warning: static pods can go back without that."""
    earlier = replace(ctx, task=replace(ctx.task, version=_earlier_version(ctx.host)))
    try:
        yield from cluster.upload_kubeadm(earlier)
        yield from cluster.upload_kubelet(earlier)
        if dns_disabled(earlier) is None:
            yield from cluster.coredns(earlier)
        if proxy_disabled(earlier) is None:
            yield from cluster.kube_proxy(earlier)
    except KubewrightError as error:
        ctx.reporter.emit(Warned(text=f"not all of the cluster's configuration and add-ons have gone back, {_LATER}: {error}"))


def _earlier_version(host: Host) -> str:
    """Return the version of the API server before the last upgrade; '' if that has not replaced it, or if its image has no version."""
    found, target = of_last_upgrade(host)[0], host.layout.manifest(API_SERVER)
    swap = next((one for one in found.changed if one.target == target and one.before != checkpoint.ABSENT), None)
    if swap is None:
        return ""
    pod: Any = yaml.load(checkpoint.content(host, found, swap, side="old"), source=str(target))
    try:
        return str(Version.parse(versions.version_of(pod)))
    except (ValueError, LookupError, TypeError):
        return ""


def _ready_api(ctx: UpgradeContext) -> KubeAPI | None:
    """Return the client for the lease of operations; None without an API server that is ready, and on workers, which stop nothing that others need."""
    return ctx.lease_api if ctx.control_plane and _unready(ctx, ctx.lease_api) is None else None


def _unready(ctx: UpgradeContext, api: KubeAPI) -> str | None:
    return health.unready_once_started(api, waiter=ctx.waiter, within=ctx.timeouts.kubernetes_api_call.seconds)


def _turn(ctx: UpgradeContext, api: KubeAPI | None) -> AbstractContextManager[None]:
    return operation_lease.held_if_ready(api, identity=ctx.node_name, clock=ctx.clock, waiter=ctx.waiter, reporter=ctx.reporter)


def take_back(ctx: UpgradeContext) -> Iterator[Change]:
    """Restore the earlier files, and verify that the components and the kubelet run from them."""
    for one in of_last_upgrade(ctx.host):
        checkpoint.require_known(ctx.host, one)
        if one.operation == KUBELET_FILES:
            yield from kubelet_files.taken_back(ctx, checkpoint.mark(ctx.host, one, State.IN_PROGRESS))
            ctx.say(TOPIC, "The kubelet runs with its earlier files")
        else:
            yield from _components_taken_back(ctx, one)


def _components_taken_back(ctx: UpgradeContext, found: Checkpoint) -> Iterator[Change]:
    """Restore the earlier static pods, or the earlier kubelet.

    If an API server is ready, other machines are waited for and looked at again, as in an upgrade.
    """
    api = _ready_api(ctx)
    _require_readable(ctx)
    with _turn(ctx, api) if ctx.control_plane else nullcontext():
        if api is not None:
            phase.require_spared(ctx, found)
        begun = checkpoint.mark(ctx.host, found, State.IN_PROGRESS)
        if found.operation == KUBELET_OPERATION:
            yield from kubelet_program.taken_back(ctx, begun)
            return
        yield from phase.taken_back(ctx, begun)
    ctx.say(TOPIC, "The earlier static pods are running again")
    ctx.say(TOPIC, "Renewed certificates stay, because they are valid for the earlier components, too")


PHASES: Final[Phases[UpgradeContext]] = Phases(
    Phase("preflight", "List what is restored, and ask for confirmation", run=lambda ctx: ctx.bound.preflight(ctx), flags="yes"),
    Phase("cluster", "Store the earlier version in the cluster, and take the add-ons back", run=take_cluster_back, condition=cluster_stays),
    Phase("control-plane", "Put the earlier static pods of this machine and the files of its kubelet back", run=take_back),
)


def _context(request: RollbackOptions, task: UpgradeTask, bound: Bound) -> UpgradeContext:
    return context(UpgradeOptions(section="node", yes=request.yes, ask=request.ask), task, bound)


ROLLBACK: Final = Operation(
    name="upgrade rollback",
    phases=PHASES,
    configure=prepare,
    context=_context,
    preflight={Mode.APPLY: check},
    report=report,
)
