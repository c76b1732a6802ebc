"""The phase `control-plane`: replaces and verifies the static pods of this machine; if one fails, all are restored.

The order, the certificates and the directory of backups are those of kubeadm (kubeadm v1.36:
phases/upgrade/staticpods.go).
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from kubewright.base import yaml
from kubewright.base.change import Change
from kubewright.base.errors import DocumentError
from kubewright.base.events import SilentReporter, Waited
from kubewright.base.records import dataclass, replace
from kubewright.host.desired import Directory, File
from kubewright.host.overlay import OverlayHost
from kubewright.kube.objects import DesiredObject, ensure_object
from kubewright.lifecycle import kept_patches, machine_record, stacked_etcd
from kubewright.lifecycle.steps import boot_recovery, checkpoint, component_versions, health, operation_lease, static_pod_proof, static_pods
from kubewright.lifecycle.steps.detected_cluster import API_SERVER, ETCD
from kubewright.lifecycle.steps.operation_lease import OperationLease
from kubewright.lifecycle.steps.replacement import Replacement, carry_out, take_back
from kubewright.lifecycle.steps.static_pod_proof import StaticPodProof
from kubewright.lifecycle.upgrade.context import KUBELET_FILES, KUBELET_OPERATION
from kubewright.lifecycle.upgrade.control_plane import certificates, elections, etcd_backup, gate, proofs
from kubewright.lifecycle.upgrade.planning.versions import CONTROL_PLANE
from kubewright.manifests import objects
from kubewright.workflow.phases import Step

if TYPE_CHECKING:
    from kubewright.lifecycle.upgrade.context import UpgradeContext, UpgradeTask

T = TypeVar("T")

TOPIC: Final = "upgrade/staticpods"
OPERATION: Final = "upgrade"
"""The name of the operation in the checkpoint, for both `apply` and `node`."""
_GROUPS: Final = ((ETCD,), (API_SERVER,), CONTROL_PLANE[1:])
"""The components that are replaced at the same time: the last two do not depend on each other."""
_PRIVATE: Final = 0o700


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A static pod of this machine: its present and its new manifest. They are equal if nothing changes."""

    name: str
    old: bytes
    new: bytes

    @property
    def differs(self) -> bool:
        """Whether the pod changes."""
        return self.old != self.new


def upgrade(ctx: UpgradeContext) -> Iterator[Step]:
    """Replace the manifests that differ, in kubeadm's order.

    Raises HostError if one fails; the machine is then back in its earlier state.
    """
    version = ctx.cluster.kubernetes_version
    within = ctx.timeouts.upgrade_manifests
    ctx.say("upgrade/control-plane", f'Upgrading the static pods of this control plane to version "{version}" (timeout: {within})...')
    found = yield from _manifests(ctx)
    yield from _rights(ctx)
    if any(one.differs for one in found) or _is_unfinished(ctx):
        yield from _replaced(ctx, found)
    else:
        boot_recovery.remove_unneeded(ctx.host)  # a run that was killed at its end has left the unit
        _say_equal(ctx, [one.name for one in found])
    machine_record.follow(ctx.host, version=ctx.cluster.kubernetes_version)
    ctx.say("upgrade/control-plane", "The control plane of this machine has been upgraded")


def replaced(ctx: UpgradeContext) -> frozenset[str]:
    """Return the names of the static pods that this upgrade replaces. Nothing is written or reported.

    Changes by hand that are going to be kept are no patches yet.
    """
    init = ctx.task.init
    if ctx.request.keep_changes:
        init = replace(init, patches_directory=kept_patches.chosen(ctx.host, ""))
    return frozenset(one.name for one in returned(_manifests(draft(ctx, replace(ctx.task, init=init)))) if one.differs)


def draft(ctx: UpgradeContext, task: UpgradeTask) -> UpgradeContext:
    """Return the context of a silent run that writes nothing."""
    return replace(ctx, bound=replace(ctx.bound, host=OverlayHost(ctx.host), reporter=SilentReporter()), task=task)


