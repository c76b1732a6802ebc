"""The engine: what can be done to a machine is a row, and one function runs every row in one of three modes.

The mode binds the seams and nothing else: a plan and kubeadm's dry run are the same phases against overlays (DESIGN principle 3).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from kubewright.base.change import Change
from kubewright.base.clock import Clock
from kubewright.base.errors import HostError, KubewrightError
from kubewright.base.events import Line, Reporter, SilentReporter, Warned
from kubewright.base.records import dataclass, field, replace
from kubewright.base.wait import InstantWaiter, Waiter
from kubewright.host.desired import Directory
from kubewright.host.locks import Lock
from kubewright.host.seam import Host
from kubewright.lifecycle.connections import Connections, Mode
from kubewright.lifecycle.deferred_manifests import DeferredManifests, StartCondition
from kubewright.lifecycle.machine import LOCK, Machine
from kubewright.pki.keys import KeyPool
from kubewright.workflow import runner
from kubewright.workflow.phases import Node, Phases, Step, resolved
from kubewright.workflow.runner import InTreeOrder, Plan

if TYPE_CHECKING:
    from kubewright.apis.machine import Layout
    from kubewright.host.desired import File
    from kubewright.lifecycle.machine_record import MachineRecord

Request = TypeVar("Request")
Configuration = TypeVar("Configuration")
Context = TypeVar("Context")
T = TypeVar("T")

PRIVATE: Final = 0o700
DRY_RUN: Final = "dryrun"
"""The topic of what a dry run says."""
PREFLIGHT: Final = "preflight"
"""The phase that finds out whether the machine is fit: what the machine is made of is kept from there on."""


def nothing(*_: object) -> None:
    """Do nothing."""


def no_steps(_: object, /) -> Iterable[Step]:
    """Do nothing in a phase."""
    return ()


def none_of(_: object, /) -> tuple[Any, ...]:
    """Return nothing."""
    return ()


def unchanged(value: T, /) -> T:
    """Return a value as it is."""
    return value


@dataclass(frozen=True, kw_only=True)
class Prepared(Generic[Configuration]):
    """A request that was understood. `host` is the machine with the places that the configuration names.

    - `only` and `skip` name phases; `dry_run` says that the configuration itself asks for kubeadm's dry run.
    - `record` gives what is kept of the machine; None where nothing is. `adopts`: the user takes over what something else made.
    """

    configuration: Configuration
    host: Host
    warnings: Sequence[str] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    dry_run: bool = False
    adopts: bool = False
    record: Callable[[], MachineRecord] | None = None


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The seams as the mode has bound them, and what is known of the run. The context of every operation holds one.

    - `base` is the machine itself, `host` what the phases see of it; `connections` are those to the cluster.
    - `phases` are the full names of those that run, `whole` is False for single ones; certificates count from `started`.
    - `preflight` is what the phase of that name does in this mode.
    - `resumed`: an earlier run began to make this machine what it is, or something else did and it is taken over.
    - `begin` is called once the machine is known to be fit: what it is made of is kept from then on.
    - `turns` says when manifests of static pods are written; `kubelet_makes` are files of a kubelet, where none is started.
    """

    mode: Mode
    machine: Machine
    base: Host
    host: Host
    waiter: Waiter
    reporter: Reporter
    connections: Connections
    keys: KeyPool
    phases: frozenset[str]
    started: datetime
    turns: DeferredManifests
    preflight: Callable[[Any], Iterable[Step]]
    whole: bool = True
    resumed: bool = False
    begin: Callable[[], None] = nothing
    kubelet_makes: tuple[File, ...] = ()

    @property
    def clock(self) -> Clock:
        """The time."""
        return self.machine.clock

    def tell(self, done: str, planned: str = "", *, topic: str = "") -> None:
        """Report a step: `done` where it is done, `planned` in a dry run. An empty text is not said, and a plan says neither."""
        text = {Mode.APPLY: done, Mode.NARRATE: planned, Mode.PLAN: ""}[self.mode]
        if text:
            self.reporter.emit(Line(topic=topic if self.mode is Mode.APPLY else DRY_RUN, text=text))


