"""The part of `up` that makes and checks things: init's phases on the local machine, then the nodes.

Loaded while the daemon starts. The order is that of `init` but for one thing: nodes join as soon as the rights for it are there.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final, cast

from kubewright.apis.kubeadm.types import Configuration
from kubewright.base.change import Change
from kubewright.base.clock import Clock
from kubewright.base.errors import APIError
from kubewright.base.events import Reporter
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass
from kubewright.base.waiting import PollingWaiter, Waiter
from kubewright.host.desired import File
from kubewright.host.files import Files
from kubewright.host.real import RealHost
from kubewright.kube.api import KubeAPI
from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import Access
from kubewright.lifecycle import operation
from kubewright.lifecycle.init import phases
from kubewright.lifecycle.init.request import InitRequest
from kubewright.lifecycle.machine import LONG, Machine
from kubewright.lifecycle.operation import Bound, Operation, Policy, Prepared
from kubewright.local import configuration, flags
from kubewright.local.context import Joins, LocalContext, WatchfulWaiter, require_alive
from kubewright.local.control import Answer, Control
from kubewright.local.machine import Daemon, local_machine
from kubewright.local.places import Places
from kubewright.local.record import ClusterRecord
from kubewright.local.tree import LOCAL_INIT

HEALTHY: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


@dataclass(frozen=True, kw_only=True)
class Work:
    """One `up`: what is to be brought up, and the means."""

    places: Places
    cluster: ClusterRecord
    programs: Mapping[str, Path]
    daemon: Daemon
    clock: Clock
    random: Random
    reporter: Reporter
    waiter: Waiter
    within: float
    start: float
    free_leases: bool = False
    """Whether the leases of leader election, if there are any, are of processes that have ended."""

    @functools.cached_property
    def host(self) -> RealHost:
        """The control plane's machine."""
        return local_machine(self.places, self.cluster.control_plane.name, programs=self.programs, daemon=self.daemon)

    def elapsed(self) -> float:
        """Seconds since `up` began."""
        return self.clock.monotonic() - self.start


@dataclass(frozen=True, kw_only=True)
class LocalMachine(Machine):
    """A machine whose components are looked at while something else is waited for: `look` raises what makes waiting pointless."""

    look: Callable[[], None]

    def client(self, access: Access, *, timeout: float = LONG, proxied: bool = True) -> KubeAPI:
        """Make a client; nothing of a local cluster is behind a proxy."""
        return KubeClient(access, clock=self.clock, timeout=timeout)

    def waiter(self, reporter: Reporter) -> Waiter:
        return WatchfulWaiter(PollingWaiter(clock=self.clock, reporter=reporter), look=self.look, monotonic=self.clock.monotonic)


def machine_of(work: Work, host: RealHost, *, clock: Clock | None = None) -> LocalMachine:
    """Return a machine of the cluster that an `up` works on."""
    control = Control(work.places)
    return LocalMachine(
        at=lambda _: host, clock=clock or work.clock, random=work.random, layout=host.layout, look=lambda: require_well(work, control)
    )


@dataclass(frozen=True, kw_only=True)
class Request:
    """What `up` does to the first machine, and the joins of further ones, None where there are none to be."""

    work: Work
    joins: Joins | None


def bring_up(work: Work) -> tuple[tuple[Change, ...], float]:
    """Run the phases, let nodes join, and wait until the cluster is well. Returns the changes and when the API server was ready."""
    with further_joins(work) as joins:
        done = operation.run(UP, Request(work=work, joins=joins), machine_of(work, work.host), reporter=work.reporter)
    milestones = cast("LocalContext", done.context).milestones
    if done.changes or not work.places.timings.exists():  # a run that was killed may have left the last one nothing to change
        save_timings(work, milestones)
    return done.changes, milestones["apiReady"]


def prepare(request: Request, machine: Machine) -> Prepared[Configuration]:
    """Load the configuration of the first machine. Raises as `configuration.load` does."""
    work = request.work
    loaded = configuration.load(
        work.cluster.config,
        machine=work.cluster.control_plane,
        layout=work.host.layout,
        version=work.cluster.kubernetes_version,
        detected=work.host.facts.detected,
        random=machine.random,
    )
    return Prepared(
        configuration=loaded.configuration,
        host=work.host,
        warnings=loaded.warnings,
        skip=tuple(_skipped(loaded.configuration.init.skip_phases)),
    )


def _skipped(names: Sequence[str]) -> list[str]:
    """Return those of init's phases to skip that a local cluster has at all: there are no uploaded certificates, for example."""
    local, general = {node.name for node in LOCAL_INIT.nodes}, {node.name for node in phases.PHASES.nodes}
    return [name for name in names if name in local or name not in general]


def context(request: Request, configured: Configuration, bound: Bound) -> LocalContext:
    """Make the context of the phases."""
    work, joins = request.work, request.joins
    machine, control = work.cluster.control_plane, Control(work.places)
    return LocalContext(
        bound=bound,
        configuration=configured,
        layout=work.host.layout,
        addresses=machine.addresses,
        look=cast("LocalMachine", bound.machine).look,
        overrides=lambda component: flags.overrides(component, machine.addresses, alone=work.cluster.alone),
        health_checks={name: functools.partial(healthy, control, machine.name, name) for name in HEALTHY},
        request=InitRequest(upload_certs=joins is not None, show_certificate_key=False),
        record=work.cluster,
        places=work.places,
        daemon=work.daemon,
        joins=joins,
        free_leases=work.free_leases,
        plain=work.waiter,
        within=work.within,
        start=work.start,
    )


@contextmanager
def further_joins(work: Work) -> Iterator[Joins | None]:
    """Give what lets further control planes join, None where there are none to be; joins that still run in the end are called off."""
    if not work.cluster.further:
        yield None
        return
    from kubewright.local.joining import MachineJoins

    joins = MachineJoins(work)
    try:
        yield joins
    finally:
        joins.call_off()


UP: Final = Operation(name="up", phases=LOCAL_INIT, configure=prepare, context=context, policy=Policy(locks=False))
"""The part of `up` that is done to the first machine. The cluster has a lock, and a record, of its own."""


def require_well(work: Work, control: Control) -> None:
    """Raise ComponentFailed where the daemon or a component is in such a state that waiting is pointless."""
    work.daemon.require_alive()
    if work.daemon.retried():
        require_alive(_status(control), leaving={machine.name for machine in work.cluster.leaving})


def _status(control: Control) -> Answer:
    try:
        return control.status()
    except APIError:  # the daemon is about to come up, or to be found dead by whoever waits for it
        return {}


def healthy(control: Control, machine: str, name: str) -> str | None:
    """Say what a component of a machine lacks, None if it is ready."""
    for component in _status(control).get("components", []):
        if (component["machine"], component["name"]) == (machine, name):
            return None if component["state"] == "Ready" else component["reason"] or component["state"]
    return "it has not been started"


def save_timings(work: Work, milestones: Mapping[str, float]) -> None:
    """Keep the milestones of this run for `local status`."""
    content = json.dumps(milestones).encode()
    Files(durable=False).write(File(path=PurePosixPath(work.places.timings), content=content, mode=0o600))