def returned(steps: Generator[object, None, T]) -> T:
    """Exhaust a generator and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def _is_unfinished(ctx: UpgradeContext) -> bool:
    """Whether an operation was interrupted, other than a replacement of the kubelet or its files that this run is going to continue."""
    begun = checkpoint.unfinished(checkpoint.every(ctx.host))
    later = (KUBELET_FILES, KUBELET_OPERATION) if ctx.request.kubelet else (KUBELET_FILES,)
    return begun is not None and begun.operation not in later


def _rights(ctx: UpgradeContext) -> Iterable[Change]:
    """Add the permissions that the new version needs before its first component starts; none is removed."""
    for body in objects.joining():
        yield ensure_object(ctx.api, DesiredObject(body))


def _manifests(ctx: UpgradeContext) -> Generator[Change, None, list[Manifest]]:
    """Render the static pods. A manifest with the same meaning is kept, so that its component is not restarted."""
    found = []
    for name, old in present(ctx):
        new = yield from rendered(ctx, name)
        keeps = static_pods.same_pod(old, new) or (name == ETCD and _is_newer_etcd(ctx, old, new))
        found.append(Manifest(name=name, old=old, new=old if keeps else new))
    return found


def present(ctx: UpgradeContext) -> Iterator[tuple[str, bytes]]:
    """Yield the static pods in kubeadm's order, with their present manifests; an empty one if there is none."""
    local = ctx.cluster.etcd.external is None and ctx.upgrades_etcd
    for name in (*([ETCD] if local else []), *CONTROL_PLANE):
        yield name, ctx.host.read(ctx.host.layout.manifest(name)) or b""


def rendered(ctx: UpgradeContext, name: str) -> Generator[Change, None, bytes]:
    """Yield the changes for a component that does not run as root, and return the new manifest.

    Raises DocumentError for patches with which no kubelet would run it.
    """
    pod = ctx.inputs.pod(name, more=static_pods.HAS_DATA if name == ETCD else static_pods.NO_FLAGS)
    hardened, _ = yield from static_pods.harden(name, pod, inputs=ctx.inputs, host=ctx.host)
    patched = ctx.patched(name, hardened)
    if problems := static_pods.unrunnable(patched):
        raise DocumentError(
            f"with its patches, {name} is no static pod that a kubelet can run",
            detail="\n".join(problems),
            remedy="fix the patches of this component; no static pod has been changed",
        )
    return yaml.dump(patched).encode()


def _is_newer_etcd(ctx: UpgradeContext, old: bytes, new: bytes) -> bool:
    """Whether the present etcd is newer than that of the release; then it is kept."""
    present, wanted = version_of(old), version_of(new)
    if not component_versions.is_older(wanted, present):
        return False
    ctx.say("upgrade/etcd", f"The desired etcd version {wanted} is older than the present one {present}: etcd is kept")
    return True


def version_of(manifest: bytes) -> str:
    """Return the version in the image tag of a static pod; '' if it has none."""
    pod = yaml.load(manifest, source="manifest") if manifest else None
    return component_versions.version_of(pod) if isinstance(pod, Mapping) else ""


def _replaced(ctx: UpgradeContext, found: Sequence[Manifest]) -> Iterator[Step]:
    files = [File(path=ctx.host.layout.manifest(one.name), content=one.new, mode=static_pods.MANIFEST_MODE) for one in found]
    kept = checkpoint.prepare(
        ctx.host,
        operation=OPERATION,
        goal=ctx.cluster.kubernetes_version,
        files=files,
        at=ctx.clock.now(),
        renewed=lambda: _certificates(ctx, found),
    )
    pods = _pods(ctx, kept)
    _say_equal(ctx, [one.name for one in found if one.name not in pods])
    with ExitStack() as stack:
        lease = None
        if pods.keys() & {ETCD, API_SERVER}:
            lease = stack.enter_context(turn(ctx))
        require_fit(ctx, pods)
        if kept.state is checkpoint.State.PREPARED and any(one.name == ETCD for one in found):
            etcd_backup.save(ctx)
        stack.enter_context(boot_recovery.enabled(ctx.host, ctx.bound.machine.program, needed=bool(kept.pairs), reporter=ctx.reporter))
        settle = partial(_settle, ctx, list(pods.values()))
        yield from carry_out(ctx.host, kept, _steps(ctx, kept, pods, lease=lease), reporter=ctx.reporter, topic=TOPIC, settle=settle)
    _back_up(ctx, kept, list(pods))


