"""One `ensure` for all hosts: observe, decide (pure), act, over a narrow store of files, units and accounts.

The real machine is one store (`Files` and systemd), the overlay of plans is another. Acceptance, refusal and reporting
are decided here and in `decisions`, so that a plan reports what a run does; a store refuses mounts and paths that
others could redirect.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import PurePosixPath
from typing import Protocol

from kubewright.apis.machine import Layout
from kubewright.base.change import Action, Change
from kubewright.base.errors import HostError
from kubewright.base.records import replace
from kubewright.host import accounts, decisions
from kubewright.host.decisions import UNITS, roots
from kubewright.host.desired import (
    Accounts,
    Desired,
    Directory,
    File,
    Generated,
    Ownership,
    Service,
    Streamed,
    Tunnel,
    TunnelKey,
    TunnelPeer,
)
from kubewright.host.filesystem import mounts
from kubewright.host.filesystem.paths import checked
from kubewright.host.filesystem.trees import Refusals
from kubewright.host.readers import FileReader
from kubewright.host.seam import Services, Tunnels
from kubewright.host.states import FileState, FileSystem, Kind, ServiceState, TunnelState


class Store(FileReader, Protocol):
    """The files of a machine. Its verbs act unconditionally: the caller has decided that a change is needed.

    All of them raise HostError, for example if others could redirect a path; paths are absolute.
    """

    def entries(self, path: PurePosixPath, /, *, temporary: bool = False) -> list[PurePosixPath]:
        """Return the entries of a directory, sorted; none if there is no directory.

        Our temporary files are included only on request.
        """
        ...

    def mounts(self, directory: PurePosixPath, /) -> list[PurePosixPath]:
        """Return the mount points below a directory, as `Host.mounts` does."""
        ...

    def real(self, path: PurePosixPath, /) -> PurePosixPath:
        """Return a path with all links followed, as in the kernel's table of mounts."""
        ...

    def write(self, desired: File, /) -> None:
        """Write or replace a file, and create missing parent directories."""
        ...

    def make(self, desired: Directory, /) -> None:
        """Create a directory and its missing parents, or give an existing one the enforced mode and owner."""
        ...

    def own(self, desired: Ownership, /) -> None:
        """Change the owner and mode of a path."""
        ...

    def remove(self, path: PurePosixPath, /, *, below: Iterable[PurePosixPath]) -> None:
        """Remove the object at a path, which is one of `below` or is below one of them, with all contents.

        Refuse at a mount.
        """
        ...

    def empty(self, path: PurePosixPath, /, *, below: Iterable[PurePosixPath]) -> Refusals:
        """Remove everything in a directory; returns what could not be removed."""
        ...

    def move(self, path: PurePosixPath, target: PurePosixPath, /) -> None:
        """Rename a file or directory to an unused name in the same file system."""
        ...

    def clean(self, path: PurePosixPath, /) -> None:
        """Remove temporary files of writers that died from a directory."""
        ...

    def unmount(self, path: PurePosixPath, /, *, flags: Collection[str]) -> bool:
        """Unmount the latest mount at a path; False if nothing is mounted there (any more)."""
        ...

    def locked(self, *paths: PurePosixPath) -> AbstractContextManager[None]:
        """Hold the lock of files of accounts. Raises TryAgain if another process holds one."""
        ...

    def expect(self, files: Iterable[File], /) -> None:
        """Take note of the files that a started service will write."""
        ...


