"""A machine to which something is done: everything with which it is reached. Nothing of it is reached around this."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.apis.machine import Layout
from kubewright.base.clock import Clock
from kubewright.base.errors import UsageError
from kubewright.base.events import Reporter
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass, field
from kubewright.base.wait import PollingWaiter, Waiter

if TYPE_CHECKING:
    from kubewright.host.seam import Host
    from kubewright.kube.api import KubeAPI
    from kubewright.kube.credentials import Access
    from kubewright.lifecycle.diagnosis.cluster import BootstrapLook
    from kubewright.lifecycle.diagnosis.watch import Diagnosis

LOCK: Final = "machine.lock"
"""The lock of a machine, whatever is done to it."""

LONG: Final = 30.0
"""Seconds that one request to a cluster may take."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One machine. `at` gives it with a layout: a configuration, which is loaded with what the machine tells, may move places.

    `layout` is where it has what a configuration leaves open. `environment` holds the variables of whoever runs the operation. `sync` makes sure,
    in the end, that what was written survives a power cut; it raises HostError. `look` is called while requests to the cluster fail: it raises
    where trying again is pointless. `program` is how kubewright is called on this machine, for what calls it later.
    """

    at: Callable[[Layout], Host]
    clock: Clock
    random: Random
    layout: Layout = Layout()
    environment: Mapping[str, str] = field(default_factory=dict)
    sync: Callable[[], None] = lambda: None
    look: Callable[[], None] = lambda: None
    program: Sequence[str] = (sys.executable, "-m", "kubewright")

    def client(self, access: Access, *, timeout: float = LONG, proxied: bool = True) -> KubeAPI:
        """Make a client of a cluster; unless it is the machine's own, through the proxies of the environment, as kubeadm's. Opens nothing."""
        from kubewright.http.proxies import Proxies
        from kubewright.kube.client import KubeClient

        proxies = Proxies.from_environment(self.environment) if proxied else None
        return KubeClient(access, timeout=timeout, proxies=proxies)

    def waiter(self, reporter: Reporter) -> Waiter:
        """Make what waits for things on this machine."""
        return PollingWaiter(clock=self.clock, reporter=reporter)

    def diagnosis(self, names: Sequence[str], *, host: Host, bootstrap: BootstrapLook | None = None) -> Diagnosis:
        """Make what says why static pods of this machine, or its kubelet, are not there yet, from now on. The order is that of their needs."""
        from kubewright.lifecycle.diagnosis.watch import ComponentWatch  # for those that wait

        return ComponentWatch(names, host=host, clock=self.clock, bootstrap=bootstrap)

    def lock_directory(self, host: Host) -> PurePosixPath:
        """Return where the lock lies."""
        return lock_directory(host, self.environment)


def lock_directory(host: Host, environment: Mapping[str, str]) -> PurePosixPath:
    """Return where the lock of a machine lies: that of all users, or, for who may not write there, of one."""
    return host.layout.run if is_root(host) else state_home(environment)


def is_root(host: Host) -> bool:
    """Whether root runs the operation."""
    return host.facts.user == 0


def state_home(environment: Mapping[str, str]) -> PurePosixPath:
    """Return the directory for what kubewright keeps for a user. Raises UsageError if neither it nor a home directory is known."""
    named = environment.get("XDG_STATE_HOME", "")
    if named.startswith("/"):  # the specification says to ignore a relative one
        return PurePosixPath(named) / "kubewright"
    home = environment.get("HOME", "")
    if not home.startswith("/"):
        raise UsageError("no home directory is known", remedy="set HOME or XDG_STATE_HOME")
    return PurePosixPath(home) / ".local" / "state" / "kubewright"
