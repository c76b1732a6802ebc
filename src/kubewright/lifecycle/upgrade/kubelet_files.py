"""Replaces the files of the kubelet that an upgrade changes, and keeps the earlier ones in a checkpoint for `upgrade rollback`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kubewright.base.change import Change
from kubewright.host.desired import File, Service
from kubewright.lifecycle.steps import checkpoint
from kubewright.lifecycle.steps.kubelet import FIX, SERVICE, health_server
from kubewright.lifecycle.steps.replacement import Proof, Replacement, carry_out, take_back
from kubewright.lifecycle.upgrade.context import KUBELET_FILES
from kubewright.workflow.phases import Step

if TYPE_CHECKING:
    from kubewright.lifecycle.steps.checkpoint import Checkpoint
    from kubewright.lifecycle.upgrade.context import UpgradeContext

_TOPIC: Final = "upgrade/kubelet-config"


def replaced(ctx: UpgradeContext, files: Sequence[File]) -> Iterator[Step]:
    """Write the files. The kubelet is restarted for another kubeconfig only; the rest is for the release that is installed afterwards.

    What a killed run has begun is completed first. Raises HostError if another operation is in progress.
    """
    begun = checkpoint.unfinished(checkpoint.every(ctx.host))
    if begun is not None and begun.operation == KUBELET_FILES:
        yield from _carried_out(ctx, begun)
    changed = [file for file in files if ctx.host.read(file.path) != file.content]
    if changed:
        goal = ctx.cluster.kubernetes_version
        kept = checkpoint.prepare(ctx.host, operation=KUBELET_FILES, goal=goal, files=changed, at=ctx.clock.now())
        yield from _carried_out(ctx, kept)
    for file in files:
        yield ctx.host.ensure(file)  # the mode of a file whose content stays


def taken_back(ctx: UpgradeContext, kept: Checkpoint) -> list[Change]:
    """Restore the earlier files, and let the kubelet run with them. Raises WaitTimeout if it is not healthy then."""
    return take_back(ctx.host, kept, [_step(kept, tuple, lambda: _proved(ctx))])


def _carried_out(ctx: UpgradeContext, kept: Checkpoint) -> Iterator[Step]:
    of_kubeconfig = ctx.host.layout.kubeconfig("kubelet") in {swap.target for swap in kept.changed}

    def read() -> Iterator[Step]:
        if of_kubeconfig:
            yield ctx.host.ensure(Service(name=SERVICE, restart=True))

    yield from carry_out(ctx.host, kept, [_step(kept, read, read)], reporter=ctx.reporter, topic=_TOPIC)


def _step(kept: Checkpoint, prove: Proof, prove_old: Proof) -> Replacement:
    return Replacement(
        name="the kubelet's configuration", targets=tuple(swap.target for swap in kept.swaps), prove=prove, prove_old=prove_old
    )


def _proved(ctx: UpgradeContext) -> Iterator[Step]:
    """Restart the kubelet, which may have read the newer files, and wait until it is healthy."""
    yield ctx.host.ensure(Service(name=SERVICE, restart=True))
    server = health_server(ctx.host)
    if not server:
        return
    within = ctx.timeouts.kubelet_health_check.seconds
    healthy = ctx.health_endpoint(server, "/healthz")
    yield ctx.components.until(healthy, saying="the kubelet to be healthy", blame=(), within=within, at_most=0.5, remedy=FIX)
    ctx.prove("health of the kubelet", expected="healthy", found="healthy")
