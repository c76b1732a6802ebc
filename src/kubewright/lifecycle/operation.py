"""What can be done to a machine, as a row; what a run of it is given, and what comes of it. `engine.run` runs every row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from kubewright.base.change import Change
from kubewright.base.clock import Clock
from kubewright.base.errors import HostError, KubewrightError
from kubewright.base.events import Line, Reporter
from kubewright.base.records import dataclass, field
from kubewright.base.wait import Waiter
from kubewright.host.seam import Host
from kubewright.lifecycle.connections import Connections, Mode
from kubewright.lifecycle.deferred_manifests import DeferredManifests, StartCondition
from kubewright.lifecycle.machine import Machine
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
"""The topic of what a dry run says."""


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
    - `record` gives what is kept of the machine; None if nothing is. `adopts`: the user takes over what something else made.
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
    - `begin` is called once the machine is known to be fit: what it is made of is kept from then on. It takes the layout, and the paths of
      further files that the run may write. `settle` is told whether something lasts of what was made: another configuration is refused then.
    - `manifests` are those of static pods that are written later; `kubelet_makes` are files of a kubelet, where none is started.
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

    def tell(self, done: str, planned: str = "", *, topic: str = "") -> None:
        """Report a step: `done` where it is done, `planned` in a dry run. An empty text is not said, and a plan says neither."""
        text = {Mode.APPLY: done, Mode.NARRATE: planned, Mode.PLAN: ""}[self.mode]
        if text:
            self.reporter.emit(Line(topic=topic if self.mode is Mode.APPLY else DRY_RUN, text=text))


@dataclass(frozen=True, kw_only=True)
class Start(Generic[Context_contra]):
    """How the components of a control plane are started by a run that has all of `phases`: in the order of what they need.

    `conditions` tell when each may start. Phases in `order` run before all others, and are reported in their place in the tree.
    """

    phases: frozenset[str]
    conditions: Callable[[Context_contra], Mapping[str, StartCondition]]
    order: Sequence[str] = ()


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
    - `adopts`: the command can take over a machine that something else made.
    - `before_adopting` checks what a run that takes over a machine will need; it raises.
    """

    locks: bool = True
    traces_resume: bool = False
    adopts: bool = True
    reporter: Callable[[Reporter], Reporter] = unchanged
    before_adopting: Callable[[Host, Machine], None] = nothing


@dataclass(frozen=True, kw_only=True)
class Operation(Generic[Request, Configuration, Context]):
    """What can be done to a machine.

    - `configure` is pure but for what it reads of the machine.
    - `context` makes what the phases work with. `opening` and `closing` are called with it before and after them.
    - `preflight` gives what the phase of that name does in each mode, as functions or by their names.
    - `abandon` is called where a run ends before its end, with what it was bound to: nothing secret stays.
    - `failures` are errors that the phases have kept for the end, of which `incomplete` is the sum; `again` is the last hint.
    - `report` gives the result of a run that `-o json` prints, None: the list of its changes.
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
    again: str = "then run the same command again: it does the remaining steps"
    report: Callable[[Context], Mapping[str, Any]] | None = None
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
    again: str = ""

    def require_complete(self) -> None:
        """Raise HostError that names everything that failed, if anything did."""
        if self.failures:
            detail = "\n".join(str(error) for error in self.failures)
            remedies = list(dict.fromkeys(error.remedy for error in self.failures if error.remedy))
            cause = ExceptionGroup("what failed", self.failures)
            raise HostError(self.incomplete, detail=detail, remedy="; ".join(filter(None, [*remedies, self.again]))) from cause

    @property
    def plan(self) -> Plan:
        """The changes as a plan: an empty one where all of them are short-lived."""
        return Plan.of(self.changes).settled()