class StoreHost(ABC):
    """The files, services and accounts of a `Host`, over a store and a service manager."""

    def __init__(self, store: Store, *, layout: Layout) -> None:
        self.layout = layout
        self._store = store

    @property
    @abstractmethod
    def _services(self) -> Services | None:
        """The service manager, None if there is none."""

    @property
    @abstractmethod
    def _tunnels(self) -> Tunnels:
        """The WireGuard interfaces."""

    def read(self, path: PurePosixPath, /) -> bytes | None:
        return self._store.read(path)

    def state(self, path: PurePosixPath, /) -> FileState | None:
        return self._store.state(path)

    def entries(self, path: PurePosixPath, /) -> list[PurePosixPath]:
        return self._store.entries(path)

    def space(self, path: PurePosixPath, /) -> FileSystem:
        return self._store.space(path)

    def weakness(self, path: PurePosixPath, /) -> str:
        return self._store.weakness(path)

    def mounts(self, directory: PurePosixPath, /) -> list[PurePosixPath]:
        return self._store.mounts(directory)

    def service(self, name: str, /) -> ServiceState | None:
        return None if self._services is None else self._services.state(name)

    def is_shutting_down(self) -> bool:
        return self._services is not None and self._services.is_stopping()

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
            case Tunnel():
                return self._ensure_tunnel(desired)
            case TunnelKey():
                return self._ensure_tunnel_key(desired)
            case Generated():
                return self._ensure_generated(desired)
            case Streamed():
                return self._ensure_streamed(desired)

    def remove(self, path: PurePosixPath, /, *, own: Collection[PurePosixPath] = ()) -> Change:
        change = decisions.decide_removal(self.state(path), path, layout=self.layout, own=own)
        if change:
            self._store.remove(path, below=(*roots(self.layout), *own))
        self._store.clean(path.parent)  # also if the write failed: a temporary file may remain
        return change

    def empty(self, path: PurePosixPath, /, *, own: Collection[PurePosixPath] = ()) -> Change:
        change = decisions.decide_emptying(self._store.entries(path, temporary=True), path, layout=self.layout, own=own)
        if change:
            self._store.empty(path, below=(*roots(self.layout), *own)).require_none(path)
        return change

    def move(self, path: PurePosixPath, target: PurePosixPath, /) -> Change:
        change = decisions.decide_move(self.state(checked(path)), self.state(checked(target)), path, target, layout=self.layout)
        if change:
            self._store.move(path, target)
        return change

    def unmount(self, path: PurePosixPath, /, *, flags: Collection[str] = ()) -> Change:
        allowed = self._store.real(self.layout.kubelet)
        change = mounts.decide_unmount(self.mounts(allowed), path, allowed=allowed)
        return change if change and self._store.unmount(path, flags=flags) else replace(change, action=Action.NONE)

    def remove_units(self, service: str, /, *, units: Sequence[PurePosixPath]) -> Change:
        there = [path for path in units if self.state(path) is not None]
        directories = (UNITS, self.layout.units)
        change = decisions.decide_no_units(there, service, directories=directories)
        if not change:
            return change
        whole = [path for path in there if path.parent in directories]
        drop_ins = [path for path in there if path not in whole]
        if self._services is not None and whole:  # systemd does not disable a unit that an earlier run has removed
            self._services.disable(service)
        for path in (*drop_ins, *whole):  # a run that is broken off leaves the unit, which the next one can disable
            self._store.remove(path, below=directories)
            if path.parent not in directories and not self.entries(path.parent):
                self._store.remove(path.parent, below=directories)
        if self._services is not None:
            self._services.reload()
        return change

    def remove_accounts(self, unwanted: Accounts, /) -> Change:
        passwd, group = unwanted.etc / accounts.PASSWD, unwanted.etc / accounts.GROUP
        with self._store.locked(group, passwd):
            before = {path: accounts.read_accounts(self, path) for path in (passwd, group)}
            left = accounts.remove_accounts(before[passwd], before[group], unwanted=unwanted)
            for path, text in ((passwd, left.passwd), (group, left.group)):  # no user is ever without its group
                if text != before[path]:
                    self._store.write(accounts.replacement(path, text, self.state(path)))
        return decisions.decide_no_accounts(left, unwanted)

    def tunnel(self, name: str, /) -> TunnelState | None:
        return self._tunnels.state(name)

    def set_peers(self, name: str, /, *, peers: Sequence[TunnelPeer], without: Sequence[str]) -> Change:
        from kubewright.host.programs import tunnels

        change = tunnels.peer_changes(name, peers, without)
        if change:
            self._tunnels.set_peers(name, peers, without)
        return change

    def remove_tunnel(self, name: str, /) -> Change:
        from kubewright.host.programs import tunnels  # few machines have one

        found = self._tunnels.state(name)
        if found is not None:
            self._tunnels.remove(name, found)
        return tunnels.decide_removal(found, name)

    def _ensure_tunnel(self, desired: Tunnel) -> Change:
        from kubewright.host.programs import tunnels

        found = self._tunnels.state(desired.name)
        change = tunnels.decide(found, desired)
        if change:
            self._tunnels.apply(desired, found)
        return change

    def _ensure_tunnel_key(self, desired: TunnelKey) -> Change:
        from kubewright.host.programs import tunnels

        change = tunnels.decide_key(self._tunnels.state(desired.name), desired)
        if change:
            self._tunnels.set_key(desired)
        return change

    @abstractmethod
    def _generate(self, desired: Generated) -> None:
        """Run a program that writes a directory which does not exist yet."""

    @abstractmethod
    def _stream(self, desired: Streamed) -> None:
        """Write a file that does not exist yet, piece by piece. Raises DiskFull."""

    def _ensure_generated(self, desired: Generated) -> Change:
        change = decisions.decide_generated(self.state(checked(desired.path)), desired)
        if change:
            self._generate(desired)
        return change

    def _ensure_streamed(self, desired: Streamed) -> Change:
        change = decisions.decide_streamed(self.state(checked(desired.path)), desired)
        if change:
            self._stream(desired)
        return change

    def _ensure_file(self, desired: File) -> Change:
        found = self.state(checked(desired.path))
        content = self.read(desired.path) if found is not None and found.kind is Kind.FILE else None
        change = decisions.decide_file(found, content, desired)
        if change:
            self._store.write(desired)
        return change

    def _ensure_directory(self, desired: Directory) -> Change:
        found = self.state(checked(desired.path))
        if found is not None and found.kind is Kind.LINK:  # administrators move large directories to other disks
            found = self.state(self._store.real(desired.path)) or found
        change = decisions.decide_directory(found, desired)
        if change:
            self._store.make(desired)
        return change

    def _ensure_ownership(self, desired: Ownership) -> Change:
        change = decisions.decide_ownership(self.state(checked(desired.path)), desired)
        if change:
            self._store.own(desired)
        return change

    def _ensure_accounts(self, desired: Accounts) -> Change:
        passwd, group = desired.etc / accounts.PASSWD, desired.etc / accounts.GROUP
        accounts.read_accounts(self, passwd)  # report a missing file before locking it
        with self._store.locked(group, passwd):
            login_defs = (self.read(desired.etc / accounts.LOGIN_DEFS) or b"").decode("utf-8", errors="replace")
            before = {path: accounts.read_accounts(self, path) for path in (group, passwd)}
            added = accounts.add_accounts(before[passwd], before[group], login_defs=login_defs, wanted=desired)
            for path, text in ((group, added.group), (passwd, added.passwd)):  # no user is ever without its group
                if text != before[path]:
                    self._store.write(accounts.replacement(path, text, self.state(path)))
        return decisions.decide_accounts(added, desired)

    def _ensure_service(self, desired: Service) -> Change:
        services = self._services
        if services is None:
            raise HostError(
                f"the service {desired.name} of this machine cannot be reached by this version of kubewright",
                detail="it needs a service manager",
                remedy="use `--plan` or `--dry-run`, or `kubewright up` for a local cluster",
            )
        units = [self._ensure_file(unit) for unit in desired.units]
        found = services.state(desired.name)
        change = decisions.decide_service(found, desired, units=units)
        verbs = {
            "reload": lambda _: services.reload(),
            "enable": services.enable,
            "disable": services.disable,
            "start": services.start,
            "stop": services.stop,
            "restart": services.restart,
        }
        for verb in decisions.service_verbs(found, desired, units=units):
            verbs[verb](desired.name)
        if desired.running:
            self._store.expect(desired.stand_ins)
        return change
