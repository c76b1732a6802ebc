"""A host without real effects: writes go to an overlay over another host and are read back from there.

Plans and dry runs use it. It is the same code as the real host over another store, so that a plan shows what a run
would do. A dry run then writes the files of its overlay into kubeadm's dry-run directory, without subdirectories
(kubeadm v1.36: util/apiclient/dryrun.go).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath
from signal import Signals
from typing import TYPE_CHECKING, Final

from kubewright.apis.machine import Layout
from kubewright.base.change import Action, Change
from kubewright.base.records import replace
from kubewright.host.desired import Accounts, Desired, Directory, File, Generated, Show, Streamed, TunnelPeer
from kubewright.host.facts import Facts
from kubewright.host.overlay_store import OverlayStore, PlannedServices
from kubewright.host.processes import Identity, Usage
from kubewright.host.readers import Network, Programs
from kubewright.host.seam import ContainerRuntime, Host, PacketFilter, Processes, RuntimeVersion, Services, Tunnels
from kubewright.host.states import Container, Kind, RuntimeStatus, Sandbox
from kubewright.host.store import StoreHost

if TYPE_CHECKING:
    from kubewright.host.programs.packet_filter import Rules

_PRIVATE: Final = 0o700


class OverlayHost(StoreHost):
    """Copy on write over any host. `facts` replaces the facts of the machine.

    Safe to use from several threads: one writes at a time.
    """

    def __init__(self, base: Host, *, facts: Facts | None = None) -> None:
        self._base = base
        self._facts = facts
        self._overlay = OverlayStore(base)
        super().__init__(self._overlay, layout=base.layout)
        self._planned_services = PlannedServices(base)
        self._changes: list[Change] = []
        self._removed: set[str] = set()
        self.processes: Processes = _QuietProcesses(base.processes)

    @property
    def _services(self) -> Services:
        return self._planned_services

    @cached_property
    def _tunnels(self) -> Tunnels:
        from kubewright.host.programs.tunnels import PlannedTunnels  # few machines have one

        return PlannedTunnels(self._base)

    @property
    def facts(self) -> Facts:
        return self._base.facts if self._facts is None else self._facts

    @property
    def network(self) -> Network:
        return self._base.network

    @property
    def runtime(self) -> ContainerRuntime:
        return _PlannedRuntime(self._base.runtime, changes=self._changes, removed=self._removed)

    @property
    def programs(self) -> Programs:
        return self._base.programs

    @property
    def packet_filter(self) -> PacketFilter:
        return _PlannedFilter(self._base.packet_filter, note=self._note, removed=self._removed)

    @property
    def changes(self) -> tuple[Change, ...]:
        """All changes so far, in order, including unchanged targets."""
        return tuple(self._changes)

    @property
    def files(self) -> tuple[File, ...]:
        """The files that were written and still exist, in the order of their first write, without stand-ins."""
        return self._overlay.files

    def ensure(self, desired: Desired, /) -> Change:
        with self._overlay.lock:
            return self._note(super().ensure(desired))

    def remove(self, path: PurePosixPath, /, *, own: Collection[PurePosixPath] = ()) -> Change:
        with self._overlay.lock:
            return self._note(super().remove(path, own=own))

    def empty(self, path: PurePosixPath, /, *, own: Collection[PurePosixPath] = ()) -> Change:
        with self._overlay.lock:
            return self._note(super().empty(path, own=own))

    def move(self, path: PurePosixPath, target: PurePosixPath, /) -> Change:
        with self._overlay.lock:
            return self._note(super().move(path, target))

    def _generate(self, desired: Generated) -> None:
        for path in (desired.path, *(desired.path / name for name in desired.stand_ins)):
            self._overlay.make(Directory(path=path, mode=_PRIVATE))

    def _stream(self, desired: Streamed) -> None:
        self._overlay.write(File(path=desired.path, content=b"", mode=desired.mode))

    def unmount(self, path: PurePosixPath, /, *, flags: Collection[str] = ()) -> Change:
        with self._overlay.lock:
            return self._note(super().unmount(path, flags=flags))

    def remove_units(self, service: str, /, *, units: Sequence[PurePosixPath]) -> Change:
        with self._overlay.lock:
            return self._note(super().remove_units(service, units=units))

    def set_peers(self, name: str, /, *, peers: Sequence[TunnelPeer], without: Sequence[str]) -> Change:
        with self._overlay.lock:
            return self._note(super().set_peers(name, peers=peers, without=without))

    def remove_tunnel(self, name: str, /) -> Change:
        with self._overlay.lock:
            return self._note(super().remove_tunnel(name))

    def remove_accounts(self, unwanted: Accounts, /) -> Change:
        with self._overlay.lock:
            return self._note(super().remove_accounts(unwanted))

    def _note(self, change: Change) -> Change:
        self._changes.append(change)
        return change


class _QuietProcesses:
    """The processes of the host below; signals are not sent, and succeed if they would reach a process."""

    def __init__(self, base: Processes) -> None:
        self._base = base

    def of(self, pid: int, /) -> Identity | None:
        return self._base.of(pid)

    def alive(self, identity: Identity, /) -> bool:
        return self._base.alive(identity)

    def usage(self, identity: Identity, /) -> Usage | None:
        return self._base.usage(identity)

    def group(self, leader: int, /) -> list[Identity]:
        return self._base.group(leader)

    def marked(self, marks: Mapping[str, str], /, *, shared: str = "") -> list[Identity]:
        return self._base.marked(marks, shared=shared)

    def carries(self, identity: Identity, marks: Mapping[str, str], /, *, shared: str = "") -> bool:
        return self._base.carries(identity, marks, shared=shared)

    def handle(self, identity: Identity, /) -> int | None:
        return self._base.handle(identity)

    def signal(self, identity: Identity, number: Signals, /) -> bool:
        return self._base.alive(identity)


class _PlannedFilter:
    """The packet filter of the host below; rules that would be removed count as removed."""

    def __init__(self, base: PacketFilter, *, note: Callable[[Change], Change], removed: set[str]) -> None:
        self._base = base
        self._note = note
        self._removed = removed

    def found(self) -> list[Rules]:
        return [rules for rules in self._base.found() if rules.target not in self._removed]

    def remove(self, rules: Rules, /) -> Change:
        there = any(found.target == rules.target for found in self.found())
        self._removed.add(rules.target)
        return self._note(Change(target=rules.target, action=Action.DELETE if there else Action.NONE))


class _PlannedRuntime:
    """The runtime of the host below.

    Images that would be pulled count as present, sandboxes that would be removed as gone.
    """

    def __init__(self, base: ContainerRuntime, *, changes: list[Change], removed: set[str]) -> None:
        self._base = base
        self._changes = changes
        self._removed = removed

    def version(self) -> RuntimeVersion:
        return self._base.version()

    def has_image(self, image: str, /) -> bool:
        return self._base.has_image(image) or any(change.target == f"image {image}" for change in self._changes)

    def status(self) -> RuntimeStatus:
        return self._base.status()

    def sandbox_image(self) -> str:
        return self._base.sandbox_image()

    def image_directories(self) -> Sequence[PurePosixPath]:
        return self._base.image_directories()

    def cgroup_driver(self) -> str | None:
        return self._base.cgroup_driver()

    def sandboxes(self) -> list[Sandbox]:
        return [sandbox for sandbox in self._base.sandboxes() if sandbox.id not in self._removed]

    def containers(self, *, namespace: str) -> list[Container]:
        return self._base.containers(namespace=namespace)

    def last_lines(self, pod: str, /, *, count: int, container: str = "") -> list[str]:
        return self._base.last_lines(pod, count=count, container=container)

    def pull(self, image: str, /) -> Change:
        """Report the pull of an image that is missing.

        Whether the registry has a newer one of the same name is not checked.
        """
        return self._note(Change(target=f"image {image}", action=Action.NONE if self.has_image(image) else Action.CREATE))

    def stop_sandbox(self, sandbox: Sandbox, /) -> Change:
        there = any(found.id == sandbox.id for found in self.sandboxes())
        return self._note(Change(target=sandbox.target, action=Action.UPDATE if there else Action.NONE))

    def remove_sandbox(self, sandbox: Sandbox, /) -> Change:
        there = any(found.id == sandbox.id for found in self.sandboxes())
        self._removed.add(sandbox.id)
        return self._note(Change(target=sandbox.target, action=Action.DELETE if there else Action.NONE))

    def _note(self, change: Change) -> Change:
        self._changes.append(change)
        return change


def flat_name(layout: Layout, path: PurePosixPath) -> PurePosixPath | None:
    """Return the name below the dry-run directory, or None for a file that has no place there.

    Certificates keep their path below the PKI, so that those of etcd are in `etcd/`; all other files are next to them.
    """
    if path.is_relative_to(layout.pki):
        return path.relative_to(layout.pki)
    flat = {layout.kubernetes, layout.manifests, layout.kubelet}
    return PurePosixPath(path.name) if path.parent in flat else None


def materialise(overlay: OverlayHost, directory: PurePosixPath, *, writer: Host, copies: Iterable[PurePosixPath] = ()) -> list[Change]:
    """Write the files of an overlay into a dry-run directory, which is created (0700) if it does not exist.

    `copies` are existing files that belong with them, such as a CA that was reused. Returns one Change for each file,
    without its content; a file that has no place there is left out. All files belong to the writing user.
    """
    writer.ensure(Directory(path=directory, mode=0o700))
    layout = overlay.layout
    wanted = [*(copy for path in copies if (copy := _existing(overlay, path)) is not None), *overlay.files]
    placed = ((flat_name(layout, file.path), file) for file in wanted)
    return [
        writer.ensure(replace(file, path=directory / name, show=Show.SIZE, owner=None, group=None))
        for name, file in placed
        if name is not None
    ]


def _existing(overlay: OverlayHost, path: PurePosixPath) -> File | None:
    found, content = overlay.state(path), overlay.read(path)
    if found is None or found.kind is not Kind.FILE or content is None:
        return None
    return File(path=path, content=content, mode=found.mode)
