"""Running phases: order, events, errors, interruption."""

import pytest

from kubewright.base.change import Action, Change
from kubewright.base.clock import FakeClock
from kubewright.base.errors import CertificateMismatch, HostError, Interrupted, Locked, Stopped, UsageError
from kubewright.base.events import Changed, PhaseFinished, PhaseSkipped, PhaseStarted, RecordingReporter, Waited
from kubewright.workflow.phases import Phase, Phases
from kubewright.workflow.runner import failed_phase, phase_prefix, run


class Machine:
    """A context: what exists, and what was done in which order."""

    def __init__(self) -> None:
        self.things = set()
        self.done = []
        self.clock = FakeClock()
        self.reporter = RecordingReporter()

    def ensure(self, name):
        action = Action.NONE if name in self.things else Action.CREATE
        self.things.add(name)
        self.done.append(name)
        return Change(target=f"thing {name}", action=action)

    def run(self, *phases: Phase, **more: object):
        return run(Phases(*phases), self, reporter=self.reporter, clock=self.clock, **more)

    def events(self, *kinds: type):
        return [event for event in self.reporter.events if isinstance(event, kinds)]


@pytest.fixture
def machine():
    return Machine()


def makes(name, seconds=0.0, **more: object):
    def action(ctx):
        ctx.clock.advance(seconds)
        yield ctx.ensure(name)

    return Phase(name, f"makes {name}", run=action, **more)


def fails(name, error, **more: object):
    def action(ctx):
        yield ctx.ensure(name)
        raise error

    return Phase(name, f"fails at {name}", run=action, **more)


def test_phases_run_in_order_and_report_their_changes(machine):
    done = machine.run(makes("a", 1.5), Phase("group", "two", children=(makes("b"), makes("c", 0.25))))
    assert machine.done == ["a", "b", "c"]
    assert [change.target for change in done.changes] == ["thing a", "thing b", "thing c"]
    assert dict(done.seconds) == {"a": 1.5, "group/b": 0.0, "group/c": 0.25}
    assert machine.reporter.events[:3] == [
        PhaseStarted(phase="a"),
        Changed(change=done.changes[0]),
        PhaseFinished(phase="a", seconds=1.5),
    ]
    assert len(machine.reporter.events) == 9


def test_a_parent_acts_before_its_children(machine):
    machine.run(makes("a", children=(makes("b"), makes("c"))))
    assert machine.done == ["a", "b", "c"]


def test_a_second_run_goes_through_everything_and_changes_nothing(machine):
    tree = (makes("a"), makes("b"))
    machine.run(*tree)
    again = machine.run(*tree)
    assert machine.done == ["a", "b", "a", "b"]
    assert [bool(change) for change in again.changes] == [False, False]


def test_waits_are_part_of_the_result_and_reported_once(machine):
    waited = Waited(what="the API server", seconds=2.0)
    done = machine.run(Phase("wait", "waits", run=lambda ctx: [waited]))
    assert done.waits == (waited,)
    assert machine.events(Waited) == []


def test_skipped_phases_are_reported_in_order(machine):
    machine.run(makes("a"), makes("b", children=(makes("c"),)), makes("d"), skip=["b"])
    assert machine.done == ["a", "d"]
    told = [event.phase for event in machine.events(PhaseStarted, PhaseSkipped)]
    assert told == ["a", "b", "b/c", "d"]


def test_a_condition_skips_a_phase_with_its_children_and_is_evaluated_once(machine):
    asked = []

    def condition(ctx):
        asked.append(1)
        return "etcd is external"

    machine.run(makes("a"), makes("etcd", children=(makes("local"), makes("other")), condition=condition))
    assert machine.done == ["a"]
    assert machine.events(PhaseSkipped) == [
        PhaseSkipped(phase=name, reason="etcd is external") for name in ("etcd", "etcd/local", "etcd/other")
    ]
    assert len(asked) == 1


def test_a_condition_applies_to_a_child_that_runs_alone(machine):
    machine.run(makes("etcd", children=(makes("local"),), condition=lambda ctx: "external"), only=["etcd/local"])
    assert machine.done == []


def test_an_unknown_phase_stops_before_anything_runs(machine):
    with pytest.raises(UsageError):
        machine.run(makes("a"), skip=["b"])
    assert machine.done == []
    assert machine.reporter.events == []


@pytest.mark.parametrize(
    "error",
    [
        CertificateMismatch("ca.crt is not a CA", detail="basic constraints", remedy="remove it"),
        Locked("locked"),
        KeyError("a bug"),
    ],
)
def test_an_error_keeps_its_class_and_names_its_phase(machine, error):
    with pytest.raises(type(error)) as raised:
        machine.run(makes("a"), Phase("certs", "", children=(fails("ca", error),)), makes("z"))
    assert raised.value is error
    assert failed_phase(error) == "certs/ca"
    assert phase_prefix(error) == "error execution phase certs/ca: "
    assert machine.done == ["a", "ca"]


def test_an_error_of_an_inner_run_keeps_the_inner_name(machine):
    inner = Phase("outer", "runs another tree", run=lambda ctx: ctx.run(fails("inner", HostError("no"))).changes)
    with pytest.raises(HostError) as raised:
        machine.run(inner)
    assert failed_phase(raised.value) == "inner"


def test_an_error_outside_of_phases_is_explained_by_itself():
    error = HostError("no", detail="because")
    assert failed_phase(error) is None
    assert phase_prefix(error) == ""


def test_ctrl_c_is_an_interruption_that_names_the_phase(machine):
    with pytest.raises(Interrupted) as stopped:
        machine.run(makes("a"), fails("b", KeyboardInterrupt()), makes("c"))
    assert stopped.value.what == "interrupted in phase b"
    assert stopped.value.exit_code == 130
    assert machine.done == ["a", "b"]


@pytest.mark.parametrize(("number", "by"), [(15, " by SIGTERM"), (1, " by SIGHUP"), (2, "")])
def test_other_signals_act_like_ctrl_c(machine, number, by):
    with pytest.raises(Interrupted) as stopped:
        machine.run(fails("b", Stopped(number)))
    assert stopped.value.what == f"interrupted{by} in phase b"
    assert stopped.value.exit_code == 128 + number


def test_a_phase_interrupted_between_two_steps_cleans_up_at_once(machine):
    def work(ctx):
        try:
            yield Change(target="thing a", action=Action.CREATE)
            ctx.done.append("went on")
        finally:
            ctx.done.append("cleaned up")

    class Stopping(RecordingReporter):
        def emit(self, event, /):
            if isinstance(event, Changed):
                raise Stopped(15)

    machine.reporter = Stopping()
    with pytest.raises(Interrupted) as stopped:
        machine.run(Phase("a", "", run=work))
    assert machine.done == ["cleaned up"]
    assert stopped.value.what == "interrupted by SIGTERM in phase a"
