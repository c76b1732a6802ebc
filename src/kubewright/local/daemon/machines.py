"""The machines of a cluster in its daemon, with one supervisor each."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

from kubewright.base.errors import HostError
from kubewright.base.events import SilentReporter
from kubewright.base.messages import quoted
from kubewright.local import record
from kubewright.local.daemon_process import DaemonSettings
from kubewright.local.flags import START_AFTER
from kubewright.local.mark import Mark
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord, LocalMachineRecord
from kubewright.local.supervisor.process import DOWN
from kubewright.local.supervisor.state import ComponentState, NodeAddress, ProbeIdentity
from kubewright.local.supervisor.supervisor import Supervisor


class MachineSupervisors:
    """All machines of a cluster that run here.

    created ── start() ──> those of the record are supervised ── begin(), end() ──> ... ── stop() or release() ──> none
    """

    def __init__(self, paths: ClusterPaths, cluster: ClusterRecord, settings: DaemonSettings) -> None:
        self._paths = paths
        self._cluster = cluster
        self._programs = {name: Path(path) for name, path in settings.programs.items()}
        self._supervisors: dict[str, Supervisor] = {}

    @property
    def first(self) -> LocalMachineRecord:
        """The first control plane machine, which exists as long as the cluster does."""
        return self._cluster.control_plane

    async def start(self) -> None:
        """Supervise every machine of the record, starting with the first one, because the others wait for it."""
        for machine in self._cluster.machines:
            await self._supervise(machine)

    async def begin(self, name: str) -> LocalMachineRecord:
        """Supervise a machine; one that is supervised is left alone.

        The record is read again: the machine may be newer than the daemon, and have the name of one that was removed.
        Raises HostError if the machine does not exist.
        """
        self._cluster = record.load(self._paths.record) or self._cluster
        machine = self._cluster.machine(name)
        if machine is None:
            raise HostError(f"there is no machine {quoted(name)}", remedy="run `kubewright up` again")
        await self._supervise(machine)
        return machine

    async def end(self, names: Collection[str]) -> None:
        """Stop every process of some machines; those that are not supervised are left alone."""
        ending = [self._supervisors.pop(name) for name in names if name in self._supervisors]  # first: `begin` leaves existing ones alone
        await asyncio.gather(*(supervisor.stop(DOWN) for supervisor in ending))

    def supervised(self) -> list[LocalMachineRecord]:
        """Return the supervised machines that the record has, in its order."""
        return [machine for machine in self._cluster.machines if machine.name in self._supervisors]

    def supervisor(self, name: str) -> Supervisor:
        """Return the supervisor of a machine; the first one's for ''. Raises KeyError."""
        return self._supervisors[name or self.first.name]

    def snapshot(self) -> list[tuple[str, Supervisor, list[ComponentState]]]:
        """Return machine, supervisor and components of each machine."""
        return [(name, supervisor, supervisor.snapshot()) for name, supervisor in self._supervisors.items()]

    def retry(self) -> None:
        """Start components in back-off at once."""
        for supervisor in self._supervisors.values():
            supervisor.retry()

    async def stop(self) -> None:
        """Stop every process. Idempotent."""
        await asyncio.gather(*(supervisor.stop(DOWN) for supervisor in self._supervisors.values()))

    async def release(self) -> None:
        """Leave the processes alone, for the next daemon."""
        await asyncio.gather(*(supervisor.release() for supervisor in self._supervisors.values()))

    async def _supervise(self, machine: LocalMachineRecord) -> None:
        if machine.name not in self._supervisors:
            supervisor = self._supervisor(machine)
            await supervisor.start()  # it may fail, for example on a full disk: nothing runs then
            self._supervisors[machine.name] = supervisor

    def _supervisor(self, machine: LocalMachineRecord) -> Supervisor:
        layout = self._paths.layout(machine.name)
        return Supervisor(
            Path(layout.manifests),
            Path(layout.run),
            self._paths.logs(machine.name),
            self._programs,
            node=NodeAddress(name=machine.name, ip=machine.address),
            mark=Mark(directory=str(self._paths.root), id=self._cluster.id),
            reporter=SilentReporter(),
            probe_identity=ProbeIdentity(
                certificate=Path(layout.certificate("etcd/healthcheck-client")),
                key=Path(layout.key("etcd/healthcheck-client")),
                ports=frozenset({machine.ports["etcd_metrics"]}),
            ),
            after=START_AFTER,
        )
