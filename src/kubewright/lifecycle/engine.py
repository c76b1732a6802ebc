"""The engine: `run` runs every operation, in one of three modes.

The mode determines only the seams (`binding.bind`): a plan and kubeadm's dry run are the same phases against overlays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Generic

from kubewright.base.errors import HostError, UsageError
from kubewright.base.events import Reporter, SilentReporter, Warned
from kubewright.base.records import dataclass, replace
from kubewright.host.desired import Directory
from kubewright.host.locks import Lock
from kubewright.lifecycle.binding import bind
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.machine import LOCK, TargetMachine, is_root
from kubewright.lifecycle.operation import Configuration, Context, Operation, Prepared, Request, Result, nothing
from kubewright.workflow import runner
from kubewright.workflow.runner import Plan

if TYPE_CHECKING:
    from kubewright.apis.machine import Layout
    from kubewright.base.change import Change
    from kubewright.host.seam import Host
    from kubewright.lifecycle.machine_record import MachineRecord

PRIVATE: Final = 0o700
KUBELET_START: Final = "kubelet-start"
PREFLIGHT: Final = "preflight"
"""The phase that checks the machine: the record of its configuration is stored from there on."""


def run(
    operation: Operation[Request, Configuration, Context],
    request: Request,
    machine: TargetMachine,
    *,
    reporter: Reporter,
    mode: Mode = Mode.APPLY,
) -> Result[Context]:
    """Run an operation on a machine, or report what it would do.

    If the configuration itself requests a dry run, nothing is applied. Raises what `configure` and the phases raise; UsageError
    for unknown phases, Locked while another kubewright is running, ConfigurationChanged for a machine that was created
    with another configuration, and HostError for one that another tool created.
    """
    reporter = operation.policy.reporter(reporter)
    machine = replace(machine, reporter=reporter)
    prepared = operation.configure(request, machine)
    for warning in prepared.warnings:
        reporter.emit(Warned(text=warning))
    current = _Run(operation, request, prepared, machine, reporter)
    match Mode.NARRATE if mode is Mode.APPLY and prepared.dry_run else mode:
        case Mode.APPLY:
            return _synced(current.apply, machine)
        case Mode.PLAN:
            return current.plan()
        case Mode.NARRATE:
            return current.narrate()


def _synced(apply: Callable[[], Result[Context]], machine: TargetMachine) -> Result[Context]:
    """Apply, then sync what was written to disk, even after a failure; a failure to sync is added to those of the result."""
    try:
        result = apply()
    except BaseException:
        with suppress(HostError):  # the reason of the run's failure is reported instead
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
    machine: TargetMachine
    reporter: Reporter

    def apply(self) -> Result[Context]:
        """Change the machine, holding its lock, and record the configuration if the operation keeps a record."""
        host = self.prepared.host
        with ExitStack() as stack:
            if self.operation.policy.locks:
                stack.enter_context(self._lock(host))
            record = self.prepared.record
            if record is None:
                return self.walk(Mode.APPLY)
            if host.state(host.layout.checkpoints) is not None:
                from kubewright.lifecycle.steps import checkpoint  # few machines have any

                checkpoint.require_none_in_progress(host)
            if self.prepared.only:
                return self.walk(Mode.APPLY, begin=self._begins_alone(record))
            return self._recorded(record)

    def _lock(self, host: Host) -> AbstractContextManager[object]:
        """Return the machine's lock. Users for whom no directory can be made, as in many containers, get none."""
        try:
            directory = self.machine.lock_directory(host)
            host.ensure(Directory(path=directory, mode=PRIVATE))
        except (UsageError, HostError):
            if is_root(host):
                raise
            return nullcontext()
        return Lock(directory / LOCK, doing=self.operation.name, clock=self.machine.clock)

    def _begins_alone(self, record: Callable[[], MachineRecord]) -> Callable[..., None]:
        """Return what a single phase calls at its start: if it starts the kubelet, it stores a record with which the whole command can resume."""
        if KUBELET_START not in self.phases:
            return nothing
        from kubewright.lifecycle.attempts import begin_alone

        return partial(begin_alone, self.prepared.host, record())

    def _recorded(self, record: Callable[[], MachineRecord]) -> Result[Context]:
        """Run all phases, and store the configuration once the machine has passed its checks.

        A configuration that differs from that of an earlier run is refused if results of that run are in permanent use;
        otherwise it replaces the earlier one, whose files are removed first.
        """
        from kubewright.lifecycle import adoption, machine_record
        from kubewright.lifecycle.attempts import Attempt

        host, wanted, policy = self.prepared.host, record(), self.operation.policy
        found = machine_record.current(host)
        other = found if found is not None and not machine_record.same(found, wanted) else None
        if other is not None and machine_record.lasts(host, other):
            machine_record.require_same(other, wanted)

        def plan() -> Plan:
            policy.before_adopting(host, self.machine)
            return self.walk(Mode.PLAN, quiet=True).plan

        adopted = adoption.check(host, adopts=self.prepared.adopts, may=policy.adopts, plan=plan, reporter=self.reporter)
        withdrawn = self._withdraw(host, other, wanted, at=self.machine.at, reporter=self.reporter)
        resumed = found is not None and other is None
        attempt = Attempt(host, wanted, found=found if resumed else None, lasts=adopted)
        if PREFLIGHT not in self.phases:
            attempt.begin(host.layout)
        try:
            result = self.walk(Mode.APPLY, resumed=resumed or adopted, begin=attempt.begin, settle=attempt.settle)
        except BaseException:  # also signals
            with suppress(HostError):  # the reason of the run's failure is reported instead
                attempt.fail()
            raise
        attempt.finish()
        return replace(result, changes=(*withdrawn, *result.changes))

    def _withdraw(
        self, host: Host, other: MachineRecord | None, wanted: MachineRecord, *, at: Callable[[Layout], Host], reporter: Reporter
    ) -> tuple[Change, ...]:
        """Remove the files of an attempt with another configuration, if there is one."""
        if other is None:
            return ()
        from kubewright.lifecycle.withdrawal import withdraw  # few machines need it

        return withdraw(host, other, wanted, clock=self.machine.clock, at=at, reporter=reporter)

    def _without_attempt(self) -> tuple[_Run[Request, Configuration, Context], tuple[Change, ...]]:
        """Return this run on an overlay without the files that `apply` would remove first, and the changes that remove them."""
        if self.prepared.only or self.prepared.record is None:
            return self, ()
        from kubewright.host.overlay import OverlayHost
        from kubewright.lifecycle import machine_record

        found, wanted = None, self.prepared.record()
        with suppress(HostError):  # a real run reports what is wrong with the record
            found = machine_record.current(self.prepared.host)
        if found is None or machine_record.same(found, wanted) or machine_record.lasts(self.prepared.host, found):
            return self, ()
        host = OverlayHost(self.prepared.host)
        at = lambda layout: OverlayHost(self.machine.at(layout))  # noqa: E731
        changes = self._withdraw(host, found, wanted, at=at, reporter=SilentReporter())
        return replace(self, prepared=replace(self.prepared, host=host)), changes

    def plan(self) -> Result[Context]:
        """Find the changes that `apply` would make."""
        run, withdrawn = self._without_attempt()
        result = run.walk(Mode.PLAN)
        return replace(result, changes=(*withdrawn, *result.changes))

    def narrate(self) -> Result[Context]:
        """Do kubeadm's dry run: print what would be done, and write the files to a directory of their own."""
        form, run = self.operation.dry_run, self._without_attempt()[0]
        if form is None:
            return run.walk(Mode.NARRATE)
        from kubewright.lifecycle import dry_run

        quick = replace(run, prepared=replace(run.prepared, configuration=form.configure(run.prepared.configuration)))
        writer = self.machine.at(self.machine.layout)
        with dry_run.directory(writer, self.machine, variable=form.variable, prefix=form.prefix) as place:
            result = quick.walk(Mode.NARRATE)
            written = dry_run.write(result.host, place, writer=writer, copies=form.copies(run.prepared.host), reporter=self.reporter)
        dry_run.say_whether_kept(self.machine, form.variable, reporter=self.reporter)
        return replace(result, written=tuple(written))

    @property
    def phases(self) -> frozenset[str]:
        """The full names of the phases of this run."""
        chosen = self.operation.phases.select(only=self.prepared.only, skip=self.prepared.skip)
        return frozenset(node.name for node in chosen)

    def _resumed(self) -> bool:
        """Return whether an earlier run or another tool has begun to create this machine: the answer for single phases and plans."""
        host = self.prepared.host
        if host.state(host.layout.machine_record) is not None:
            return True
        if not self.operation.policy.traces_resume:
            return False
        from kubewright.lifecycle import adoption

        return bool(adoption.traces(host))

    def walk(
        self,
        mode: Mode,
        *,
        resumed: bool | None = None,
        begin: Callable[..., None] = nothing,
        settle: Callable[[bool], None] = nothing,
        quiet: bool = False,
    ) -> Result[Context]:
        """Bind the seams for a mode, make the context, and run the phases. The options are those of `Bound` and `bind`."""
        operation, prepared = self.operation, self.prepared
        with bind(operation, prepared, self.machine, mode=mode, reporter=self.reporter, quiet=quiet) as seams:
            bound = replace(seams, resumed=self._resumed() if resumed is None else resumed, begin=begin, settle=settle)
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
            except BaseException:  # also signals
                operation.abandon(bound)
                raise
        return Result(
            changes=tuple(change for change in done.changes if change),
            context=context,
            host=bound.host,
            failures=tuple(operation.failures(context)),
            incomplete=operation.incomplete,
            again=operation.again,
        )
