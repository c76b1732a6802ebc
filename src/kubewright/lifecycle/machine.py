"""The machine on which an operation runs: all access to it goes through this object."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.apis.machine import Layout
from kubewright.base.clock import Clock
from kubewright.base.errors import UsageError
from kubewright.base.events import Reporter, SilentReporter
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
"""The lock of a machine, which all operations use."""

LONG: Final = 30.0
"""Seconds that one request to a cluster may take."""


@dataclass(frozen=True, kw_only=True)
class TargetMachine:
    """The machine on which an operation runs.

    `at` returns its host for a layout: a configuration, which is loaded with facts of the machine, may change paths.

    `layout` has the paths that a configuration leaves unset. `environment` are the variables of the user who runs the
    operation. `sync` makes all writes survive a power cut at the end; it raises HostError. `look` is called while
    requests to the cluster fail: it raises if retrying is pointless. `program` is the command that starts kubewright on
    this machine, for later calls. `reporter` is that of the run, for the progress of reading large files of a request.
    """

    at: Callable[[Layout], Host]
    clock: Clock
    random: Random
    layout: Layout = Layout()
    environment: Mapping[str, str] = field(default_factory=dict)
    sync: Callable[[], None] = lambda: None
    look: Callable[[], None] = lambda: None
    program: Sequence[str] = (sys.executable, "-m", "kubewright")
    reporter: Reporter = SilentReporter()

    def client(self, access: Access, *, timeout: float = LONG, proxied: bool = True) -> KubeAPI:
        """Return a client of a cluster, through the proxies of the environment, as in kubeadm, unless it is the machine's own.

        Opens nothing.
        """
        from kubewright.http.proxies import Proxies
        from kubewright.kube.client import KubeClient

        proxies = Proxies.from_environment(self.environment) if proxied else None
        return KubeClient(access, timeout=timeout, proxies=proxies)

    def waiter(self, reporter: Reporter) -> Waiter:
        """Return a waiter for this machine."""
        return PollingWaiter(clock=self.clock, reporter=reporter)

    def diagnosis(self, names: Sequence[str], *, host: Host, bootstrap: BootstrapLook | None = None) -> Diagnosis:
        """Return a diagnosis of static pods of this machine, or its kubelet, from now on, in the order of their dependencies."""
        from kubewright.lifecycle.diagnosis.watch import ComponentWatch  # only for phases that wait

        return ComponentWatch(names, host=host, clock=self.clock, bootstrap=bootstrap)

    def lock_directory(self, host: Host) -> PurePosixPath:
        """Return the directory of the lock."""
        return lock_directory(host, self.environment)


def lock_directory(host: Host, environment: Mapping[str, str]) -> PurePosixPath:
    """Return the directory of a machine's lock: that of all users or, for users who may not write there, their own."""
    return host.layout.run if is_root(host) else state_home(environment)


def is_root(host: Host) -> bool:
    """Whether root runs the operation."""
    return host.facts.user == 0


def state_home(environment: Mapping[str, str]) -> PurePosixPath:
    """Return the directory for kubewright's files of a user.

    Raises UsageError if neither it nor a home directory is known.
    """
    named = environment.get("XDG_STATE_HOME", "")
    if named.startswith("/"):  # a relative path is to be ignored (XDG Base Directory Specification)
        return PurePosixPath(named) / "kubewright"
    home = environment.get("HOME", "")
    if not home.startswith("/"):
        raise UsageError("no home directory is known", remedy="set HOME or XDG_STATE_HOME")
    return PurePosixPath(home) / ".local" / "state" / "kubewright"
