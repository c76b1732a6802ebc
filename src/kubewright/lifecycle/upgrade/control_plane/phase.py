"""The phase `control-plane`: the static pods of this machine are replaced one by one, each is proved, and all go back where one fails.

kubeadm v1.36 (phases/upgrade/staticpods.go) has the same order, the same certificates and the same directory of backups.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

from kubewright.base import yaml
from kubewright.base.change import Change
from kubewright.base.records import dataclass
from kubewright.host.desired import Directory, File
from kubewright.kube.objects import DesiredObject, ensure_object
from kubewright.lifecycle import machine_record
from kubewright.lifecycle.steps import boot_recovery, checkpoint, operation_lease, running, static_pods
from kubewright.lifecycle.steps.detected_cluster import API_SERVER, ETCD
from kubewright.lifecycle.steps.operation_lease import OperationLease
from kubewright.lifecycle.steps.replacement import Replacement, carry_out, take_back
from kubewright.lifecycle.steps.running import StaticPodProof
from kubewright.lifecycle.upgrade.control_plane import etcd_backup, gate, leaves, proofs
from kubewright.lifecycle.upgrade.planning.versions import CONTROL_PLANE
from kubewright.manifests import objects
from kubewright.workflow.phases import Step

if TYPE_CHECKING:
    from kubewright.lifecycle.upgrade.context import UpgradeContext

TOPIC: Final = "upgrade/staticpods"
OPERATION: Final = "upgrade"
"""What the checkpoint calls it, for `apply` and `node` alike."""
_GROUPS: Final = ((ETCD,), (API_SERVER,), CONTROL_PLANE[1:])
"""What is replaced at the same time: the last two do not need each other."""
_PRIVATE: Final = 0o700


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A static pod of this machine as it is and as it shall be. `new` is what is there where nothing changes."""

    name: str
    old: bytes
    new: bytes

    @property
    def differs(self) -> bool:
        """Whether the pod changes."""
        return self.old != self.new


def upgrade(ctx: UpgradeContext) -> Iterator[Step]:
    """Replace the manifests that differ, in kubeadm's order. Raises HostError where one failed: the machine is then back in its earlier state."""
    version = ctx.cluster.kubernetes_version
    within = ctx.timeouts.upgrade_manifests
    ctx.say("upgrade/control-plane", f'Upgrading the static pods of this control plane to version "{version}" (timeout: {within})...')
    yield from _rights(ctx)
    found = yield from _manifests(ctx)
    if any(one.differs for one in found) or checkpoint.unfinished(checkpoint.every(ctx.host)) is not None:
        yield from _replaced(ctx, found)
    else:
        _say_equal(ctx, [one.name for one in found])
    _follow(ctx)
    ctx.say("upgrade/control-plane", "The control plane of this machine has been upgraded")


def _rights(ctx: UpgradeContext) -> Iterable[Change]:
    """Add the rights that components of the new version need before the first of them starts; none is taken away."""
    for body in objects.joining():
        yield ensure_object(ctx.api, DesiredObject(body))


def _manifests(ctx: UpgradeContext) -> Generator[Change, None, list[Manifest]]:
    """Render the static pods. What means the same stays as it is, so that no component restarts for nothing."""
    found = []
    for name, old in present(ctx):
        new = yield from rendered(ctx, name)
        keeps = static_pods.same_pod(old, new) or (name == ETCD and _is_newer_etcd(ctx, old, new))
        found.append(Manifest(name=name, old=old, new=old if keeps else new))
    return found


def present(ctx: UpgradeContext) -> Iterator[tuple[str, bytes]]:
    """Yield the static pods that a run looks at, in kubeadm's order, with their manifests; an empty one where there is none."""
    local = ctx.cluster.etcd.external is None and ctx.upgrades_etcd
    for name in (*([ETCD] if local else []), *CONTROL_PLANE):
        yield name, ctx.host.read(ctx.host.layout.manifest(name)) or b""


def rendered(ctx: UpgradeContext, name: str) -> Generator[Change, None, bytes]:
    """Yield what is done for a component that does not run as root, and return the manifest that a run writes."""
    pod = ctx.inputs.pod(name, more=static_pods.HAS_DATA if name == ETCD else static_pods.NO_FLAGS)
    hardened, _ = yield from static_pods.harden(name, pod, inputs=ctx.inputs, host=ctx.host)
    return yaml.dump(ctx.patched(name, hardened)).encode()


def _is_newer_etcd(ctx: UpgradeContext, old: bytes, new: bytes) -> bool:
    """Whether etcd has a newer version than the release to upgrade to: it is left alone."""
    present, wanted = version_of(old), version_of(new)
    if not running.is_older(wanted, present):
        return False
    ctx.say("upgrade/etcd", f"The desired etcd version {wanted} is older than the present one {present}: etcd is left as it is")
    return True


