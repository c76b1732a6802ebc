"""Events are reported in the order of the tree, in whatever order the phases run."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.events import Event, Line, PhaseFinished, PhaseSkipped, PhaseStarted
from kubewright.workflow.runner import InTreeOrder

NAMES = ("a", "b", "c", "d")


class Kept:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event: Event, /) -> None:
        self.events.append(event)

    @property
    def lines(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Line)]


def run(reporter: InTreeOrder, name: str) -> None:
    reporter.emit(PhaseStarted(phase=name))
    reporter.emit(Line(topic=name, text=f"{name}1"))
    reporter.emit(Line(topic=name, text=f"{name}2"))
    reporter.emit(PhaseFinished(phase=name, seconds=0.0))


@given(st.permutations(NAMES))
def test_events_are_reported_in_tree_order(order: list[str]) -> None:
    kept = Kept()
    reporter = InTreeOrder(kept, NAMES, required=frozenset(NAMES))
    reporter.emit(Line(topic="", text="before"))
    for name in order:
        run(reporter, name)
    reporter.emit(Line(topic="", text="after"))
    assert kept.lines == ["before", "a1", "a2", "b1", "b2", "c1", "c2", "d1", "d2", "after"]
    assert len(kept.events) == 2 + 4 * len(NAMES)


def test_events_in_order_are_reported_at_once() -> None:
    kept = Kept()
    reporter = InTreeOrder(kept, NAMES, required=frozenset(NAMES))
    run(reporter, "c")
    assert kept.lines == []
    reporter.emit(PhaseStarted(phase="a"))
    reporter.emit(Line(topic="a", text="now"))
    assert kept.lines == ["now"]


def test_skipped_phases_do_not_delay_events() -> None:
    kept = Kept()
    reporter = InTreeOrder(kept, NAMES, required=frozenset({"b", "c"}))
    run(reporter, "c")
    reporter.emit(PhaseSkipped(phase="b", reason="left out"))
    assert kept.lines == ["c1", "c2"]
    assert isinstance(kept.events[0], PhaseSkipped)


def test_after_an_error_all_events_are_reported() -> None:
    kept = Kept()
    reporter = InTreeOrder(kept, NAMES, required=frozenset(NAMES))
    run(reporter, "d")
    reporter.emit(PhaseStarted(phase="b"))
    reporter.emit(Line(topic="b", text="fails"))
    reporter.close()
    assert kept.lines == ["fails", "d1", "d2"]


def test_a_phase_with_background_work_ends_when_the_next_begins() -> None:
    kept = Kept()
    reporter = InTreeOrder(kept, NAMES, required=frozenset(NAMES))
    reporter.emit(PhaseStarted(phase="a"))
    run(reporter, "b")
    assert kept.lines == ["b1", "b2"]
