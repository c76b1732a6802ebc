"""`node leave`: remove this machine from its cluster, and free its name.

The machine is cleaned by the same steps as in `reset`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.kubeadm.loading import load_reset
from kubewright.apis.node_join_requests import LEAVE_ANSWER, LEAVE_PROOF, LEAVING_LABEL
from kubewright.base.change import Action, Change
from kubewright.base.errors import APIError, HostError, NotFound, Unreachable
from kubewright.base.events import Line, Waited
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass, replace
from kubewright.enrollment.node.joined_machine import JoinedMachine
from kubewright.enrollment.node.request import NAME, runtime_of
from kubewright.enrollment.protocol import leave_proofs
from kubewright.host.desired import Service
from kubewright.host.seam import Host
from kubewright.kube import core
from kubewright.kube.core import Object
from kubewright.kube.objects import NodeMarks, ensure_node_marks
from kubewright.kube.resources import NODE
from kubewright.lifecycle import adoption, machine_record
from kubewright.lifecycle.machine import TargetMachine
from kubewright.lifecycle.operation import Bound, Operation, Prepared
from kubewright.lifecycle.steps import cleanup, draining
from kubewright.lifecycle.steps.cleanup import Cleanup
from kubewright.lifecycle.steps.detected_cluster import DetectedCluster
from kubewright.lifecycle.steps.inventory import CleanupOptions, Inventory
from kubewright.workflow.phases import Phase, Phases

_SERVICE: Final = "kubelet"
_WITHIN: Final = 60.0
_LOOK, _LONGEST_LOOK = 0.1, 1.0
_BY_HAND: Final = "leave with `--skip-phases depart`, delete the Node, and free the name: kubewright hub requests forget"
TOPIC: Final = "node-leave"


class LeaveRefused(APIError):
    """The hub refuses to let this machine leave. The message is the hub's."""


@dataclass(frozen=True, kw_only=True)
class NodeLeaveOptions:
    """One call of `node leave` or of one of its phases. `drain` is how many seconds eviction may take, None to evict no pods."""

    drain: float | None = None
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NodeLeaveContext(JoinedMachine):
    """One run. `cleanup` is the context of the last phase, `within` how many seconds eviction may take, None to evict no pods."""

    cleanup: Cleanup
    within: float | None

    def say(self, text: str) -> None:
        """Report one line of progress."""
        self.bound.reporter.emit(Line(topic=TOPIC, text=text))


def drain(ctx: NodeLeaveContext) -> Iterator[Change | Waited]:
    """Evict the pods of this node."""
    ctx.say(f"Evicting the pods of the node {ctx.node}")
    with _asking():
        yield from draining.drain(ctx.api, ctx.node, waiter=ctx.bound.waiter, within=ctx.within or 0.0)


@contextmanager
def _asking() -> Iterator[None]:
    """Add a hint for an unreachable cluster.

    Once the hub removes this machine's peer, an API server behind the VPN is out of reach.
    """
    try:
        yield
    except Unreachable as error:
        raise APIError(
            str(error),
            remedy="try again; if the hub has already removed this machine, or no longer exists, leave with `--skip-phases drain,depart`, and"
            " make sure that its Node is deleted and its name is free: kubewright hub requests forget",
        ) from error


def only_drained(ctx: NodeLeaveContext) -> str | None:
    """Skip the phase unless pods are to be evicted."""
    return only_joined(ctx) if ctx.within is not None else "--drain was not given"


def stop(ctx: NodeLeaveContext) -> Iterator[Change]:
    """Stop the kubelet, which would otherwise register its Node again."""
    if ctx.bound.host.service(_SERVICE) is not None:
        ctx.say("Stopping the kubelet")
        yield ctx.bound.host.ensure(Service(name=_SERVICE, running=False))


def depart(ctx: NodeLeaveContext) -> Iterator[Change | Waited]:
    """Ask the hub to remove this machine, and wait until it has. Raises LeaveRefused, and WaitTimeout if no hub answers.

    The kubeconfig is removed right after that: without it, a repetition of an interrupted run does not ask again.
    """
    with _asking():
        yield from _marked_as_leaving(ctx)
    ctx.say(f"Asked the hub to remove the node {ctx.node}")
    yield ctx.bound.waiter.until(
        lambda: _remains(ctx),
        within=_WITHIN,
        saying=f"the hub to remove the node {ctx.node}",
        every=_LOOK,
        at_most=_LONGEST_LOOK,
        remedy=f"check that the hub is running; or {_BY_HAND}",
    )
    yield ctx.bound.host.remove(ctx.kubeconfig)


