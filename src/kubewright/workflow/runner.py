"""The runner: walks a tree of phases over a context, tells what happens, keeps time, and names the phase that failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final, Generic

from kubewright.base.change import Change
from kubewright.base.clock import Clock
from kubewright.base.events import Changed, PhaseFinished, PhaseSkipped, PhaseStarted, Reporter, Waited
from kubewright.base.interrupts import interruption
from kubewright.base.records import dataclass, field
from kubewright.workflow.phases import Context, Node, Phases

_NOTE: Final = "error execution phase "


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run did: all changes and waits in the order of the phases, and the seconds that each phase took."""

    changes: tuple[Change, ...]
    waits: tuple[Waited, ...]
    seconds: Mapping[str, float]


def run(
    phases: Phases[Context],
    context: Context,
    *,
    reporter: Reporter,
    clock: Clock,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    order: Sequence[str] = (),
) -> Result:
    """Run the chosen phases of a tree in order (see `Phases.select`).

    `order` names phases that run one after the other, from the place of the first of them on, whatever the tree has between them; the result
    is in the order of the tree even so.

    What a phase raises is raised on unchanged, with the phase's name as a note (`failed_phase`, `explain`). Raises Interrupted for Ctrl-C and
    signals like it, and UsageError before anything runs.
    """
    nodes = phases.select(only=only, skip=skip)
    skipped = frozenset(node.name for node in phases.nodes if node.within(frozenset(skip)))
    going = _Run(context, reporter=reporter, clock=clock)
    try:
        going.walk(_ordered(phases.nodes, order), chosen=frozenset(node.name for node in nodes), skipped=skipped)
    except KeyboardInterrupt as stop:
        remedy = "run the same command again: it finishes what was begun"
        raise interruption(stop, remedy=remedy, phase=failed_phase(stop)) from stop
    return going.result([node.name for node in phases.nodes])


def _ordered(nodes: Sequence[Node[Context]], order: Sequence[str]) -> list[Node[Context]]:
    """Bring the named nodes into that order, at the place of the first of them."""
    named = {node.name: node for node in nodes if node.name in order}
    rest = [node for node in nodes if node.name not in named]
    place = nodes.index(named[order[0]]) if named else 0
    return [*rest[:place], *(named[name] for name in order), *rest[place:]]


def failed_phase(error: BaseException) -> str | None:
    """Return the full name of the phase in which an error was raised, or None if it was raised outside of a phase."""
    notes = (note for note in getattr(error, "__notes__", ()) if note.startswith(_NOTE))
    return next((note.removeprefix(_NOTE) for note in notes), None)


def explain(error: BaseException) -> str:
    """Return the text of an error with its phase in front, as kubeadm puts it: `error execution phase NAME: CAUSE`."""
    phase = failed_phase(error)
    return str(error) if phase is None else f"{_NOTE}{phase}: {error}"


@dataclass()
class _Done:
    """What a phase did so far."""

    changes: list[Change] = field(default_factory=list)
    waits: list[Waited] = field(default_factory=list)
    seconds: float = 0.0


class _Run(Generic[Context]):
    """One run: what its phases did."""

    def __init__(self, context: Context, *, reporter: Reporter, clock: Clock) -> None:
        self._context = context
        self._reporter = reporter
        self._clock = clock
        self._phases: dict[str, _Done] = {}
        self._conditions: dict[str, str | None] = {}

    def walk(self, nodes: Iterable[Node[Context]], *, chosen: frozenset[str], skipped: frozenset[str]) -> None:
        """Run the chosen ones of the nodes, and tell of the skipped ones at their place."""
        for node in nodes:
            if node.name in skipped:
                self._reporter.emit(PhaseSkipped(phase=node.name, reason="named by --skip-phases"))
            elif node.name in chosen:
                with _naming(node.name):
                    self._visit(node)

    def result(self, names: Sequence[str]) -> Result:
        """Return what was done, in the order of these phases."""
        done = {name: self._phases[name] for name in names if name in self._phases}
        return Result(
            changes=tuple(change for phase in done.values() for change in phase.changes),
            waits=tuple(wait for phase in done.values() for wait in phase.waits),
            seconds=MappingProxyType({name: phase.seconds for name, phase in done.items()}),
        )

    def _visit(self, node: Node[Context]) -> None:
        reason = self._left_out(node)
        if reason is not None:
            self._reporter.emit(PhaseSkipped(phase=node.name, reason=reason))
            return
        action = node.phase.action()
        if action is None:
            return
        started, done = self._clock.monotonic(), _Done()
        self._phases[node.name] = done
        self._reporter.emit(PhaseStarted(phase=node.name))
        for step in action(self._context):
            if isinstance(step, Change):
                done.changes.append(step)
                self._reporter.emit(Changed(change=step))
            else:
                done.waits.append(step)
        done.seconds = self._clock.monotonic() - started
        self._reporter.emit(PhaseFinished(phase=node.name, seconds=done.seconds))

    def _left_out(self, node: Node[Context]) -> str | None:
        """Return why a phase or one above it does not apply. Each condition is asked once in a run."""
        for above in node.line:
            if above.name not in self._conditions:
                self._conditions[above.name] = above.phase.left_out(self._context)
            if (reason := self._conditions[above.name]) is not None:
                return reason
        return None


@contextmanager
def _naming(phase: str) -> Iterator[None]:
    """Note the phase on whatever is raised in the block, unless an inner run has done so."""
    try:
        yield
    except BaseException as error:
        if failed_phase(error) is None:
            error.add_note(f"{_NOTE}{phase}")
        raise