def turn(ctx: UpgradeContext) -> AbstractContextManager[OperationLease]:
    """Wait for this machine's turn, and hold the lease of operations during a block.

    Raises WaitTimeout; ComponentFailed with the reason if no API server answers and that of this machine does not stay up.
    """

    def comes_back() -> Waited:
        return ctx.components.until(
            lambda: health.unready(ctx.lease_api),
            saying="the API server to answer",
            blame=[name for name in (ETCD, API_SERVER) if ctx.host.state(ctx.host.layout.manifest(name)) is not None],
            within=ctx.timeouts.upgrade_manifests.seconds,
            at_most=0.5,
        )

    return operation_lease.held(
        ctx.lease_api,
        identity=ctx.node_name,
        clock=ctx.clock,
        waiter=ctx.waiter,
        reporter=ctx.reporter,
        unanswered=ctx.timeouts.kubernetes_api_call.seconds,
        comes_back=comes_back,
    )


def require_fit(ctx: UpgradeContext, names: Collection[str]) -> None:
    """Raise HostError if the cluster would not work without the components that are to be stopped."""
    if ETCD in names:
        gate.require_quorum(ctx)
    if API_SERVER in names:
        gate.require_another_server(ctx)


def require_spared(ctx: UpgradeContext, kept: checkpoint.Checkpoint) -> None:
    """Raise HostError if the cluster would not work without the components that taking an upgrade back stops, and that work now."""
    works = {
        ETCD: lambda: ctx.etcd.status(stacked_etcd.client_url(ctx.addresses)).serves,
        API_SERVER: lambda: health.unready(ctx.probe) is None,
    }
    require_fit(ctx, [name for name in _pods(ctx, kept) if name in works and works[name]()])


def _certificates(ctx: UpgradeContext, found: Sequence[Manifest]) -> checkpoint.Pairs:
    """Renew the certificates of components that change.

    Those of an etcd that does not change are renewed with the API server, without a restart. kubeadm restarts it.
    """
    changed = [one.name for one in found if one.differs]
    others = [one.name for one in found if one.name == ETCD and not one.differs and API_SERVER in changed]
    return certificates.renew(ctx, changed, same_keys=others)


def taken_back(ctx: UpgradeContext, kept: checkpoint.Checkpoint) -> list[Change]:
    """Restore the files that an upgrade has replaced.

    The end of the checkpoint is the last change, because the same command does nothing afterwards. Raises
    ComponentFailed or WaitTimeout if a component does not come up; calling it again continues.
    """
    for _ in checkpoint.complete_pairs(ctx.host, kept):
        pass
    boot_recovery.remove(ctx.host)
    pods = _pods(ctx, kept)
    version = pods[API_SERVER].old if API_SERVER in pods else ""
    if version:
        machine_record.follow(ctx.host, version=f"v{version}")
    return take_back(ctx.host, kept, _steps(ctx, kept, pods))


def _steps(
    ctx: UpgradeContext, kept: checkpoint.Checkpoint, pods: Mapping[str, _Pod], *, lease: OperationLease | None = None
) -> list[Replacement]:
    groups = [[pods[name] for name in group if name in pods] for group in _GROUPS]
    return [_step(ctx, kept, group, renews_etcd=ETCD not in pods, lease=lease) for group in groups if group]


def _pods(ctx: UpgradeContext, kept: checkpoint.Checkpoint) -> dict[str, _Pod]:
    """Return the static pods that a checkpoint changes, by their names."""
    changed = {swap.target for swap in kept.changed}
    return {name: _pod(ctx, kept, name) for group in _GROUPS for name in group if ctx.host.layout.manifest(name) in changed}


@dataclass(frozen=True, kw_only=True)
class _Pod:
    """A static pod that is replaced, its proof, and its versions before and afterwards."""

    name: str
    proof: StaticPodProof
    old: str
    new: str


