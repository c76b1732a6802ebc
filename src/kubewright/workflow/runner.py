"""The runner: walks a tree of phases over a context, reports events, measures time, and names a failed phase.

Events are reported in the order of the tree even if phases run in another order; a run against overlays is reported as
a plan.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from kubewright.base.change import Action, Change, Lifetime
from kubewright.base.clock import Clock
from kubewright.base.errors import interruption
from kubewright.base.events import Changed, Event, PhaseFinished, PhaseSkipped, PhaseStarted, Reporter, Waited
from kubewright.base.messages import one_line
from kubewright.base.records import dataclass, field
from kubewright.workflow.phases import Node, Phases

Context = TypeVar("Context")

_NOTE: Final = "error execution phase "


@dataclass(frozen=True, kw_only=True)
class PhaseResults:
    """The result of a run: all changes and waits in the order of the phases, and the seconds that each phase took."""

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
) -> PhaseResults:
    """Run the selected phases of a tree in order (see `Phases.select`).

    `order` names phases that run one after the other, at the place of the first of them, although other phases are
    between them in the tree. The result is in the order of the tree.

    Exceptions of a phase are raised unchanged, with the phase's name as a note (`failed_phase`, `phase_prefix`). Raises
    Interrupted for Ctrl-C and similar signals, and UsageError before anything runs.
    """
    nodes = phases.select(only=only, skip=skip)
    skipped = frozenset(node.name for node in phases.nodes if node.within(frozenset(skip)))
    current = _Run(context, reporter=reporter, clock=clock)
    try:
        current.walk(_ordered(phases.nodes, order), chosen=frozenset(node.name for node in nodes), skipped=skipped)
    except KeyboardInterrupt as stop:
        remedy = "run the same command again: it finishes the work"
        raise interruption(stop, remedy=remedy, phase=failed_phase(stop)) from stop
    return current.result([node.name for node in phases.nodes])


def _ordered(nodes: Sequence[Node[Context]], order: Sequence[str]) -> list[Node[Context]]:
    """Return the nodes with the named ones in that order, at the place of the first of them."""
    named = {node.name: node for node in nodes if node.name in order}
    rest = [node for node in nodes if node.name not in named]
    place = nodes.index(named[order[0]]) if named else 0
    return [*rest[:place], *(named[name] for name in order), *rest[place:]]


def failed_phase(error: BaseException) -> str | None:
    """Return the full name of the phase in which an error was raised, or None if it was raised outside a phase."""
    notes = (note for note in getattr(error, "__notes__", ()) if note.startswith(_NOTE))
    return next((note.removeprefix(_NOTE) for note in notes), None)


def phase_prefix(error: BaseException) -> str:
    """Return the words that kubeadm puts before the text of an error: `error execution phase NAME: `; '' outside a phase."""
    phase = failed_phase(error)
    return "" if phase is None else f"{_NOTE}{phase}: "


@dataclass()
class _PhaseResult:
    """The results of a phase so far."""

    changes: list[Change] = field(default_factory=list)
    waits: list[Waited] = field(default_factory=list)
    seconds: float = 0.0


class _Run(Generic[Context]):
    """One run and the results of its phases."""

    def __init__(self, context: Context, *, reporter: Reporter, clock: Clock) -> None:
        self._context = context
        self._reporter = reporter
        self._clock = clock
        self._phases: dict[str, _PhaseResult] = {}
        self._conditions: dict[str, str | None] = {}

    def walk(self, nodes: Iterable[Node[Context]], *, chosen: frozenset[str], skipped: frozenset[str]) -> None:
        """Run the selected nodes, and report the skipped ones at their place."""
        for node in nodes:
            if node.name in skipped:
                self._reporter.emit(PhaseSkipped(phase=node.name, reason="named by --skip-phases"))
            elif node.name in chosen:
                with _noting(node.name):
                    self._visit(node)

    def result(self, names: Sequence[str]) -> PhaseResults:
        """Return the results in the order of these phases."""
        done = {name: self._phases[name] for name in names if name in self._phases}
        return PhaseResults(
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
        started, done = self._clock.monotonic(), _PhaseResult()
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
        """Return why a phase or one above it does not apply. Each condition is evaluated once per run."""
        for above in node.line:
            if above.name not in self._conditions:
                self._conditions[above.name] = above.phase.left_out(self._context)
            if (reason := self._conditions[above.name]) is not None:
                return reason
        return None


@contextmanager
def _noting(phase: str) -> Iterator[None]:
    """Add the phase as a note to exceptions in the block, unless an inner run has done so."""
    try:
        yield
    except BaseException as error:
        if failed_phase(error) is None:
            error.add_note(f"{_NOTE}{phase}")
        raise


class InTreeOrder:
    """Forwards events as if the phases had run in the order of `names`: those of a phase that runs early are held back.

    `required` are the phases that will certainly run: no event of a later phase is forwarded before they have ended.
    Call `close` at the end of a run, even if it fails: it forwards the events that are still held back.
    """

    def __init__(self, inner: Reporter, names: Sequence[str], *, required: frozenset[str]) -> None:
        self._inner = inner
        self._place = {name: place for place, name in enumerate(names)}
        self._open = [place for place, name in enumerate(names) if name in required]
        self._held: dict[int, list[Event]] = {}
        self._current: int | None = None
        self._lock = threading.Lock()

    def emit(self, event: Event, /) -> None:
        with self._lock:
            if isinstance(event, PhaseStarted | PhaseFinished | PhaseSkipped):
                self._emit_or_hold(self._place.get(event.phase), event)
                self._record_running(self._place.get(event.phase), running=isinstance(event, PhaseStarted))
            else:
                self._emit_or_hold(self._current, event)

    def close(self) -> None:
        """Forward all events that are held back."""
        with self._lock:
            self._open, self._current = [], None
            self._forward_ready()

    def _emit_or_hold(self, place: int | None, event: Event) -> None:
        if place is None or not self._waits(place):
            self._inner.emit(event)
        else:
            self._held.setdefault(place, []).append(event)

    def _record_running(self, place: int | None, *, running: bool) -> None:
        """Record which phase runs; the previous one has then ended, as has one that reports it."""
        ended = self._current if running else place
        if running:
            self._current = place
        elif place == self._current:
            self._current = None
        self._open = [one for one in self._open if one != ended]
        self._forward_ready()

    def _waits(self, place: int) -> bool:
        return bool(self._open) and self._open[0] < place

    def _forward_ready(self) -> None:
        for place in sorted(self._held):
            if self._waits(place):
                return
            for event in self._held.pop(place):
                self._inner.emit(event)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The changes of a run, in order; targets that stay unchanged do not count. False if there are none."""

    changes: tuple[Change, ...]

    @classmethod
    def of(cls, changes: Iterable[Change], *, ephemeral: bool = True) -> Plan:
        """Return the plan of a run's changes. Without `ephemeral`, it has no short-lived targets, which are no drift."""
        return cls(changes=tuple(change for change in changes if change and (ephemeral or change.lifetime is Lifetime.DURABLE)))

    def __bool__(self) -> bool:
        return bool(self.changes)

    def settled(self) -> Plan:
        """Return this plan, or an empty one if all of it is short-lived: a run would only create another token."""
        return self if any(change.lifetime is Lifetime.DURABLE for change in self.changes) else Plan(changes=())

    def as_list(self) -> list[dict[str, object]]:
        """Return the form that `-o json` prints."""
        return [change.as_map() for change in self.changes]

    def text(self) -> str:
        """Return the form for people, each change with its diff and a summary at the end; empty if nothing differs."""
        if not self.changes:
            return ""
        return "".join(_text_of(change) for change in self.changes) + f"\nplan: {self.summary()}\n"

    def summary(self) -> str:
        """Return the numbers of changes by kind: `2 to create, 1 to update`."""
        counts = Counter(change.action for change in self.changes)
        return ", ".join(f"{counts[action]} to {action.value}" for action in Action if counts[action]) or "nothing to change"


def _text_of(change: Change) -> str:
    reason = f" ({one_line(change.reason)})" if change.reason else ""
    diff = "".join(f"  {line}\n" for line in change.diff.splitlines())
    return f"{change.action.value} {one_line(change.target)}{reason}\n{diff}"
