"""An operation on a machine, as a row, with the inputs and results of a run. `engine.run` runs every row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from kubewright.base.change import Change
from kubewright.base.clock import Clock
from kubewright.base.errors import HostError, KubewrightError
from kubewright.base.events import Line, Reporter
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass, field
from kubewright.base.wait import Waiter
from kubewright.host.seam import Host
from kubewright.lifecycle.connections import Connections, Mode
from kubewright.lifecycle.deferred_manifests import DeferredManifests, StartCondition
from kubewright.lifecycle.machine import TargetMachine
from kubewright.pki.keys import KeyPool
from kubewright.workflow.phases import Context_contra, Phases, Step
from kubewright.workflow.runner import Plan

if TYPE_CHECKING:
    from kubewright.apis.machine import Layout
    from kubewright.host.desired import File
    from kubewright.lifecycle.machine_record import MachineRecord

Request = TypeVar("Request")
Configuration = TypeVar("Configuration")
Context = TypeVar("Context")
T = TypeVar("T")

DRY_RUN: Final = "dryrun"
"""The topic of a dry run's messages."""


def nothing(*_: object) -> None:
    """Do nothing."""


def no_steps(_: object, /) -> Iterable[Step]:
    """Do nothing in a phase."""
    return ()


def none_of(_: object, /) -> tuple[Any, ...]:
    """Return nothing."""
    return ()


def unchanged(value: T, /) -> T:
    """Return a value unchanged."""
    return value


@dataclass(frozen=True, kw_only=True)
class Prepared(Generic[Configuration]):
    """A processed request. `host` is the machine with the paths of the configuration.

    - `only` and `skip` name phases; `dry_run` means that the configuration itself requests kubeadm's dry run.
    - `record` returns the record to keep on the machine; None if there is none. `adopts`: the user takes over a machine
      that another tool created.
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
    """The seams of the mode, and the facts of the run. The context of every operation contains one.

    - `base` is the machine itself, `host` the phases' view of it; `connections` are those to the cluster.
    - `phases` are the full names of those that run, `whole` is False for single ones; validity periods of certificates
      begin at `started`.
    - `preflight` is the function of that phase in this mode.
    - `resumed`: an earlier run began to create this machine, or another tool created it and it is taken over.
    - `begin` is called once the machine has passed its checks: its record is stored from then on. It takes the layout,
      and the paths of further files that the run may write. `settle` takes whether something is in permanent use:
      another configuration is refused then.
    - `manifests` are those of static pods that are written later; `kubelet_makes` are files of a kubelet, if none is
      started.
    """

    mode: Mode
    machine: TargetMachine
    base: Host
    host: Host
    waiter: Waiter
    reporter: Reporter
    connections: Connections
    keys: KeyPool
    phases: frozenset[str]
    started: datetime
    manifests: DeferredManifests
    preflight: Callable[[Any], Iterable[Step]]
    whole: bool = True
    resumed: bool = False
    begin: Callable[..., None] = nothing
    settle: Callable[[bool], None] = nothing
    kubelet_makes: tuple[File, ...] = ()

    @property
    def clock(self) -> Clock:
        """The time."""
        return self.machine.clock

    def report_step(self, done: str, planned: str = "", *, topic: str = "") -> None:
        """Report a step: `done` if it is done, `planned` in a dry run.

        An empty text is skipped, and a plan reports neither.
        """
        text = {Mode.APPLY: done, Mode.NARRATE: planned, Mode.PLAN: ""}[self.mode]
        if text:
            self.reporter.emit(Line(topic=topic if self.mode is Mode.APPLY else DRY_RUN, text=text))


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """The common part of the contexts of operations: one run, and its seams."""

    bound: Bound

    @property
    def host(self) -> Host:
        """The machine."""
        return self.bound.host

    @property
    def clock(self) -> Clock:
        """The time."""
        return self.bound.clock

    @property
    def random(self) -> Random:
        """The source of secrets."""
        return self.bound.machine.random

    @property
    def waiter(self) -> Waiter:
        """The waiter of the phases."""
        return self.bound.waiter

    @property
    def reporter(self) -> Reporter:
        """The reporter of the run."""
        return self.bound.reporter


@dataclass(frozen=True, kw_only=True)
class Start(Generic[Context_contra]):
    """How a run with all of `phases` starts a control plane's components: in the order of their dependencies.

    `conditions` returns the start conditions. Phases in `order` run before all others, and are reported at their place
    in the tree.
    """

    phases: frozenset[str]
    conditions: Callable[[Context_contra], Mapping[str, StartCondition]]
    order: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class DryRun(Generic[Configuration]):
    """The output directory of kubeadm's dry run of an operation: the one that `variable` names, or a new one with this `prefix`.

    `copies` are files of the machine to include; `keeps` are those that stay although a phase removes them. `configure`
    changes the configuration for it.
    """

    variable: str
    prefix: str
    copies: Callable[[Host], Iterable[PurePosixPath]] = none_of
    keeps: Callable[[Layout], Iterable[PurePosixPath]] = none_of
    configure: Callable[[Configuration], Configuration] = unchanged


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The engine's behaviour around the phases.

    - `locks`: one kubewright at a time works on the machine.
    - `traces_resume`: a machine that another tool has begun counts as resumed, also for single phases.
    - `reporter` may wrap that of the caller.
    - `adopts`: the command can take over a machine that another tool created.
    - `before_adopting` checks the requirements of a run that takes over a machine; it raises.
    """

    locks: bool = True
    traces_resume: bool = False
    adopts: bool = True
    reporter: Callable[[Reporter], Reporter] = unchanged
    before_adopting: Callable[[Host, TargetMachine], None] = nothing


