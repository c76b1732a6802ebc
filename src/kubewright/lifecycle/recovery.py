"""`recover` as a row: completes the replacement of files that a killed operation left half done.

The unit of `steps/boot_recovery` runs it before the kubelet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kubewright.lifecycle.etcd import this_member
from kubewright.lifecycle.etcd.data import settled
from kubewright.lifecycle.operation import Bound, Operation, Prepared
from kubewright.lifecycle.steps import boot_recovery, checkpoint
from kubewright.workflow.phases import Phase, Phases, Step

if TYPE_CHECKING:
    from kubewright.lifecycle.machine import TargetMachine


def complete(bound: Bound) -> Iterator[Step]:
    """Bring the files of the operation in progress to one side; without one, remove the unit that runs this at boot."""
    begun = checkpoint.unfinished(checkpoint.every(bound.host))
    if begun is not None:
        yield from checkpoint.complete_pairs(bound.host, begun)
        if begun.operation == this_member.RESTORE:
            yield from settled(bound.host, begun, this_member.find(bound.host).layout.etcd_data)
    yield from boot_recovery.remove_unneeded(bound.host)


def _prepare(_: None, machine: TargetMachine) -> Prepared[None]:
    return Prepared(configuration=None, host=machine.at(machine.layout))


RECOVER: Final[Operation[None, None, Bound]] = Operation(
    name="recover",
    phases=Phases(Phase("complete", "Complete files that belong together", run=complete)),
    configure=_prepare,
    context=lambda _, __, bound: bound,
)
