"""`--kubelet FILE`: replaces the kubelet of this machine and verifies the new one; kubeadm leaves that to packages.

The program is replaced by one rename. If the Node does not become Ready with it, the earlier one is restored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.base.change import Action, Change
from kubewright.base.errors import APIError, HostError, WaitTimeout
from kubewright.base.patterns import Pattern
from kubewright.base.versions import Version
from kubewright.host.desired import File, Service
from kubewright.kube.objects import NodeMarks, ensure_node_marks
from kubewright.kube.resources import NODE
from kubewright.kube.server_info import server_version
from kubewright.lifecycle.steps import checkpoint, component_versions, draining
from kubewright.lifecycle.steps.detected_cluster import API_SERVER, ETCD, read_static_pod
from kubewright.lifecycle.steps.kubelet import FIX, SERVICE
from kubewright.lifecycle.steps.replacement import Replacement, carry_out, take_back
from kubewright.lifecycle.upgrade.context import KUBELET_OPERATION
from kubewright.lifecycle.upgrade.planning import versions
from kubewright.lifecycle.upgrade.request import APPLY
from kubewright.workflow.phases import Step

if TYPE_CHECKING:
    from kubewright.host.seam import Host
    from kubewright.lifecycle.steps.checkpoint import Checkpoint
    from kubewright.lifecycle.upgrade.context import UpgradeContext

DRAINED: Final = "kubewright.upgrade/drained"
"""The annotation of a Node that kubewright has cordoned."""
DRAIN_WITHIN: Final = 300.0
_TOPIC: Final = "upgrade/kubelet"
_MODE: Final = 0o755
_VERSION: Final = Pattern(r"v\d+\.\d+\.\d+\S*")


def replace(ctx: UpgradeContext) -> Iterator[Step]:
    """Replace the kubelet by the one that was given; with `drain`, drain the Node before and uncordon it afterwards.

    Raises HostError for a file that is not a kubelet, for one that is newer than an API server, and if the new one does
    not work.
    """
    given, place = PurePosixPath(ctx.request.kubelet), _place(ctx)
    version, content = _version(ctx, str(given)), ctx.host.read(given)
    _require_last(ctx, version)
    begun = checkpoint.unfinished(checkpoint.every(ctx.host))  # a killed run may have replaced the file, and not started it
    if begun is None and content == ctx.host.read(place):
        _discard_ended(ctx.host)  # a run that was killed at its end has left it
        ctx.say(_TOPIC, f"The kubelet is {version} already")
    else:
        restarts = ctx.control_plane and (begun is not None or _version(ctx, str(place)).line != version.line)
        with _exclusive(ctx) if restarts else nullcontext():
            if ctx.request.drain:
                yield from _drain(ctx)
            file = File(path=place, content=content or b"", mode=_MODE)
            kept = checkpoint.prepare(ctx.host, operation=KUBELET_OPERATION, goal=str(version), files=[file], at=ctx.clock.now())
            ctx.say(_TOPIC, f"Replacing {place} by the kubelet {version}")
            try:
                yield from carry_out(ctx.host, kept, [_step(ctx, kept, new=version)], reporter=ctx.reporter, topic=_TOPIC)
            finally:
                _discard_ended(ctx.host)
        ctx.say(_TOPIC, f"The kubelet runs {version}")
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


def _version(ctx: UpgradeContext, program: str) -> Version:
    found = _VERSION.search(ctx.host.programs.version(program))
    if found is None:
        raise HostError(f"{program} does not report its version", remedy="pass the program `kubelet` of the version to upgrade to")
    return Version.parse(found[0])


def _require_last(ctx: UpgradeContext, version: Version) -> None:
    """Raise HostError for a kubelet that is newer than an API server; that of this machine is known from its manifest.

    `upgrade node` waits for the others, because their machines may be upgraded at the same time.
    """
    own = read_static_pod(ctx.host, ctx.host.layout.manifest(API_SERVER))
    if own is not None and component_versions.is_older(present := component_versions.version_of(own.body), str(version)):
        raise _too_new(version, f"v{present}", "this machine")
    if ctx.request.section != APPLY and (older := _older_servers(ctx, version)):
        ctx.say(_TOPIC, f"Waiting until the API servers that are older than the kubelet {version} are upgraded: {_shown(older)}")
        with suppress(WaitTimeout):
            ctx.waiter.until(
                lambda: _still_older(ctx, version),
                within=ctx.timeouts.upgrade_manifests.seconds,
                saying="the other API servers to be upgraded",
                at_most=2.0,
            )
    for text, nodes in _older_servers(ctx, version).items():
        raise _too_new(version, text, ", ".join(nodes))


def _older_servers(ctx: UpgradeContext, version: Version) -> dict[str, list[str]]:
    """Return where other API servers of each older version are. Raises APIError."""
    return {text: nodes for text, nodes in _other_servers(ctx).items() if nodes and component_versions.is_older(text, str(version))}


def _still_older(ctx: UpgradeContext, version: Version) -> str | None:
    try:
        return _shown(_older_servers(ctx, version)) or None
    except APIError as error:  # the one that answers may be restarted
        return str(error)


def _shown(servers: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"{text} of {', '.join(nodes)}" for text, nodes in servers.items())


def _other_servers(ctx: UpgradeContext) -> dict[str, list[str]]:
    """Return where the other API servers of each version are.

    A kubelet may list neither Nodes nor the pods of others (kube-apiserver v1.36: auth/authorizer/node), so a worker
    asks only the API server that answers it.
    """
    if not ctx.control_plane:
        return {str(server_version(ctx.client)): ["the cluster"]}
    found = versions.static_pods(ctx.api, API_SERVER)
    return {text: [node for node in nodes if node != ctx.node_name] for text, nodes in found.items()}


def _too_new(version: Version, server: str, where: str) -> HostError:
    return HostError(f"the kubelet {version} is newer than the API server {server} of {where}", remedy="upgrade all control planes first")


def _step(ctx: UpgradeContext, kept: Checkpoint, *, new: Version | None = None) -> Replacement:
    """Return the replacement; `new` is the version of the given program, which a plan does not put in its place."""
    place = kept.swaps[0].target

    def present() -> Version:
        return _version(ctx, str(place))

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
        status = ctx.client.get(NODE, ctx.node_name).get("status") or {}
    except APIError as error:
        return str(error)
    reported = (status.get("nodeInfo") or {}).get("kubeletVersion", "")
    if reported != str(version):
        return f"the Node reports {reported or 'no version'}, not {version}"
    ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in status.get("conditions") or ())
    return None if ready else "the Node is not Ready"


def _drain(ctx: UpgradeContext) -> Iterator[Step]:
    """Drain the Node, and annotate it unless somebody else has cordoned it already."""
    node = ctx.api.get(NODE, ctx.node_name)
    if not (node.get("spec") or {}).get("unschedulable"):
        yield ensure_node_marks(ctx.api, NodeMarks(name=ctx.node_name, annotations={DRAINED: "true"}))
    yield from draining.drain(ctx.api, ctx.node_name, waiter=ctx.waiter, within=DRAIN_WITHIN)


def _undrain(ctx: UpgradeContext) -> Iterator[Step]:
    """Uncordon the Node if this run or an earlier one has cordoned it."""
    notes = ctx.api.get(NODE, ctx.node_name)["metadata"].get("annotations") or {}
    if DRAINED not in notes:
        return
    body = {"metadata": {"annotations": {DRAINED: None}}, "spec": {"unschedulable": None}}
    ctx.api.patch(NODE, ctx.node_name, body, type="merge")
    yield Change(target=f"node {ctx.node_name}", action=Action.UPDATE, reason="takes pods again")
