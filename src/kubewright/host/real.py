"""The machine that we run on."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import Final

from kubewright.apis.machine import Layout
from kubewright.base.errors import HostError
from kubewright.host import decisions
from kubewright.host.desired import PARTIAL, Generated, Streamed
from kubewright.host.facts import Facts, gather
from kubewright.host.filesystem.files import Files
from kubewright.host.network.interfaces import RealNetwork
from kubewright.host.processes import RealProcesses
from kubewright.host.programs.commands import RealCommands, RealPrograms
from kubewright.host.seam import ContainerRuntime, PacketFilter, Services, Tunnels
from kubewright.host.store import StoreHost

_SAID: Final = 500
"""Characters of a program's output that are reported."""


class RealHost(StoreHost):
    """The machine that we run on, with the given layout: its own, or one below a state directory.

    `services` and `runtime` replace systemd and the container runtime. Without `services`, these verbs raise HostError,
    unless `looks_for_services` is set and systemd is the init system. Without `runtime`, the runtime at the layout's
    socket is used, or else one is detected. Works as an ordinary user as far as file modes allow.
    """

    def __init__(
        self,
        *,
        layout: Layout,
        files: Files | None = None,
        services: Services | None = None,
        looks_for_services: bool = False,
        runtime: ContainerRuntime | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.files = files or Files()
        self.files.allow_any_owner(layout.etcd_data)
        super().__init__(self.files, layout=layout)
        self.network = RealNetwork()
        self.processes = RealProcesses()
        self._given_services = services
        self._looks_for_services = looks_for_services
        self._runtime = runtime
        self._environment = os.environ if environment is None else environment
        self.programs = RealPrograms(environment=self._environment)

    @property
    def runtime(self) -> ContainerRuntime:
        """The given runtime, else the one of the layout's socket, else the one that is detected.

        Raises HostError if there are several.
        """
        if self._runtime is None:
            from kubewright.host.cri.runtime import CRIRuntime, choose_socket

            self._runtime = CRIRuntime(self.layout.cri_socket or choose_socket(self.facts.detected.cri_sockets))
        return self._runtime

    @cached_property
    def _services(self) -> Services | None:
        if self._given_services is not None or not self._looks_for_services:
            return self._given_services
        from kubewright.host.programs import systemd  # the modules for running programs are not needed to write files

        return systemd.find(self.files, environment=self._environment)

    def _generate(self, desired: Generated) -> None:
        for left in self.files.entries(desired.path.parent):
            if left.name.startswith(f"{desired.path.name}{PARTIAL}"):
                with suppress(HostError):  # what is still written cannot be removed
                    self.files.remove(left, below=[left])
        partial = desired.partial(os.getpid())
        argv = desired.arguments(partial)
        ended = RealCommands(environment=self._environment).run(argv, within=desired.within)
        if ended.code:
            self.files.remove(partial, below=[partial])
            said = (ended.err or ended.out).strip().splitlines()[-1:]
            raise HostError(
                f"{argv[0]} failed",
                detail=" ".join([f"exit code {ended.code}:", *said])[:_SAID],
                remedy=f"see what it says: {shlex.join(argv)}",
            )
        self.files.move(partial, desired.path)

    def _stream(self, desired: Streamed) -> None:
        decisions.require_space(self.files.space(desired.path.parent), desired)
        with self.files.replacing(desired.path, mode=desired.mode) as file:
            for piece in desired.pieces():
                file.write(piece)

    @cached_property
    def _tunnels(self) -> Tunnels:
        from kubewright.host.programs.tunnels import RealTunnels

        return RealTunnels(RealCommands(environment=self._environment), programs=self.programs)

    @cached_property
    def facts(self) -> Facts:
        return gather(self, self.network, environment=self._environment, architecture=os.uname().machine)

    @cached_property
    def packet_filter(self) -> PacketFilter:
        from kubewright.host.programs.packet_filter import RealPacketFilter

        return RealPacketFilter(RealCommands(environment=self._environment), programs=self.programs)
