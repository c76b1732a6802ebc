"""The runner: walks a tree of phases over a context, tells what happens, keeps time and journal, and names the phase that failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic

from kubewright.base.change import Action, Change
from kubewright.base.clock import Clock, rfc3339
from kubewright.base.errors import Interrupted
from kubewright.base.events import Changed, PhaseFinished, PhaseSkipped, PhaseStarted, Reporter, Waited, Warned
from kubewright.base.records import dataclass, field
from kubewright.workflow.journal import JournalStore, Mark, MemoryJournal, Record
from kubewright.workflow.phases import Context, Later, Node, Phases

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

THREADS: Final = 4
"""Threads for background work: it waits or runs code that releases the interpreter's lock."""

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
    workflow: str = "",
    journal: JournalStore | None = None,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    order: Sequence[str] = (),
) -> Result:
    """Run the chosen phases of a tree in order (see `Phases.select`).

    `order` names phases that run one after the other, from the place of the first of them on, whatever the tree has between them; the result
    is in the order of the tree even so.

    What a phase raises is raised on unchanged, with the phase's name as a note (`failed_phase`, `explain`); background work is waited
    for first. Raises Interrupted for Ctrl-C, and UsageError before anything runs.
    """
    nodes = phases.select(only=only, skip=skip)
    skipped = frozenset(node.name for node in phases.nodes if node.within(frozenset(skip)))
    going = _Run(context, reporter=reporter, clock=clock, workflow=workflow, journal=journal or MemoryJournal())
    try:
        going.walk(_ordered(phases.nodes, order), chosen=frozenset(node.name for node in nodes), skipped=skipped)
    except KeyboardInterrupt as stop:
        phase = failed_phase(stop)
        where = f" in phase {phase}" if phase else ""
        raise Interrupted(f"interrupted{where}", remedy="run the same command again: it finishes what was begun") from stop
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
class _Going(Generic[Context]):
    """A phase that runs or has run."""

    node: Node[Context]
    started: float
    changes: list[Change] = field(default_factory=list)
    waits: list[Waited] = field(default_factory=list)
    pending: list[Future[list[Change | Waited]]] = field(default_factory=list)
    seconds: float = 0.0
    failed: bool = False


class _Run(Generic[Context]):
    """One run: the state that its phases leave behind."""

    def __init__(self, context: Context, *, reporter: Reporter, clock: Clock, workflow: str, journal: JournalStore) -> None:
        self._context = context
        self._reporter = reporter
        self._clock = clock
        self._workflow = workflow
        self._journal = journal
        self._phases: dict[str, _Going[Context]] = {}
        self._conditions: dict[str, str | None] = {}
        self._threads: ThreadPoolExecutor | None = None

    def walk(self, nodes: Iterable[Node[Context]], *, chosen: frozenset[str], skipped: frozenset[str]) -> None:
        """Run the chosen ones of the nodes, and tell of the skipped ones at their place."""
        try:
            for node in nodes:
                if node.name in skipped:
                    self._reporter.emit(PhaseSkipped(phase=node.name, reason="named by --skip-phases"))
                elif node.name in chosen:
                    self._visit(node)
            self._join(list(self._phases.values()))
        except BaseException:
            self._settle()
            raise
        finally:
            if self._threads is not None:
                self._threads.shutdown()

    def result(self, names: Sequence[str]) -> Result:
        """Return what was done, in the order of these phases."""
        done = [self._phases[name] for name in names if name in self._phases]
        return Result(
            changes=tuple(change for phase in done for change in phase.changes),
            waits=tuple(wait for phase in done for wait in phase.waits),
            seconds=MappingProxyType({phase.node.name: phase.seconds for phase in done}),
        )

    def _visit(self, node: Node[Context]) -> None:
        with _naming(node.name):
            reason = self._left_out(node)
            action = node.phase.action() if reason is None else None
        if reason is not None:
            self._reporter.emit(PhaseSkipped(phase=node.name, reason=reason))
            return
        needs = frozenset().union(*(above.phase.needs for above in node.line))
        self._join([phase for phase in self._phases.values() if phase.node.phase.provides & needs])
        if action is None:
            return
        going = _Going(node, self._clock.monotonic())
        with self._working(going):
            self._record(node.name, Mark.BEGUN)
            self._reporter.emit(PhaseStarted(phase=node.name))
            self._phases[node.name] = going
            for step in action(self._context):
                self._take(going, step)
            if not going.pending:
                self._finish(going)

    def _left_out(self, node: Node[Context]) -> str | None:
        """Return why a phase or one above it does not apply. Each condition is asked once in a run."""
        for above in node.line:
            if above.name not in self._conditions:
                self._conditions[above.name] = above.phase.left_out(self._context)
            if (reason := self._conditions[above.name]) is not None:
                return reason
        return None

    def _take(self, going: _Going[Context], step: Change | Waited | Later) -> None:
        match step:
            case Change():
                going.changes.append(step)
                self._reporter.emit(Changed(change=step))
            case Waited():
                going.waits.append(step)
            case Later():
                going.pending.append(self._pool().submit(lambda: list(step.work())))

    def _join(self, phases: Iterable[_Going[Context]]) -> None:
        """Wait for the background work of phases and finish them."""
        for going in phases:
            if going.pending:
                with self._working(going):
                    while going.pending:
                        for step in going.pending.pop(0).result():
                            self._take(going, step)
                    self._finish(going)

    def _settle(self) -> None:
        """After an error: wait for what still runs, so that nothing is left half-done, and tell what fails there too."""
        for going in self._phases.values():
            try:
                self._join([going])
            except Exception as error:  # whatever it is, the first error is the one that is raised
                self._reporter.emit(Warned(text=explain(error)))

    @contextmanager
    def _working(self, going: _Going[Context]) -> Iterator[None]:
        try:
            with _naming(going.node.name):
                yield
        except BaseException:  # to be raised on
            going.failed = True
            raise

    def _finish(self, going: _Going[Context]) -> None:
        """Note the end of a phase, unless a part of it failed."""
        if going.failed:
            return
        going.seconds = self._clock.monotonic() - going.started
        made = tuple(change.target for change in going.changes if change.action is Action.CREATE)
        self._record(going.node.name, Mark.FINISHED, created=made)
        self._reporter.emit(PhaseFinished(phase=going.node.name, seconds=going.seconds))

    def _record(self, phase: str, mark: Mark, *, created: tuple[str, ...] = ()) -> None:
        time = rfc3339(self._clock.now())
        self._journal.append(Record(workflow=self._workflow, phase=phase, mark=mark, time=time, created=created))

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor  # most runs need none

            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="phase")
        return self._threads


@contextmanager
def _naming(phase: str) -> Iterator[None]:
    """Note the phase on whatever is raised in the block, unless an inner run has done so."""
    try:
        yield
    except BaseException as error:
        if failed_phase(error) is None:
            error.add_note(f"{_NOTE}{phase}")
        raise
