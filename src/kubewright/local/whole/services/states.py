"""The running machines of a cluster, as its daemon observes them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kubewright.local.paths import ClusterPaths
from kubewright.local.whole import members
from kubewright.machines.machine import Machine

EVERY: Final = 1.0
"""Seconds between two observations."""
STOPPED_EVERY: Final = 5
"""The interval, in observations, at which stopped machines are included: finding a process in all their cgroups takes longer."""


class MachineStates:
    """The running machines. `expect` sets which machines exist; `run` observes them periodically."""

    def __init__(self, paths: ClusterPaths) -> None:
        self._paths = paths
        self._machines: dict[str, Machine] = {}
        self._addresses: dict[str, tuple[str, ...]] = {}
        self._running: dict[str, tuple[str, ...]] = {}
        self._readers: list[Callable[[], None]] = []

    @property
    def running(self) -> Mapping[str, tuple[str, ...]]:
        """The addresses of the machines that run, by name."""
        return self._running

    def subscribe(self, reader: Callable[[], None]) -> None:
        """Call a function whenever a machine has started or stopped."""
        self._readers.append(reader)

    def expect(self, addresses: Mapping[str, Sequence[str]]) -> None:
        """Watch these machines, and no others."""
        self._machines = {name: self._machines.get(name) or members.machine_of_group(self._paths, name) for name in addresses}
        self._addresses = {name: tuple(found) for name, found in addresses.items()}
        self._look()

    def machine(self, name: str) -> Machine | None:
        """Return a machine that runs."""
        return self._machines[name] if name in self._running else None

    def found(self, name: str) -> Machine | None:
        """Return a machine, whether it runs or not; None for an unknown one."""
        return self._machines.get(name)

    def exists(self, name: str) -> bool:
        """Return whether there is such a machine."""
        return name in self._machines

    async def run(self) -> None:
        """Observe until cancelled."""
        for count in itertools.count(1):
            await asyncio.sleep(EVERY)
            self._look(stopped=count % STOPPED_EVERY == 0)

    def _look(self, *, stopped: bool = True) -> None:
        looked = {name: machine for name, machine in self._machines.items() if stopped or name in self._running}
        found = {name: self._addresses[name] for name, machine in looked.items() if machine.runs}
        if found != self._running:
            self._running = found
            for reader in self._readers:
                reader()
