"""One `up` at work: what is to be brought up and by which means, its machines as operations see them, and whether all is well with them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from kubewright.base.clock import Clock
from kubewright.base.errors import APIError
from kubewright.base.events import Reporter
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass
from kubewright.base.waiting import PollingWaiter, Waiter
from kubewright.host.real import RealHost
from kubewright.kube.api import KubeAPI
from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import Access
from kubewright.lifecycle.machine import LONG, Machine
from kubewright.local.context import WatchfulWaiter, require_alive
from kubewright.local.control import Answer, Control, Daemon
from kubewright.local.machine import local_machine
from kubewright.local.places import Places
from kubewright.local.record import ClusterRecord

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
