"""One `up` of a cluster of machines: the desired cluster, its machines, and the dependencies of the steps."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from kubewright.base.clock import Clock
from kubewright.base.errors import HostError
from kubewright.base.events import Reporter, State
from kubewright.base.records import dataclass
from kubewright.base.wait import PollingWaiter, Waiter
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord, LocalMachineRecord
from kubewright.local.up_options import UpOptions
from kubewright.local.whole import kernel, members
from kubewright.machines.group import Group


@dataclass(frozen=True, kw_only=True)
class Moment:
    """A moment to compare timestamps of other programs with. The host's clock may be set after it."""

    clock: Clock
    wall: datetime
    monotonic: float

    @classmethod
    def now(cls, clock: Clock) -> Moment:
        """Return this moment."""
        return cls(clock=clock, wall=clock.now(), monotonic=clock.monotonic())

    @property
    def time(self) -> datetime:
        """The time of this moment by the clock of then or, if the clock has been set back since, by the present clock."""
        return min(self.wall, self.clock.now() - timedelta(seconds=self.clock.monotonic() - self.monotonic))


@dataclass(frozen=True, kw_only=True)
class MachinesRun:
    """One `up --machines`. `former` is the cluster before it; for a new cluster it is the cluster itself.

    The token and the key by which certificates are sealed for further control planes are those of this run.
    """

    paths: ClusterPaths
    cluster: ClusterRecord
    former: ClusterRecord
    group: Group
    token: str
    certificate_key: str
    options: UpOptions
    reporter: Reporter
    clock: Clock
    start: float

    @property
    def first(self) -> LocalMachineRecord:
        """The first control plane."""
        return self.cluster.control_plane

    @property
    def planes(self) -> list[str]:
        """The names of all control planes, also of those that leave."""
        return [machine.name for machine in self.cluster.machines]

    @property
    def unverified(self) -> bool:
        """Whether the check SystemVerification cannot pass: it refuses cgroup v1, and a kernel whose configuration cannot be read."""
        return not Path("/sys/fs/cgroup/cgroup.controllers").exists() or kernel.configuration() is None

    @property
    def waiter(self) -> Waiter:
        """Waits, and shows what it waits for."""
        return PollingWaiter(clock=self.clock, reporter=self.reporter)

    def require_running(self) -> None:
        """Require that all machines are running, because waiting for a stopped one is pointless. Raises HostError."""
        for name in members.members(self.cluster.settled()):
            if not self.group.machines[name].runs:
                raise HostError(f"machine {name} has stopped", remedy=f"`sudo kubewright up --name {self.paths.name}` starts it again")

    def mark(self, subject: str, state: str) -> None:
        """Report a new state of a machine, or a milestone."""
        self.reporter.emit(State(subject=subject, state=state, elapsed=self.clock.monotonic() - self.start))
