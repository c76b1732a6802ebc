"""A run of `up`: its options, the context of its phases, and detection of failures that make waiting pointless."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from kubewright.apis.kubeadm.types import Configuration
from kubewright.base.change import Change
from kubewright.base.clock import Clock
from kubewright.base.errors import APIError, ComponentFailed
from kubewright.base.events import Reporter, State, Waited
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass, field, replace
from kubewright.base.wait import Condition, PollingWaiter, Wait, Waiter
from kubewright.host.real import RealHost
from kubewright.host.seam import Host
from kubewright.kube.api import KubeAPI
from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import Access
from kubewright.kube.kubeconfigs import load_access
from kubewright.lifecycle.diagnosis.cluster import BootstrapLook
from kubewright.lifecycle.diagnosis.watch import Diagnosis, LastLines
from kubewright.lifecycle.init.context import InitContext
from kubewright.lifecycle.machine import LONG, TargetMachine
from kubewright.local.cluster.daemon_client import ControlClient, Daemon, Reply, remedy_for
from kubewright.local.cluster.machine import machine_host
from kubewright.local.paths import ClusterPaths
from kubewright.local.programs import COMPONENTS
from kubewright.local.record import ClusterRecord

_CHECK_EVERY: Final = 0.5
"""Seconds between two checks of the components during other waits."""


@dataclass(frozen=True, kw_only=True)
class UpRun:
    """One `up`: the desired cluster, and its dependencies.

    `waiter` waits without checking the components; `start` is when `up` began.
    """

    paths: ClusterPaths
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
    """Whether the leases of leader election, if any, belong to processes that have ended."""

    @functools.cached_property
    def host(self) -> RealHost:
        """The control plane's machine."""
        return machine_host(self.paths, self.cluster.control_plane.name, programs=self.programs, daemon=self.daemon)


class WatchfulWaiter(Waiter):
    """Waits as another waiter does, and checks the control plane periodically: `look` raises if waiting is pointless.

    A component with a bad flag fails within a second; without this check, that would be reported only after the
    timeout.
    """

    def __init__(self, inner: Waiter, *, look: Callable[[], None], monotonic: Callable[[], float]) -> None:
        self._inner = inner
        self._look = look
        self._monotonic = monotonic
        self._looked = 0.0

    def wait(self, asked: Wait, /) -> Waited:
        def watched() -> str | None:
            reason = asked.condition()
            if reason is not None and self._monotonic() - self._looked >= _CHECK_EVERY:
                self._looked = self._monotonic()
                self._look()
            return reason

        return self._inner.wait(replace(asked, condition=watched))


def require_components(status: Reply, *, leaving: Collection[str] = ()) -> None:
    """Raise ComponentFailed, with its last lines, if a component crashes in a loop or cannot be started.

    Leaving machines do not count.
    """
    components = [component for component in status.get("components", []) if component["machine"] not in leaving]
    several = len({component["machine"] for component in components}) > 1
    for component in components:
        if component["state"] == "CrashLoop" or component.get("refused"):
            lines = [component["reason"], *component.get("lastWords", [])]
            where = f" of {component['machine']}" if several else ""
            raise ComponentFailed(
                f"{component['name']}{where} does not stay up",
                detail="\n".join(lines),
                remedy=f"{remedy_for(lines, 'fix the reported problem, for example in extraArgs')}, then run `kubewright up` again",
            )


@dataclass(frozen=True, kw_only=True)
class LocalMachine(TargetMachine):
    """A machine whose components are checked during other waits."""

    def client(self, access: Access, *, timeout: float = LONG, proxied: bool = True) -> KubeAPI:
        """Return a client; a local cluster is never behind a proxy."""
        return KubeClient(access, timeout=timeout)

    def waiter(self, reporter: Reporter) -> Waiter:
        return WatchfulWaiter(PollingWaiter(clock=self.clock, reporter=reporter), look=self.look, monotonic=self.clock.monotonic)

    def diagnosis(self, names: Sequence[str], *, host: Host, bootstrap: BootstrapLook | None = None) -> Diagnosis:
        """Return a diagnosis that has last lines only: `look` checks the processes."""
        return LastLines(names, host=host)


def machine_of(run: UpRun, host: RealHost, *, clock: Clock | None = None) -> LocalMachine:
    """Return a machine of an `up`'s cluster."""
    control = ControlClient(run.paths)
    return LocalMachine(
        at=lambda _: host, clock=clock or run.clock, random=run.random, layout=host.layout, look=lambda: require_alive(run, control)
    )


def require_alive(run: UpRun, control: ControlClient) -> None:
    """Raise ComponentFailed if waiting is pointless because of the daemon's or a component's state."""
    run.daemon.require_alive()
    if run.daemon.retried():
        require_components(_status(control), leaving={machine.name for machine in run.cluster.leaving})


def _status(control: ControlClient) -> Reply:
    try:
        return control.status()
    except APIError:  # the daemon is still starting, or its waiter will find that it is dead
        return {}


def component_checks(run: UpRun, machine: str) -> dict[str, Condition]:
    """Return the readiness conditions of a machine's components by name."""
    control = ControlClient(run.paths)
    return {name: functools.partial(_unready, control, machine, name) for name in COMPONENTS}


def _unready(control: ControlClient, machine: str, name: str) -> str | None:
    """Return why a component of a machine is not ready, None if it is."""
    for component in _status(control).get("components", []):
        if (component["machine"], component["name"]) == (machine, name):
            return None if component["state"] == "Ready" else component["reason"] or component["state"]
    return "it has not been started"


@dataclass(frozen=True, kw_only=True)
class JoinCredentials:
    """The current credentials for joins: the token of each node, and the certificate key for further control planes."""

    server: str
    tokens: Mapping[str, str]
    pins: tuple[str, ...]
    certificate_key: str


class ControlPlaneJoins(Protocol):
    """The joins of further control planes, which run concurrently with the phases of the first one."""

    @property
    def newcomers(self) -> Sequence[str]:
        """The machines that need credentials: they have never joined, or have lost their files."""
        ...

    def start(self, credentials: JoinCredentials | None, configured: Configuration) -> None:
        """Start joining newcomers with the credentials, and repair the others; returns at once.

        `configured` is the first machine's configuration.
        """
        ...

    def finish(self) -> Iterable[Change]:
        """Wait until all have joined; return the changes. Raises the error of the first one that failed."""
        ...

    def cancel(self) -> None:
        """Cancel the joins that still run, and wait for their end. Idempotent."""
        ...


@dataclass(frozen=True, kw_only=True)
class LocalContext(InitContext):
    """The first machine in a run of `up`."""

    run: UpRun
    joins: ControlPlaneJoins | None = None
    milestones: dict[str, float] = field(default_factory=dict)

    @functools.cached_property
    def health_checks(self) -> Mapping[str, Condition]:
        """The readiness conditions of the components by name."""
        return component_checks(self.run, self.run.cluster.control_plane.name)

    def connect(self, name: str, *, timeout: float = LONG) -> KubeAPI:
        """Return a client for a kubeconfig of the machine. There are no plans here, so their modules are not loaded."""
        return self.bound.connections.kube(load_access(self.layout.kubeconfig(name), read=self.host.read), timeout=timeout)

    @functools.cached_property
    def control(self) -> ControlClient:
        """The daemon's control socket; waits for it at first use."""
        return self.run.daemon.serving(waiter=self.run.waiter)

    def mark(self, name: str) -> None:
        """Record that a milestone is reached now."""
        self.milestones[name] = round(self.clock.monotonic() - self.run.start, 3)
        self.reporter.emit(State(subject=name, state="reached", elapsed=self.milestones[name]))