def version_of(manifest: bytes) -> str:
    """Return the version that the image of a static pod has by its tag; '' where it does not tell."""
    pod = yaml.load(manifest, source="manifest") if manifest else None
    return running.version_of(pod) if isinstance(pod, Mapping) else ""


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
            lease = stack.enter_context(
                operation_lease.held(ctx.client, identity=ctx.node_name, clock=ctx.clock, waiter=ctx.waiter, reporter=ctx.reporter)
            )
        _require_fit(ctx, pods)
        if kept.state is checkpoint.State.PREPARED and any(one.name == ETCD for one in found):
            etcd_backup.save(ctx)
        stack.enter_context(boot_recovery.enabled(ctx.host, ctx.bound.machine.program, needed=bool(kept.pairs), reporter=ctx.reporter))
        settle = partial(_settle, ctx, list(pods.values()))
        yield from carry_out(ctx.host, kept, _steps(ctx, kept, pods, lease=lease), reporter=ctx.reporter, topic=TOPIC, settle=settle)
    _back_up(ctx, kept, list(pods))


def _require_fit(ctx: UpgradeContext, names: Collection[str]) -> None:
    """Raise HostError where the cluster could not go on without components that are stopped."""
    if ETCD in names:
        gate.require_quorum(ctx)
    if API_SERVER in names:
        gate.require_another_server(ctx)


def _certificates(ctx: UpgradeContext, found: Sequence[Manifest]) -> checkpoint.Pairs:
    """Renew the certificates of components that change. With the API server go those of an etcd that does not restart (kubeadm restarts it)."""
    changed = [one.name for one in found if one.differs]
    others = [one.name for one in found if one.name == ETCD and not one.differs and API_SERVER in changed]
    return leaves.made(ctx, changed, same_keys=others)


def taken_back(ctx: UpgradeContext, kept: checkpoint.Checkpoint) -> list[Change]:
    """Put back what an upgrade has replaced, in reverse order. Raises what a proof raises; the same call goes on then."""
    for _ in checkpoint.complete_pairs(ctx.host, kept):
        pass
    pods = _pods(ctx, kept)
    changes = take_back(ctx.host, kept, _steps(ctx, kept, pods))
    boot_recovery.remove_unneeded(ctx.host)
    version = pods[API_SERVER].old if API_SERVER in pods else ""
    if version:
        machine_record.follow(ctx.host, version=f"v{version}")
    return changes


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
    """A static pod that is replaced, what proves it, and the versions that it has before and afterwards."""

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
    """Return the step of pods that are replaced at the same time. `renews_etcd`: with the API server go etcd's certificates, which has no step.

    It reads them again at each handshake.
    """
    names = [pod.name for pod in pods]

    def before() -> Iterator[Step]:
        if lease is not None and {ETCD, API_SERVER} & {*names}:
            lease.require()
            _require_fit(ctx, names)
        if ETCD in names:
            gate.give_leadership_away(ctx)
        for pod in pods:
            pod.proof.note()
            ctx.say(TOPIC, f'Preparing for "{pod.name}" upgrade')
            if pod.name == API_SERVER and renews_etcd:
                yield from leaves.placed(ctx, kept, ETCD)
            yield from leaves.placed(ctx, kept, pod.name)
            ctx.say(TOPIC, f'Replacing "{ctx.host.layout.manifest(pod.name)}"; the earlier manifest is kept in "{kept.directory}"')

    def prove() -> Iterator[Step]:
        for pod in pods:
            ctx.say(TOPIC, f"Waiting for the kubelet to restart {pod.name}, and for {pod.name} to answer")
            yield proofs.wait(ctx, pod.proof, pod.new)
            ctx.say(TOPIC, f'Component "{pod.name}" upgraded successfully!')

    return Replacement(
        name=" and ".join(names),
        targets=tuple(ctx.host.layout.manifest(pod.name) for pod in pods),
        before=before,
        prove=prove,
        prove_old=lambda: [proofs.wait(ctx, pod.proof, pod.old, back=True) for pod in pods],
    )


def _settle(ctx: UpgradeContext, pods: Sequence[_Pod]) -> Iterator[Step]:
    """Renew what administrators use while the components show that they stay up."""
    yield from leaves.renewed_administrators(ctx)
    for pod in pods:
        yield proofs.wait(ctx, pod.proof, pod.new, steady=running.STEADY)


def _say_equal(ctx: UpgradeContext, names: Iterable[str]) -> None:
    for name in names:
        ctx.say(TOPIC, f"Current and new manifests of {name} are equal, skipping upgrade")


def _back_up(ctx: UpgradeContext, kept: checkpoint.Checkpoint, names: Sequence[str]) -> None:
    """Put the old manifests where kubeadm has them: scripts look there."""
    directory = ctx.host.layout.kubernetes / "tmp" / f"kubeadm-backup-manifests-{ctx.bound.started:%Y-%m-%d-%H-%M-%S}"
    ctx.host.ensure(Directory(path=directory, mode=_PRIVATE))
    for name in names:
        swap = kept.swap(ctx.host.layout.manifest(name))
        if swap.before != checkpoint.ABSENT:
            content = checkpoint.content(ctx.host, kept, swap, side="old")
            ctx.host.ensure(File(path=directory / f"{name}.yaml", content=content, mode=static_pods.MANIFEST_MODE))


def _follow(ctx: UpgradeContext) -> None:
    """Let the machine's record say what the machine is made of now."""
    machine_record.follow(ctx.host, version=ctx.cluster.kubernetes_version)
