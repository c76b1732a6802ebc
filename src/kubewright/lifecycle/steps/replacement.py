"""Replaces files of a checkpoint step by step: each step is verified before the next one begins, and a failure reverts all of them.

Files are restored in the same order and verified in the same way. Steps that changed nothing are neither waited for nor
reverted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from kubewright.base.change import Change
from kubewright.base.errors import HostError, KubewrightError
from kubewright.base.events import Line, Reporter
from kubewright.base.records import dataclass
from kubewright.host.seam import Host
from kubewright.lifecycle.steps import checkpoint
from kubewright.lifecycle.steps.checkpoint import Checkpoint, Form, State
from kubewright.workflow.phases import Step

Proof = Callable[[], Iterable[Step]]


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """A step. `name` is what runs from these files, such as `kube-scheduler`.

    `before` runs before the files are replaced; only `undo`, which runs before the old contents are restored, reverts
    it. `prove` raises unless the new contents are running, `prove_old` does the same for the old ones. `required`: the
    step is done even if its files stay the same.
    """

    name: str
    targets: tuple[PurePosixPath, ...]
    prove: Proof
    prove_old: Proof
    before: Proof = tuple
    undo: Proof = tuple
    required: bool = False


def carry_out(
    host: Host, found: Checkpoint, steps: Sequence[Replacement], *, reporter: Reporter, topic: str, settle: Proof = tuple
) -> Iterator[Step]:
    """Run the steps in order. If one fails, or a signal ends the run, the machine is restored to its earlier state.

    Steps of an earlier run that was interrupted are verified again. `settle` runs after the last step, if any of them
    changed something: it raises if the verified state does not last. Raises HostError with what failed and the state of
    the machine, and what `require_known` raises before anything is changed.
    """
    checkpoint.require_known(host, found)
    again = found.state is State.IN_PROGRESS
    found = checkpoint.mark(host, found, State.IN_PROGRESS)
    begun: list[Replacement] = []
    doing = found.operation
    try:
        for step in steps:
            forms = [checkpoint.form(host, found.swap(target)) for target in step.targets]
            if Form.OLD not in forms and not (step.required or (again and _differs(found, step))):
                continue
            doing = step.name
            begun.append(step)
            yield from _forward(host, found, step)
        doing = found.operation
        if begun:
            yield from settle()
    except BaseException as error:  # also signals
        _back(host, found, begun, doing=doing, failed=error, reporter=reporter, topic=topic)
        raise
    checkpoint.finish(host, found, State.DONE)


def _differs(found: Checkpoint, step: Replacement) -> bool:
    return any(found.swap(target).before != found.swap(target).after for target in step.targets)


def _forward(host: Host, found: Checkpoint, step: Replacement) -> Iterator[Step]:
    yield from step.before()
    for target in step.targets:
        yield checkpoint.put_new(host, found, target)
    yield from step.prove()


def take_back(host: Host, found: Checkpoint, steps: Sequence[Replacement]) -> list[Change]:
    """Restore the files of these steps in order, and verify each step before the next one. Raises what a verification raises.

    The order is that of the dependencies. A kube-controller-manager that was restored before its API server would end
    while that is restarted, and the kubelet would start it again only after a pause.
    """
    changes = []
    for step in steps:
        _all(step.undo)
        changes += [checkpoint.put_old(host, found, target) for target in step.targets]
        _all(step.prove_old)
    checkpoint.finish(host, found, State.ROLLED_BACK)
    return changes


def _all(steps: Proof) -> None:
    for _ in steps():
        pass


def _back(
    host: Host, found: Checkpoint, begun: Sequence[Replacement], *, doing: str, failed: BaseException, reporter: Reporter, topic: str
) -> None:
    """Revert what a failed run has begun.

    Raises HostError instead of an error of ours; a signal is passed on unchanged.
    """
    reporter.emit(Line(topic=topic, text=f"{doing} failed: restoring the earlier state"))
    try:
        take_back(host, found, begun)
    except KubewrightError as error:
        raise HostError(
            f"{doing} failed, and the machine could not be brought back to its earlier state",
            detail=f"{failed}\nwhile restoring the earlier state: {error}",
            remedy=f"{error.remedy or 'see what the component reports'}; the earlier files are in {found.directory}",
        ) from failed
    reporter.emit(Line(topic=topic, text="The earlier state has been restored"))
    if isinstance(failed, KubewrightError):
        raise HostError(f"{doing} failed; this machine is back in its earlier state", detail=str(failed), remedy=failed.remedy) from failed
