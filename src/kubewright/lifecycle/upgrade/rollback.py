"""The operation `upgrade rollback`: restores the files that the last upgrade of this machine has replaced.

It needs neither other machines nor a running API server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kubewright.apis.kubeadm.node_types import UpgradeConfiguration
from kubewright.base.change import Change
from kubewright.base.errors import HostError, UsageError
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.operation import Bound, Operation, Prepared
from kubewright.lifecycle.steps import checkpoint
from kubewright.lifecycle.steps.checkpoint import Checkpoint, State
from kubewright.lifecycle.upgrade import kubelet_program
from kubewright.lifecycle.upgrade.context import KUBELET_OPERATION, UpgradeContext, UpgradeTask
from kubewright.lifecycle.upgrade.control_plane import phase
from kubewright.lifecycle.upgrade.operation import context, machine_of
from kubewright.lifecycle.upgrade.request import RollbackOptions, UpgradeOptions
from kubewright.workflow.phases import Phase, Phases

if TYPE_CHECKING:
    from kubewright.host.seam import Host
    from kubewright.lifecycle.machine import TargetMachine

TOPIC: Final = "upgrade/rollback"
_QUESTION: Final = "[upgrade] Are you sure you want to proceed? [y/N]: "


def prepare(request: RollbackOptions, machine: TargetMachine) -> Prepared[UpgradeTask]:
    """Read the state of this machine. Raises HostError if there is nothing to restore."""
    configuration = UpgradeConfiguration()
    host, init, is_control_plane = machine_of(machine, configuration, configuration.node)
    last(host)
    task = UpgradeTask(configuration=configuration, settings=configuration.node, version="", init=init, control_plane=is_control_plane)
    return Prepared(configuration=task, host=host, only=request.only)


def last(host: Host) -> Checkpoint:
    """Return the checkpoint of the last upgrade. Raises HostError if there is none."""
    operations = (phase.OPERATION, KUBELET_OPERATION)
    found = [one for one in checkpoint.every(host) if one.operation in operations and one.state is not State.PREPARED]
    if not found or found[-1].state is State.ROLLED_BACK:
        why = (
            f"the upgrade to {found[-1].goal} has been rolled back already" if found else "no upgrade has replaced anything on this machine"
        )
        raise HostError(
            f"there is nothing to roll back: {why}",
            remedy="`kubewright upgrade apply VERSION` goes to an older patch level; kubeadm keeps earlier manifests below /etc/kubernetes/tmp",
        )
    return found[-1]


def check(ctx: UpgradeContext) -> Iterable[Change]:
    """List the files and ask for confirmation.

    Raises HostError for files that somebody has changed since, UsageError for any answer other than y or yes.
    """
    found = last(ctx.host)
    checkpoint.require_known(ctx.host, found)
    lines = "\n".join(f"\t{swap.target}" for swap in found.changed)
    ctx.say(TOPIC, f"These files are restored to their state before the upgrade to {found.goal}:\n{lines}")
    ask = None if ctx.request.yes else ctx.request.ask
    if ask is not None and ask(_QUESTION).rstrip("\r\n").lower() not in {"y", "yes"}:
        raise UsageError("nothing was rolled back: the answer was not y", remedy="answer y, or use --yes")
    return ()


def take_back(ctx: UpgradeContext) -> Iterator[Change]:
    """Restore the earlier files, and verify that the components run from them."""
    found = last(ctx.host)
    checkpoint.require_known(ctx.host, found)
    begun = checkpoint.mark(ctx.host, found, State.IN_PROGRESS)
    if found.operation == KUBELET_OPERATION:
        yield from kubelet_program.taken_back(ctx, begun)
        return
    yield from phase.taken_back(ctx, begun)
    ctx.say(TOPIC, "The earlier static pods are running again")
    ctx.say(TOPIC, "Renewed certificates, the configuration of the cluster and its add-ons are kept; `upgrade apply` changes them")


PHASES: Final[Phases[UpgradeContext]] = Phases(
    Phase("preflight", "List what is restored, and ask for confirmation", run=lambda ctx: ctx.bound.preflight(ctx), flags="yes"),
    Phase("control-plane", "Put the earlier static pods of this machine back", run=take_back),
)


def _context(request: RollbackOptions, task: UpgradeTask, bound: Bound) -> UpgradeContext:
    return context(UpgradeOptions(section="node", yes=request.yes, ask=request.ask), task, bound)


ROLLBACK: Final = Operation(
    name="upgrade rollback",
    phases=PHASES,
    configure=prepare,
    context=_context,
    preflight={Mode.APPLY: check},
)
