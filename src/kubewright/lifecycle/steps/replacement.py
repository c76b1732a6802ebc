"""Replacing files of a checkpoint step by step: each step is proved before the next one begins, and a step that fails takes all of them back.

What was replaced goes back in reverse order, and each of it is proved again. Steps that changed nothing are neither waited for nor taken back.
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
    """One step. `name` is what runs from these files, such as `kube-scheduler`.

    `before` does what comes before the files are replaced; it is not taken back, except by `undo`, which comes before the old contents. `prove`
    raises unless what runs now is what the new contents say, `prove_old` the same for the old ones. `required`: the step is done even if its
    files stay as they are.
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
    """Do the steps in their order. Where one fails, or the run is ended by a signal, the machine is brought back to what it was.

    Steps of an earlier run that was interrupted are proved again. `settle` comes after the last step, if any of them had something to do: it raises
    where what was proved does not last. Raises HostError that says what failed and how the machine is now, and what `require_known` raises before
    anything is changed.
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
    except BaseException as error:  # signals as well
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
    """Bring the files of these steps back to what they were, the last step first, and prove each. Raises what a proof raises.

    All but the first step are proved once more in the end: what went back early may have suffered from what went back after it.
    """
    changes = []
    for step in reversed(steps):
        _all(step.undo)
        changes += [checkpoint.put_old(host, found, target) for target in reversed(step.targets)]
        _all(step.prove_old)
    for step in steps[1:]:
        _all(step.prove_old)
    checkpoint.finish(host, found, State.ROLLED_BACK)
    return changes


def _all(steps: Proof) -> None:
    for _ in steps():
        pass


def _back(
    host: Host, found: Checkpoint, begun: Sequence[Replacement], *, doing: str, failed: BaseException, reporter: Reporter, topic: str
) -> None:
    """Take back what a failed run has begun. Raises HostError in place of an error of ours; a signal goes on as it is."""
    reporter.emit(Line(topic=topic, text=f"{doing} failed: going back to the earlier state"))
    try:
        take_back(host, found, begun)
    except KubewrightError as error:
        raise HostError(
            f"{doing} failed, and the machine could not be brought back to its earlier state",
            detail=f"{failed}\nwhile going back: {error}",
            remedy=f"{error.remedy or 'see what the component reports'}; the earlier files are in {found.directory}",
        ) from failed
    reporter.emit(Line(topic=topic, text="The earlier state is back"))
    if isinstance(failed, KubewrightError):
        raise HostError(f"{doing} failed; this machine is back in its earlier state", detail=str(failed), remedy=failed.remedy) from failed