@dataclass(frozen=True, kw_only=True)
class Start(Generic[Context]):
    """How the components of a control plane are started by a run that has all of `phases`: in the order of what they need.

    `turns` tell when each may start; `ahead` are phases that run before their place in the tree, and are told of in it.
    """

    phases: frozenset[str]
    turns: Callable[[Context], Mapping[str, StartCondition]]
    ahead: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class DryRun(Generic[Configuration]):
    """Where kubeadm's dry run of an operation writes: the directory that `variable` names, or a new one of this `prefix`.

    `copies` are files of the machine that belong with what is written; `keeps` those that stay though a phase removes them. `configure` changes
    the configuration for it.
    """

    variable: str
    prefix: str
    copies: Callable[[Host], Iterable[PurePosixPath]] = none_of
    keeps: Callable[[Layout], Iterable[PurePosixPath]] = none_of
    configure: Callable[[Configuration], Configuration] = unchanged


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What the engine does around the phases.

    - `locks`: one kubewright at a time works on the machine.
    - `traces_resume`: what something else has made of the machine counts as begun, also for single phases.
    - `reporter` may put one over that of the caller.
    - `before_adopting` checks what a run that takes over a machine will need; it raises.
    """

    locks: bool = True
    traces_resume: bool = False
    reporter: Callable[[Reporter], Reporter] = unchanged
    before_adopting: Callable[[Host, Machine], None] = nothing


@dataclass(frozen=True, kw_only=True)
class Operation(Generic[Request, Configuration, Context]):
    """What can be done to a machine.

    - `configure` is pure but for what it reads of the machine.
    - `context` makes what the phases work with. `opening` and `closing` are called with it before and after them.
    - `preflight` gives what the phase of that name does in each mode, as functions or by their names.
    - `abandon` is called where a run ends before its end, with what it was bound to: nothing secret stays.
    - `failures` are errors that the phases have kept for the end, of which `incomplete` is the sum.
    - `dry_run` is None for one that only tells what it would do. `kubelet_makes` gives the files that plans take for a kubelet's, and may
      be named as well.
    """

    name: str
    phases: Phases[Context]
    configure: Callable[[Request, Machine], Prepared[Configuration]]
    context: Callable[[Request, Configuration, Bound], Context]
    policy: Policy = Policy()
    preflight: Mapping[Mode, Callable[[Context], Iterable[Step]] | str] = field(default_factory=dict)
    start: Start[Context] | None = None
    dry_run: DryRun[Configuration] | None = None
    opening: Callable[[Context], None] = nothing
    closing: Callable[[Context], None] = nothing
    abandon: Callable[[Bound], None] = nothing
    failures: Callable[[Context], Sequence[KubewrightError]] = none_of
    incomplete: str = "not everything could be done"
    kubelet_makes: Callable[[Layout], tuple[File, ...]] | str = none_of


@dataclass(frozen=True, kw_only=True)
class Result(Generic[Context]):
    """What a run did, or would do. `changes` has no targets that stay as they are; `context` is that of the phases.

    `host` is the machine as the phases saw it, `written` what a dry run wrote into its directory.
    """

    changes: tuple[Change, ...]
    context: Context
    host: Host
    written: tuple[Change, ...] = ()
    failures: tuple[KubewrightError, ...] = ()
    incomplete: str = ""

    def require_complete(self) -> None:
        """Raise HostError that names everything that failed, if anything did."""
        if self.failures:
            detail = "\n".join(str(error) for error in self.failures)
            remedies = list(dict.fromkeys(error.remedy for error in self.failures if error.remedy))
            again = "then run the same command again: it does what is left"
            cause = ExceptionGroup("what failed", self.failures)
            raise HostError(self.incomplete, detail=detail, remedy="; ".join([*remedies, again])) from cause

    @property
    def plan(self) -> Plan:
        """The changes as a plan: an empty one where all of them are short-lived."""
        return Plan.of(self.changes).settled()


def run(
    operation: Operation[Request, Configuration, Context],
    request: Request,
    machine: Machine,
    *,
    reporter: Reporter,
    mode: Mode = Mode.APPLY,
) -> Result[Context]:
    """Do something to a machine, or tell what that would take.

    A configuration that asks for a dry run itself gets one. Raises what `configure` and the phases raise; UsageError for phases that do not
    exist, Locked while another kubewright is at work, ConfigurationChanged for a machine that was made with another configuration, and HostError
    for one that something else made.
    """
    reporter = operation.policy.reporter(reporter)
    prepared = operation.configure(request, machine)
    for warning in prepared.warnings:
        reporter.emit(Warned(text=warning))
    call = _Call(operation, request, prepared, machine, reporter)
    match Mode.NARRATE if mode is Mode.APPLY and prepared.dry_run else mode:
        case Mode.APPLY:
            return _synced(call.apply, machine)
        case Mode.PLAN:
            return call.plan()
        case Mode.NARRATE:
            return call.narrate()


def _synced(apply: Callable[[], Result[Context]], machine: Machine) -> Result[Context]:
    """Make sure of what was written, also where the run fails; that this could not be done is one more failure."""
    try:
        result = apply()
    except BaseException:
        with suppress(HostError):  # why it ended is told, not this
            machine.sync()
        raise
    try:
        machine.sync()
    except HostError as error:
        return replace(result, failures=(*result.failures, error))
    return result


@dataclass(frozen=True)
class _Call(Generic[Request, Configuration, Context]):
    """One run of an operation."""

    operation: Operation[Request, Configuration, Context]
    request: Request
    prepared: Prepared[Configuration]
    machine: Machine
    reporter: Reporter

    def apply(self) -> Result[Context]:
        host = self.prepared.host
        with ExitStack() as stack:
            if self.operation.policy.locks:
                directory = self.machine.lock_directory(host)
                host.ensure(Directory(path=directory, mode=PRIVATE))
                stack.enter_context(Lock(directory / LOCK, doing=self.operation.name, clock=self.machine.clock))
            if self.prepared.only or self.prepared.record is None:
                return self.walk(Mode.APPLY)
            return self._recorded(self.prepared.record)

    def _recorded(self, record: Callable[[], MachineRecord]) -> Result[Context]:
        """Run everything, and keep what the machine is made of: from the moment that it is known to be fit. One that is refused keeps nothing."""
        from kubewright.lifecycle import adoption, machine_record

        host, wanted, policy = self.prepared.host, record(), self.operation.policy
        found = machine_record.current(host)
        if found is not None:
            machine_record.require_same(found, wanted)

        def plan() -> Plan:
            policy.before_adopting(host, self.machine)
            return self.walk(Mode.PLAN, quiet=True).plan

        adopted = adoption.check(host, adopts=self.prepared.adopts, plan=plan, reporter=self.reporter)

        def begin() -> None:
            if found is None:
                host.ensure(Directory(path=host.layout.state, mode=PRIVATE))
                machine_record.save(host, wanted)

        if PREFLIGHT not in self.phases:
            begin()
        result = self.walk(Mode.APPLY, resumed=found is not None or adopted, begin=begin)
        machine_record.save(host, replace(wanted, finished=True))
        return result

    def plan(self) -> Result[Context]:
        return self.walk(Mode.PLAN)

    def narrate(self) -> Result[Context]:
        form = self.operation.dry_run
        if form is None:
            return self.walk(Mode.NARRATE)
        from kubewright.lifecycle import dry_run as dry_runs

        quick = replace(self, prepared=replace(self.prepared, configuration=form.configure(self.prepared.configuration)))
        writer = self.machine.at(self.machine.layout)
        with dry_runs.directory(writer, self.machine, variable=form.variable, prefix=form.prefix) as place:
            result = quick.walk(Mode.NARRATE)
            written = dry_runs.write(result.host, place, writer=writer, copies=form.copies(self.prepared.host), reporter=self.reporter)
        dry_runs.say_whether_kept(self.machine, form.variable, reporter=self.reporter)
        return replace(result, written=tuple(written))

    @property
    def phases(self) -> frozenset[str]:
        chosen = self.operation.phases.select(only=self.prepared.only, skip=self.prepared.skip)
        return frozenset(node.name for node in chosen)

    def _resumed(self) -> bool:
        """Whether somebody has begun to make this machine what it is, as far as single phases and plans have to know it."""
        host = self.prepared.host
        if host.state(host.layout.machine_record) is not None:
            return True
        if not self.operation.policy.traces_resume:
            return False
        from kubewright.lifecycle import adoption

        return bool(adoption.traces(host))

    def walk(self, mode: Mode, *, resumed: bool | None = None, begin: Callable[[], None] = nothing, quiet: bool = False) -> Result[Context]:
        operation, prepared = self.operation, self.prepared
        with bind(operation, prepared, self.machine, mode=mode, reporter=self.reporter, quiet=quiet) as seams:
            bound = replace(seams, resumed=self._resumed() if resumed is None else resumed, begin=begin)
            context = operation.context(self.request, prepared.configuration, bound)
            order: Sequence[str] = ()
            if operation.start is not None and mode is Mode.APPLY and bound.phases >= operation.start.phases:
                bound.turns.arrange(operation.start.turns(context))
                order = operation.start.ahead
            try:
                operation.opening(context)
                done = runner.run(
                    operation.phases,
                    context,
                    reporter=bound.reporter,
                    clock=self.machine.clock,
                    only=prepared.only,
                    skip=prepared.skip,
                    order=order,
                )
                operation.closing(context)
            except BaseException:  # signals as well
                operation.abandon(bound)
                raise
        return Result(
            changes=tuple(change for change in done.changes if change),
            context=context,
            host=bound.host,
            failures=tuple(operation.failures(context)),
            incomplete=operation.incomplete,
        )


@contextmanager
def bind(
    operation: Operation[Any, Configuration, Any],
    prepared: Prepared[Configuration],
    machine: Machine,
    *,
    mode: Mode,
    reporter: Reporter,
    quiet: bool = False,
) -> Iterator[Bound]:
    """Give the seams as a mode has them. In the end connections are closed, and keys that are still being made are dropped.

    `quiet`: nobody hears of the phases, but of what is waited for on the way to the cluster.
    """
    chosen = operation.phases.select(only=prepared.only, skip=prepared.skip)
    narrates = mode is Mode.NARRATE and operation.dry_run is not None
    with ExitStack() as stack:
        host = _host(operation, prepared, mode=mode, reporter=reporter)
        turns = stack.enter_context(DeferredManifests(host))
        heard: Reporter = SilentReporter() if quiet else reporter
        if mode is Mode.APPLY and operation.start is not None and operation.start.ahead:
            heard = stack.enter_context(closing(_in_tree_order(operation.phases, chosen, heard)))
        connections = Connections(machine, mode=mode, reporter=heard, told=reporter, narrates=narrates)
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
            turns=turns,
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


def _waiter(machine: Machine, reporter: Reporter, *, mode: Mode, narrates: bool) -> Waiter:
    if mode is Mode.APPLY:
        return machine.waiter(reporter)
    if not narrates:
        return InstantWaiter()
    from kubewright.lifecycle.dry_run import DryRunWaiter

    return DryRunWaiter(reporter=reporter)


def _kubelet_makes(operation: Operation[Any, Any, Any], layout: Layout) -> tuple[File, ...]:
    return cast("Callable[[Layout], tuple[File, ...]]", resolved(operation.kubelet_makes))(layout)


def _in_tree_order(phases: Phases[Any], chosen: Sequence[Node[Any]], inner: Reporter) -> InTreeOrder:
    """Return a reporter that tells of the phases in kubeadm's order."""
    required = frozenset(node.name for node in chosen if node.phase.run is not None)
    return InTreeOrder(inner, [node.name for node in phases.nodes], required=required)


def _preflight(target: Callable[[Any], Iterable[Step]] | str, context: Any) -> Iterable[Step]:
    """Do what the phase does in this mode; what is named is imported now."""
    return cast("Callable[[Any], Iterable[Step]]", resolved(target))(context)
