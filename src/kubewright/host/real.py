"""The machine that we run on."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath

from kubewright.apis.layout import Layout
from kubewright.base.change import Action, Change
from kubewright.base.errors import HostError
from kubewright.base.records import replace
from kubewright.host import mounts
from kubewright.host.decisions import (
    UNITS,
    decide_accounts,
    decide_directory,
    decide_emptying,
    decide_file,
    decide_no_accounts,
    decide_no_units,
    decide_ownership,
    decide_removal,
    decide_service,
    roots,
    service_verbs,
)
from kubewright.host.desired import Accounts, Desired, Directory, File, Ownership, Service
from kubewright.host.facts import Facts, gather
from kubewright.host.files import Files
from kubewright.host.network import RealNetwork
from kubewright.host.processes import RealProcesses
from kubewright.host.programs import RealPrograms
from kubewright.host.seam import ContainerRuntime, PacketFilter, Services
from kubewright.host.states import FileState, Kind, ServiceState
from kubewright.host.trees import unknown_mounts


class RealHost:
    """The machine that we run on, with the layout given: its own, or one below a state directory.

    `services` and `runtime` are what stands for systemd and the container runtime. Without services their verbs raise HostError, unless
    `looks_for_services`: then systemd does them where it is the init system. The runtime is the one of the layout's socket, else it is looked for.
    Works as an ordinary user as far as the modes of files let it.
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
        self.layout = layout
        self.files = files or Files()
        self.network = RealNetwork()
        self.processes = RealProcesses()
        self._given_services = services
        self._looks_for_services = looks_for_services
        self._runtime = runtime
        self._environment = os.environ if environment is None else environment
        self.programs = RealPrograms(environment=self._environment)

    @property
    def runtime(self) -> ContainerRuntime:
        """The runtime that was given, else the one of the layout's socket, else the one whose socket is here. Raises HostError where there are several."""
        if self._runtime is None:
            from kubewright.host.cri.runtime import CRIRuntime, choose_socket

            self._runtime = CRIRuntime(self.layout.cri_socket or choose_socket(self.facts.detected.cri_sockets))
        return self._runtime

    @cached_property
    def _services(self) -> Services | None:
        if self._given_services is not None or not self._looks_for_services:
            return self._given_services
        from kubewright.host import systemd  # what it runs programs with is not needed to write files

        return systemd.find(self.files, environment=self._environment)

    @cached_property
    def facts(self) -> Facts:
        return gather(self, self.network, environment=self._environment, architecture=os.uname().machine)

    def read(self, path: PurePosixPath, /) -> bytes | None:
        return self.files.read(path)

    def state(self, path: PurePosixPath, /) -> FileState | None:
        return self.files.state(path)

    def entries(self, path: PurePosixPath, /) -> list[PurePosixPath]:
        return self.files.entries(path)

    def weakness(self, path: PurePosixPath, /) -> str:
        return self.files.weakness(path)

    def service(self, name: str, /) -> ServiceState | None:
        return None if self._services is None else self._services.state(name)

    def service_lines(self, name: str, /, *, count: int) -> list[str]:
        return [] if self._services is None else self._services.last_lines(name, count=count)

    def ensure(self, desired: Desired, /) -> Change:
        match desired:
            case File():
                return self._ensure_file(desired)
            case Directory():
                return self._ensure_directory(desired)
            case Service():
                return self._ensure_service(desired)
            case Accounts():
                return self._ensure_accounts(desired)
            case Ownership():
                return self._ensure_ownership(desired)

    def remove(self, path: PurePosixPath, /) -> Change:
        change = decide_removal(self.state(path), path, layout=self.layout)
        if change:
            self.files.remove(path, below=roots(self.layout))
        self.files.clean(path.parent)  # also for one that never came to be: half of it may be there
        return change

    def empty(self, path: PurePosixPath, /, *, own: Collection[PurePosixPath] = ()) -> Change:
        change = decide_emptying(self.files.entries(path, temporary=True), path, layout=self.layout, own=own)
        if change:
            self.files.empty(path, below=(*roots(self.layout), *own)).require_none(path)
        return change

    def mounts(self, directory: PurePosixPath, /) -> list[PurePosixPath]:
        table = self.read(mounts.TABLE)
        if table is not None:
            return mounts.below(table, _real(directory))
        if not self.files.entries(directory, temporary=True):
            return []
        raise unknown_mounts(f"nobody knows what is mounted below {directory}")

    def unmount(self, path: PurePosixPath, /, *, flags: Collection[str] = ()) -> Change:
        allowed = _real(self.layout.kubelet)
        change = mounts.decide_unmount(self.mounts(allowed), path, allowed=allowed)
        return change if change and mounts.unmount(path, flags=flags) else replace(change, action=Action.NONE)

    def remove_units(self, service: str, /, *, units: Sequence[PurePosixPath]) -> Change:
        there = [path for path in units if self.state(path) is not None]
        change = decide_no_units(there, service)
        if not change:
            return change
        whole = [path for path in there if path.parent == UNITS]
        drop_ins = [path for path in there if path not in whole]
        if self._services is not None and whole:  # systemd does not disable a unit that an earlier run has removed
            self._services.disable(service)
        for path in (*drop_ins, *whole):  # a run that is broken off leaves the unit, which the next one can disable
            self.files.remove(path, below=[UNITS])
            if path.parent != UNITS and not self.entries(path.parent):
                self.files.remove(path.parent, below=[UNITS])
        if self._services is not None:
            self._services.reload()
        return change

    def remove_accounts(self, unwanted: Accounts, /) -> Change:
        from kubewright.host import accounts

        passwd, group = unwanted.etc / accounts.PASSWD, unwanted.etc / accounts.GROUP
        with accounts.lock_accounts(group, passwd):
            before = {path: accounts.read_accounts(self, path) for path in (passwd, group)}
            left = accounts.remove_accounts(before[passwd], before[group], unwanted=unwanted)
            for path, text in ((passwd, left.passwd), (group, left.group)):  # no user is ever without its group
                if text != before[path]:
                    self.files.write(accounts.replacement(path, text, self.state(path)))
        return decide_no_accounts(left, unwanted)

    @cached_property
    def packet_filter(self) -> PacketFilter:
        from kubewright.host.packet_filter import RealPacketFilter
        from kubewright.host.programs import RealCommands

        return RealPacketFilter(RealCommands(environment=self._environment), programs=self.programs)

    def _ensure_file(self, desired: File) -> Change:
        found = self.state(desired.path)
        content = self.read(desired.path) if found is not None and found.kind is Kind.FILE else None
        change = decide_file(found, content, desired)
        if change.action is not Action.NONE:
            self.files.write(desired)
        return change

    def _ensure_directory(self, desired: Directory) -> Change:
        change = decide_directory(self.state(desired.path), desired)
        if change.action is not Action.NONE:
            self.files.make(desired)
        return change

    def _ensure_accounts(self, desired: Accounts) -> Change:
        from kubewright.host import accounts

        passwd, group = desired.etc / accounts.PASSWD, desired.etc / accounts.GROUP
        accounts.read_accounts(self, passwd)  # whether there is one at all is told before it is locked
        with accounts.lock_accounts(group, passwd):
            login_defs = (self.read(desired.etc / accounts.LOGIN_DEFS) or b"").decode("utf-8", errors="replace")
            before = {path: accounts.read_accounts(self, path) for path in (group, passwd)}
            added = accounts.add_accounts(before[passwd], before[group], login_defs=login_defs, wanted=desired)
            for path, text in ((group, added.group), (passwd, added.passwd)):  # no user is ever without its group
                if text != before[path]:
                    self.files.write(accounts.replacement(path, text, self.state(path)))
        return decide_accounts(added, desired)

    def _ensure_ownership(self, desired: Ownership) -> Change:
        change = decide_ownership(self.state(desired.path), desired)
        if change:
            self.files.own(desired)
        return change

    def _ensure_service(self, desired: Service) -> Change:
        if self._services is None:
            raise _unsupported(f"service {desired.name}", "it needs a service manager")
        services = self._services
        units = [self._ensure_file(unit) for unit in desired.units]
        found = services.state(desired.name)
        verbs = {
            "reload": lambda _: services.reload(),
            "enable": services.enable,
            "disable": services.disable,
            "start": services.start,
            "stop": services.stop,
            "restart": services.restart,
        }
        change = decide_service(found, desired, units=units)
        for verb in service_verbs(found, desired, units=units):
            verbs[verb](desired.name)
        return change


def _real(path: PurePosixPath) -> PurePosixPath:
    """Return a path without links, as the kernel's table of mounts has it."""
    return PurePosixPath(os.path.realpath(path))


def _unsupported(what: str, why: str) -> HostError:
    return HostError(
        f"the {what} of this machine cannot be reached by this version of kubewright",
        detail=why,
        remedy="use `--plan` or `--dry-run`, or `kubewright up` for a local cluster",
    )
