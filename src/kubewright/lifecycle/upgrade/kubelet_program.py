"""`--kubelet FILE`: replaces the kubelet of this machine and verifies the new one; kubeadm leaves that to packages.

The program is replaced by one rename. If the Node does not become Ready with it, the earlier one is restored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.base import untyped
from kubewright.base.change import Action, Change
from kubewright.base.errors import APIError, HostError
from kubewright.base.versions import Version
from kubewright.host.desired import File, Service
from kubewright.kube.objects import NodeMarks, ensure_node_marks
from kubewright.kube.resources import NODE
from kubewright.lifecycle.steps import checkpoint, draining
from kubewright.lifecycle.steps.detected_cluster import API_SERVER, ETCD
from kubewright.lifecycle.steps.kubelet import FIX, SERVICE
from kubewright.lifecycle.steps.replacement import Replacement, carry_out, take_back
from kubewright.lifecycle.upgrade import kubelet_skew
from kubewright.lifecycle.upgrade.context import KUBELET_OPERATION
from kubewright.lifecycle.upgrade.planning import versions
from kubewright.workflow.phases import Step

if TYPE_CHECKING:
    from kubewright.host.seam import Host
    from kubewright.lifecycle.steps.checkpoint import Checkpoint
    from kubewright.lifecycle.upgrade.context import UpgradeContext

DRAINED: Final = "kubewright.upgrade/drained"
"""The annotation of a Node that kubewright has cordoned."""
DRAIN_WITHIN: Final = 300.0
_MODE: Final = 0o755


def replace(ctx: UpgradeContext) -> Iterator[Step]:
    """Replace the kubelet by the one that was given; with `drain`, drain the Node before and uncordon it afterwards.

    Raises HostError for a file that is not a kubelet, for one that is newer than an API server, and if the new one does
    not work.
    """
    given, place = PurePosixPath(ctx.request.kubelet), _place(ctx)
    version, content = kubelet_skew.reported_version(ctx, str(given)), ctx.host.read(given)
    kubelet_skew.require_no_older_server(ctx, version)
    begun = checkpoint.unfinished(checkpoint.every(ctx.host))  # a killed run may have replaced the file, and not started it
    if begun is None and content == ctx.host.read(place):
        _discard_ended(ctx.host)  # a run that was killed at its end has left it
        ctx.say(kubelet_skew.TOPIC, f"The kubelet is {version} already")
    else:
        restarts = ctx.control_plane and (begun is not None or kubelet_skew.reported_version(ctx, str(place)).line != version.line)
        with _exclusive(ctx) if restarts else nullcontext():
            if ctx.request.drain:
                yield from _drain(ctx)
            file = File(path=place, content=content or b"", mode=_MODE)
            kept = checkpoint.prepare(ctx.host, operation=KUBELET_OPERATION, goal=str(version), files=[file], at=ctx.clock.now())
            ctx.say(kubelet_skew.TOPIC, f"Replacing {place} by the kubelet {version}")
            try:
                yield from carry_out(ctx.host, kept, [_step(ctx, kept, new=version)], reporter=ctx.reporter, topic=kubelet_skew.TOPIC)
            finally:
                _discard_ended(ctx.host)
        ctx.say(kubelet_skew.TOPIC, f"The kubelet runs {version}")
    yield from _undrain(ctx)


@contextmanager
def _exclusive(ctx: UpgradeContext) -> Iterator[None]:
    """Hold the lease of operations while the kubelet starts all static pods again, as one of another minor release does.

    Raises HostError if the cluster would not work without etcd and the API server of this machine (`gate`).
    """
    from kubewright.lifecycle.upgrade.control_plane import phase  # workers have none

    with phase.turn(ctx):
        phase.require_fit(ctx, [name for name in (ETCD, API_SERVER) if ctx.host.state(ctx.host.layout.manifest(name)) is not None])
        yield


def taken_back(ctx: UpgradeContext, kept: Checkpoint) -> list[Change]:
    """Restore the earlier kubelet. Raises ComponentFailed or WaitTimeout if it does not work."""
    changes = take_back(ctx.host, kept, [_step(ctx, kept)])
    _discard_ended(ctx.host)
    return changes


def _discard_ended(host: Host) -> None:
    """Remove the checkpoints of replacements that have ended: each contains two programs of many megabytes."""
    for one in checkpoint.every(host):
        if one.operation == KUBELET_OPERATION and one.state not in checkpoint.OPEN:
            checkpoint.discard(host, one)


def _place(ctx: UpgradeContext) -> PurePosixPath:
    found = ctx.host.programs.path(SERVICE)
    if found is None:
        raise HostError("this machine has no kubelet that could be replaced", remedy="install the kubelet's package first")
    return found


def _step(ctx: UpgradeContext, kept: Checkpoint, *, new: Version | None = None) -> Replacement:
    """Return the replacement; `new` is the version of the given program, which a plan does not put in its place."""
    place = kept.swaps[0].target

    def present() -> Version:
        return kubelet_skew.reported_version(ctx, str(place))

    return Replacement(
        name=SERVICE, targets=(place,), prove=lambda: _proved(ctx, new or present()), prove_old=lambda: _proved(ctx, present())
    )


def _proved(ctx: UpgradeContext, wanted: Version) -> Iterator[Step]:
    """Restart the kubelet, and wait until the Node is Ready with its version, and until its static pods run."""
    yield ctx.host.ensure(Service(name=SERVICE, restart=True))
    within = ctx.timeouts.kubelet_health_check.seconds
    yield ctx.components.until(
        lambda: _fault(ctx, wanted), saying=f"the kubelet to run {wanted}", blame=(), within=within, at_most=0.5, remedy=FIX
    )
    ctx.prove("version of the kubelet of a Ready Node", expected=str(wanted), found=str(wanted))
    if ctx.control_plane:
        from kubewright.lifecycle.upgrade import restarted_pods  # workers have none

        yield from restarted_pods.wait(ctx)


def _fault(ctx: UpgradeContext, version: Version) -> str | None:
    try:
        node = ctx.client.get(NODE, ctx.node_name)
    except APIError as error:
        return str(error)
    reported = versions.kubelet_version(node)
    if reported != str(version):
        return f"the Node reports {reported or 'no version'}, not {version}"
    conditions = untyped.mappings(untyped.mapping(node.get("status")).get("conditions"))
    ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
    return None if ready else "the Node is not Ready"


def _drain(ctx: UpgradeContext) -> Iterator[Step]:
    """Drain the Node, and annotate it unless somebody else has cordoned it already."""
    node = ctx.api.get(NODE, ctx.node_name)
    if not untyped.mapping(node.get("spec")).get("unschedulable"):
        yield ensure_node_marks(ctx.api, NodeMarks(name=ctx.node_name, annotations={DRAINED: "true"}))
    yield from draining.drain(ctx.api, ctx.node_name, waiter=ctx.waiter, within=DRAIN_WITHIN)


def _undrain(ctx: UpgradeContext) -> Iterator[Step]:
    """Uncordon the Node if this run or an earlier one has cordoned it."""
    if DRAINED not in untyped.mapping(ctx.api.get(NODE, ctx.node_name)["metadata"].get("annotations")):
        return
    body = {"metadata": {"annotations": {DRAINED: None}}, "spec": {"unschedulable": None}}
    ctx.api.patch(NODE, ctx.node_name, body, type="merge")
    yield Change(target=f"node {ctx.node_name}", action=Action.UPDATE, reason="takes pods again")