def _pod(ctx: UpgradeContext, kept: checkpoint.Checkpoint, name: str) -> _Pod:
    swap = kept.swap(ctx.host.layout.manifest(name))
    old = b"" if swap.before == checkpoint.ABSENT else checkpoint.content(ctx.host, kept, swap, side="old")
    new = checkpoint.content(ctx.host, kept, swap, side="new")
    return _Pod(name=name, proof=proofs.of(ctx, name), old=version_of(old), new=version_of(new))


def _step(
    ctx: UpgradeContext, kept: checkpoint.Checkpoint, pods: Sequence[_Pod], *, renews_etcd: bool, lease: OperationLease | None
) -> Replacement:
    """Return the step of pods that are replaced at the same time.

    `renews_etcd`: etcd does not change, so its certificates are replaced with the API server. It reads them again at
    each handshake.
    """
    names = [pod.name for pod in pods]

    def before() -> Iterator[Step]:
        if lease is not None and {ETCD, API_SERVER} & {*names}:
            lease.require()
            require_fit(ctx, names)
        if ETCD in names:
            gate.give_leadership_away(ctx)
        for pod in pods:
            pod.proof.note()
            ctx.say(TOPIC, f'Preparing for "{pod.name}" upgrade')
            if pod.name == API_SERVER and renews_etcd:
                yield from certificates.write(ctx, kept, ETCD)
            yield from certificates.write(ctx, kept, pod.name)
            ctx.say(TOPIC, f'Replacing "{ctx.host.layout.manifest(pod.name)}"; the earlier manifest is kept in "{kept.directory}"')

    def prove() -> Iterator[Step]:
        for pod in pods:
            ctx.say(TOPIC, f"Waiting for the kubelet to restart {pod.name}, and for {pod.name} to answer")
            yield proofs.wait(ctx, pod.proof, pod.new)
            if pod.name in elections.ELECTING:
                for proven in pod.proof.proven:
                    elections.give_back(ctx, pod.name, proven.created)
            ctx.say(TOPIC, f'Component "{pod.name}" upgraded successfully!')

    def undo() -> Iterable[Step]:
        for pod in pods:
            pod.proof.note_replaced()
        return ()

    return Replacement(
        name=" and ".join(names),
        targets=tuple(ctx.host.layout.manifest(pod.name) for pod in pods),
        before=before,
        prove=prove,
        prove_old=lambda: [proofs.wait(ctx, pod.proof, pod.old, back=True) for pod in pods],
        undo=undo,
    )


def _settle(ctx: UpgradeContext, pods: Sequence[_Pod]) -> Iterator[Step]:
    """Renew the remaining kubeconfigs, and wait until the components have been running for a while.

    Raises ComponentFailed if one of them has ended in the meantime.
    """
    yield from certificates.renewed_administrators(ctx)
    yield from certificates.renewed_controllers(ctx)
    for pod in pods:
        yield proofs.wait(ctx, pod.proof, pod.new, steady=static_pod_proof.STEADY)
    for pod in pods:
        pod.proof.require_lasting()


def _say_equal(ctx: UpgradeContext, names: Iterable[str]) -> None:
    for name in names:
        ctx.say(TOPIC, f"Current and new manifests of {name} are equal, skipping upgrade")


def _back_up(ctx: UpgradeContext, kept: checkpoint.Checkpoint, names: Sequence[str]) -> None:
    """Copy the old manifests to kubeadm's directory of backups, because scripts expect them there."""
    directory = ctx.host.layout.kubernetes / "tmp" / f"kubeadm-backup-manifests-{ctx.bound.started:%Y-%m-%d-%H-%M-%S}"
    ctx.host.ensure(Directory(path=directory, mode=_PRIVATE))
    for name in names:
        swap = kept.swap(ctx.host.layout.manifest(name))
        if swap.before != checkpoint.ABSENT:
            content = checkpoint.content(ctx.host, kept, swap, side="old")
            ctx.host.ensure(File(path=directory / f"{name}.yaml", content=content, mode=static_pods.MANIFEST_MODE))
