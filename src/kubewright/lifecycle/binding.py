"""The seams of a run in its mode: the machine or an overlay of it, clients of the cluster, the waiter, and the reporter."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, cast

from kubewright.base.events import Reporter, SilentReporter
from kubewright.base.wait import InstantWaiter, Waiter
from kubewright.host.seam import Host
from kubewright.lifecycle.connections import Connections, Mode
from kubewright.lifecycle.deferred_manifests import DeferredManifests
from kubewright.lifecycle.machine import TargetMachine
from kubewright.pki.keys import KeyPool
from kubewright.workflow.phases import Node, Phases, Step, resolved
from kubewright.workflow.runner import InTreeOrder

if TYPE_CHECKING:
    from kubewright.apis.machine import Layout
    from kubewright.host.desired import File

from kubewright.lifecycle.operation import Bound, Configuration, Operation, Prepared, no_steps


@contextmanager
def bind(
    operation: Operation[Any, Configuration, Any],
    prepared: Prepared[Configuration],
    machine: TargetMachine,
    *,
    mode: Mode,
    reporter: Reporter,
    quiet: bool = False,
) -> Iterator[Bound]:
    """Yield the seams for a mode. At the end, connections are closed, and unfinished key generation is abandoned.

    With `quiet`, phases are not reported, but waits for the cluster are.
    """
    chosen = operation.phases.select(only=prepared.only, skip=prepared.skip)
    narrates = mode is Mode.NARRATE and operation.dry_run is not None
    with ExitStack() as stack:
        host = _host(operation, prepared, mode=mode, reporter=reporter)
        manifests = stack.enter_context(DeferredManifests(host))
        heard: Reporter = SilentReporter() if quiet else reporter
        if mode is Mode.APPLY and operation.start is not None and operation.start.order:
            heard = stack.enter_context(closing(_in_tree_order(operation.phases, chosen, heard)))
        connections = Connections(machine, mode=mode, reporter=heard, waits=reporter, narrates=narrates)
        stack.callback(connections.close)
        yield Bound(
            mode=mode,
            machine=machine,
            base=prepared.host,
            host=host,
            waiter=_waiter(machine, heard, mode=mode, narrates=narrates),
            reporter=heard,
            connections=connections,
            keys=stack.enter_context(KeyPool()),
            phases=frozenset(node.name for node in chosen),
            started=machine.clock.now(),
            manifests=manifests,
            preflight=functools.partial(_preflight, operation.preflight.get(mode, no_steps)),
            whole=not prepared.only,
            kubelet_makes=_kubelet_makes(operation, prepared.host.layout) if mode is Mode.PLAN else (),
        )


def _host(operation: Operation[Any, Any, Any], prepared: Prepared[Any], *, mode: Mode, reporter: Reporter) -> Host:
    if mode is Mode.APPLY:
        return prepared.host
    from kubewright.host.overlay import OverlayHost

    if mode is Mode.PLAN or operation.dry_run is None:
        return OverlayHost(prepared.host)
    from kubewright.lifecycle.dry_run import DryRunHost

    return DryRunHost(prepared.host, reporter=reporter, keeps=operation.dry_run.keeps(prepared.host.layout))


def _waiter(machine: TargetMachine, reporter: Reporter, *, mode: Mode, narrates: bool) -> Waiter:
    if mode is Mode.APPLY:
        return machine.waiter(reporter)
    if not narrates:
        return InstantWaiter()
    from kubewright.lifecycle import dry_run

    return dry_run.waiter(reporter)


def _kubelet_makes(operation: Operation[Any, Any, Any], layout: Layout) -> tuple[File, ...]:
    return cast("Callable[[Layout], tuple[File, ...]]", resolved(operation.kubelet_makes))(layout)


def _in_tree_order(phases: Phases[Any], chosen: Sequence[Node[Any]], inner: Reporter) -> InTreeOrder:
    """Return a reporter that reports phases in kubeadm's order."""
    required = frozenset(node.name for node in chosen if node.phase.run is not None)
    return InTreeOrder(inner, [node.name for node in phases.nodes], required=required)


def _preflight(target: Callable[[Any], Iterable[Step]] | str, context: Any) -> Iterable[Step]:
    """Run the phase's function for this mode, imported now if it is only named."""
    return cast("Callable[[Any], Iterable[Step]]", resolved(target))(context)