def _marked_as_leaving(ctx: NodeLeaveContext) -> Iterator[Change]:
    """Mark the Node of this machine as leaving, with a proof.

    A missing Node is created, because the hub learns of the request only through it. That a Node is missing says
    nothing about its name, which stays taken until the hub frees it. Hubs of versions without proofs read the label.
    """
    try:
        found = ctx.api.get(NODE, ctx.node)
    except NotFound:
        found = ctx.api.create(_blank(ctx.node))
        yield Change(target=f"node {ctx.node}", action=Action.CREATE, reason="it did not exist; the hub will free its name and delete it")
    proof = leave_proofs.prove(ctx.node, str(core.metadata(found).get("uid") or ""), ctx.given_pair)
    annotations = {LEAVE_PROOF: proof.text, LEAVE_ANSWER: None}
    yield ensure_node_marks(ctx.api, NodeMarks(name=ctx.node, labels={LEAVING_LABEL: "true"}, annotations=annotations))


def _blank(node: str) -> Object:
    return {"apiVersion": "v1", "kind": NODE.kind, "metadata": {"name": node}, "spec": {"unschedulable": True}}


def _remains(ctx: NodeLeaveContext) -> str | None:
    try:
        found = ctx.api.get(NODE, ctx.node)
    except NotFound:
        return None
    except APIError as error:
        return str(error)
    refused = (core.metadata(found).get("annotations") or {}).get(LEAVE_ANSWER)
    if refused:
        raise LeaveRefused(f"the hub does not let {ctx.node} leave: {quoted(str(refused))}", remedy=_BY_HAND)
    return "its Node still exists"


def only_joined(ctx: NodeLeaveContext) -> str | None:
    """Skip a phase on a machine that has no kubeconfig from a hub."""
    return None if ctx.bound.base.state(ctx.kubeconfig) is not None else f"{ctx.kubeconfig} does not exist"


def clean(ctx: NodeLeaveContext) -> Iterable[Change]:
    """Remove pods, keys, files and units."""
    return cleanup.run(ctx.cleanup)


PHASES: Final[Phases[NodeLeaveContext]] = Phases(
    Phase("drain", "Evict the pods of this node", run=drain, condition=only_drained, flags="drain drain-timeout"),
    Phase("kubelet-stop", "Stop the kubelet", run=stop),
    Phase("depart", "Ask the hub to free the name and delete the Node", run=depart, condition=only_joined),
    Phase("cleanup-node", "Remove pods, keys and files from this machine", run=clean),
)


@dataclass(frozen=True, kw_only=True)
class NodeLeave:
    """The observed state of the machine. `default_pki` is the default directory of certificates."""

    detected: DetectedCluster
    default_pki: PurePosixPath


def _require_of_a_hub(host: Host) -> None:
    """Require that this is neither a control plane nor another node. Raises HostError."""
    record = None
    with suppress(HostError):  # a damaged kubeconfig must not prevent leaving
        record = machine_record.load(host)
    if host.state(host.layout.oneinfra) is not None or (record is not None and record.workflow == NAME):
        return
    if record is not None or adoption.traces(host):
        raise HostError(
            "this machine has not joined through a hub",
            detail="it became part of a cluster in another way",
            remedy="`kubewright reset` removes it from that cluster; it asks for confirmation",
        )


def configure(request: NodeLeaveOptions, machine: TargetMachine) -> Prepared[NodeLeave]:
    """Find out what is on the machine.

    Raises HostError for a machine that other tools made, and, as `reset` does, if it is unclear which of several
    container runtimes is the node's.
    """
    here = machine.at(machine.layout)
    _require_of_a_hub(here)
    detected = DetectedCluster(here)
    socket = runtime_of(here) or load_reset((), detected=here.facts.detected).configuration.cri_socket
    return Prepared(
        configuration=NodeLeave(detected=detected, default_pki=here.layout.pki),
        host=machine.at(replace(detected.layout, cri_socket=socket or here.layout.cri_socket)),
        warnings=tuple(detected.warnings),
        only=request.only,
        skip=request.skip,
    )


def context(request: NodeLeaveOptions, leave: NodeLeave, bound: Bound) -> NodeLeaveContext:
    """Make the context of the phases."""
    options = CleanupOptions(whole_pki=bound.host.layout.pki == leave.default_pki)
    cleaning = Cleanup(
        host=bound.host,
        clock=bound.clock,
        reporter=bound.reporter,
        inventory=Inventory(bound.host, detected=leave.detected, options=options, default_pki=leave.default_pki),
        report_step=functools.partial(bound.report_step, topic=TOPIC),
    )
    return NodeLeaveContext(bound=bound, cleanup=cleaning, within=request.drain)


NODE_LEAVE: Final = Operation(
    name="node leave",
    phases=PHASES,
    configure=configure,
    context=context,
    failures=lambda ctx: ctx.cleanup.failures,
    incomplete="some parts of the node could not be removed",
)
