"""The engine: one function runs every operation in one of three modes.

The mode binds the seams and nothing else: a plan and kubeadm's dry run are the same phases against overlays (DESIGN principle 3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final, Generic

from kubewright.base.errors import HostError
from kubewright.base.events import Reporter, Warned
from kubewright.base.records import dataclass, replace
from kubewright.host.desired import Directory
from kubewright.host.locks import Lock
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.machine import LOCK, Machine
from kubewright.workflow import runner
from kubewright.workflow.runner import Plan

if TYPE_CHECKING:
    from kubewright.lifecycle.machine_record import MachineRecord

from kubewright.lifecycle.binding import bind
from kubewright.lifecycle.operation import Configuration, Context, Operation, Prepared, Request, Result, nothing

PRIVATE: Final = 0o700
PREFLIGHT: Final = "preflight"
"""The phase that finds out whether the machine is fit: what the machine is made of is kept from there on."""


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
    wanted = _Run(operation, request, prepared, machine, reporter)
    match Mode.NARRATE if mode is Mode.APPLY and prepared.dry_run else mode:
        case Mode.APPLY:
            return _synced(wanted.apply, machine)
        case Mode.PLAN:
            return wanted.plan()
        case Mode.NARRATE:
            return wanted.narrate()


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
class _Run(Generic[Request, Configuration, Context]):
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

        adopted = adoption.check(host, adopts=self.prepared.adopts, may=policy.adopts, plan=plan, reporter=self.reporter)

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
        from kubewright.lifecycle import dry_run

        quick = replace(self, prepared=replace(self.prepared, configuration=form.configure(self.prepared.configuration)))
        writer = self.machine.at(self.machine.layout)
        with dry_run.directory(writer, self.machine, variable=form.variable, prefix=form.prefix) as place:
            result = quick.walk(Mode.NARRATE)
            written = dry_run.write(result.host, place, writer=writer, copies=form.copies(self.prepared.host), reporter=self.reporter)
        dry_run.say_whether_kept(self.machine, form.variable, reporter=self.reporter)
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
                bound.manifests.hold(operation.start.conditions(context))
                order = operation.start.order
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