@dataclass(frozen=True, kw_only=True)
class Operation(Generic[Request, Configuration, Context]):
    """An operation on a machine.

    - `configure` is pure except for reading the machine.
    - `context` returns the context of the phases. `opening` and `closing` are called with it before and after them.
    - `preflight` contains the functions of that phase for each mode, or their names.
    - `abandon` is called if a run ends early, with its bound seams, so that no secret stays.
    - `failures` are errors that the phases have collected for the end, which `incomplete` summarizes; `again` is the
      last hint.
    - `report` returns the result of a run for `-o json`; None: the list of its changes.
    - `dry_run` is None for an operation that itself only reports. `kubelet_makes` returns the files that plans treat as
      a kubelet's, or names the function.
    """

    name: str
    phases: Phases[Context]
    configure: Callable[[Request, TargetMachine], Prepared[Configuration]]
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
    again: str = "then run the same command again: it does the remaining steps"
    report: Callable[[Result[Context]], Mapping[str, Any]] | None = None
    kubelet_makes: Callable[[Layout], tuple[File, ...]] | str = none_of


@dataclass(frozen=True, kw_only=True)
class Result(Generic[Context]):
    """The result of a run, real or planned. `changes` has no unchanged targets; `context` is that of the phases.

    `host` is the phases' view of the machine, `written` are the files of a dry run in its directory.
    """

    changes: tuple[Change, ...]
    context: Context
    host: Host
    written: tuple[Change, ...] = ()
    failures: tuple[KubewrightError, ...] = ()
    incomplete: str = ""
    again: str = ""

    def require_complete(self) -> None:
        """Raise HostError that names all failures, if there are any."""
        if self.failures:
            detail = "\n".join(str(error) for error in self.failures)
            remedies = list(dict.fromkeys(error.remedy for error in self.failures if error.remedy))
            cause = ExceptionGroup("what failed", self.failures)
            raise HostError(self.incomplete, detail=detail, remedy="; ".join(filter(None, [*remedies, self.again]))) from cause

    @property
    def change_list(self) -> list[dict[str, object]]:
        """The changes in the form that `-o json` prints."""
        return Plan(changes=self.changes).as_list()

    @property
    def plan(self) -> Plan:
        """The changes as a plan: an empty one if all of them are short-lived."""
        return Plan.of(self.changes).settled()
