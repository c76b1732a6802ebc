"""A machine's cgroups: a directory in every hierarchy of the host, which the machine's cgroup namespace shows as `/`.

Each kubelet therefore has its own /kubepods and needs no --cgroup-root. Works with version 1, version 2, and both
mounted at the same time. Where systemd owns version 2, the directory there is that of a scope.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from kubewright.base.clock import SystemClock
from kubewright.base.errors import HostError, WaitTimeout
from kubewright.base.events import SilentReporter
from kubewright.base.records import dataclass, replace
from kubewright.base.wait import PollingWaiter
from kubewright.machines import scopes
from kubewright.machines.scopes import Scope

PARENT = "kubewright-machines"


@dataclass(frozen=True)
class _Freezer:
    """The file that freezes a cgroup, and what is written to it. With version 1, `freezing` is shown until all processes are frozen."""

    path: Path
    frozen: str
    thawed: str
    freezing: str


_FREEZERS: Final = (
    _Freezer(Path("freezer.state"), "FROZEN", "THAWED", "FREEZING"),
    _Freezer(Path("payload/cgroup.freeze"), "1", "0", ""),
    _Freezer(Path("cgroup.freeze"), "1", "0", ""),
)
"""Version 1 and 2 (the kernel's admin-guide/cgroup-v1/freezer-subsystem.rst and admin-guide/cgroup-v2.rst).

Version 2 may be mounted without controllers next to version 1. The attributes of a scope's own directory belong to
systemd.
"""
_INNER: Final = ("payload/init.scope", "payload")
"""Where commands enter a machine, below its directory: the cgroup that its systemd has made for itself, because with version 2 those that
give controllers to others have no processes; or the one that systemd-nspawn made for the machine, if it has made one."""
_JOIN = 'umask 022; while [ "$1" != -- ]; do echo 0 > "$1/cgroup.procs"{otherwise}; shift; done; shift; exec "$@"'
_ENDS_WITHIN: Final = 10.0
"""Seconds for the last process that was about to enter cgroups when they were removed."""


def hierarchies(table: Path = Path("/proc/mounts")) -> list[Path]:
    """Return the mount points of all cgroup hierarchies. Those of other file systems may be names in any encoding."""
    rows = [line.split(b" ") for line in table.read_bytes().split(b"\n") if line]
    return [Path(os.fsdecode(row[1])) for row in rows if row[2] in {b"cgroup", b"cgroup2"}]


class Cgroups:
    """The cgroups of one machine, named `<group>_<machine>`; names of groups and machines contain no underscore."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.scope = Scope(name) if scopes.is_owner() else None
        mounts = [mount for mount in hierarchies() if self.scope is None or not (mount / "cgroup.controllers").exists()]
        self.own = [mount / PARENT / name for mount in mounts]

    @property
    def directories(self) -> list[Path]:
        """All cgroups of the machine: the scope's if it has one, which need not exist, and those that are made here."""
        return [*([self.scope.directory] if self.scope else []), *self.own]

    def make(self) -> None:
        """Create the cgroups; existing ones stay. systemd makes a scope when the machine starts."""
        for directory in self.own:
            _make(directory)
        if self.scope:
            self.scope.claim()

    def within(self, argv: Sequence[str]) -> list[str]:
        """Return the arguments that start a program in these cgroups, so that it and its children are in them from the beginning.

        A small shell enters them first: between fork and exec, Python must not run any code while there are threads.
        It also sets the usual umask, because files in machines are read by other users than root. If the cgroups have been
        removed in the meantime, it starts nothing.
        """
        words = _joining(self.own, argv, otherwise=" || exit 1")
        return self.scope.started_in(words) if self.scope else words

    def inside(self, argv: Sequence[str]) -> list[str]:
        """Return the arguments with which a program enters the machine."""
        places = [[path / name for name in _INNER if (path / name).is_dir()] for path in self.directories]
        return _joining([next(iter(inner), path) for inner, path in zip(places, self.directories, strict=True)], argv)

    def processes(self) -> set[int]:
        """Return the processes in the cgroups and below."""
        return {pid for directory in self.directories for pid in _processes(directory)}

    @property
    def frozen(self) -> bool:
        """Whether the processes are frozen, or about to be."""
        found = self._freezer()
        with suppress(OSError):  # the machine has just ended, and so has its scope
            return found is not None and found.path.read_text(encoding="ascii").strip() in {found.frozen, found.freezing}
        return False

    def freeze(self) -> None:
        """Freeze all processes. Raises HostError if the host has no freezer."""
        found = self._freezer()
        if found is None:
            raise HostError("this host cannot freeze processes", remedy="mount the cgroup controller `freezer`, or use cgroup version 2")
        found.path.write_text(found.frozen, encoding="ascii")

    def thaw(self) -> None:
        """Let frozen processes continue."""
        if (found := self._freezer()) is not None:
            found.path.write_text(found.thawed, encoding="ascii")

    def _freezer(self) -> _Freezer | None:
        places = (replace(row, path=directory / row.path) for row in _FREEZERS for directory in self.directories)
        return next((row for row in places if row.path.exists()), None)

    def kill(self, *, within: float = 120) -> None:
        """Kill everything in them at once, and wait until the last process has ended. Raises WaitTimeout if one does not."""
        with suppress(OSError):  # the scope ends as soon as its processes have
            self.thaw()  # with version 1, frozen processes do not die
        waiter = PollingWaiter(clock=SystemClock(), reporter=SilentReporter())
        waiter.until(self._kill, within=within, saying=f"the processes of {self.name} to end", every=0.01, at_most=0.02)

    def _kill(self) -> str | None:
        left = self.processes()
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return f"pid {min(left)} has not ended" if left else None

    def clear(self) -> None:
        """Remove the cgroups that the machine has created in them, as its restart would; they must contain no processes.

        cAdvisor, a part of the kubelet, waits 6 seconds for the container of each directory that it finds when it starts
        (cadvisor: container/containerd/handler.go).
        """
        if self.scope:
            self.scope.wait_until_gone()
        for directory in self.own:
            for path in (Path(found) for found, _, _ in os.walk(directory, topdown=False)):
                if path != directory:
                    _remove(path)

    def remove(self) -> None:
        """Kill everything in them, also a process that enters them only now, and remove the directories."""
        with suppress(WaitTimeout):
            waiter = PollingWaiter(clock=SystemClock(), reporter=SilentReporter())
            waiter.until(self._remove_own, within=_ENDS_WITHIN, saying=f"the cgroups of {self.name} to be empty", every=0.01, at_most=0.1)
        for directory in self.own:
            _remove(directory.parent)
        if self.scope:
            self.scope.release()

    def _remove_own(self) -> str | None:
        self.kill()
        self.clear()
        for directory in self.own:
            _remove(directory)
        return next((f"{directory} is in use" for directory in self.own if directory.exists()), None)


def named(group: str) -> list[Cgroups]:
    """Find the machines of a group by their cgroups, also if the process that created them was killed."""
    return [Cgroups(name) for name in sorted(_names()) if name.partition("_")[0] == group]


def any_left() -> bool:
    """Return whether any machine of any group has cgroups on this host."""
    return bool(_names())


def end() -> None:
    """Remove the cgroups that all machines of the host share; there must be no machines."""
    if scopes.is_owner():
        scopes.end_slice()


def _names() -> set[str]:
    found = {path.name for mount in hierarchies() for path in (mount / PARENT).glob("*_*") if path.is_dir()}
    return found | (scopes.names() if scopes.is_owner() else set())


def _joining(directories: Sequence[Path], argv: Sequence[str], *, otherwise: str = "") -> list[str]:
    """Return the arguments that enter cgroups and run a program. `otherwise` is what the shell does if it cannot enter one."""
    return (
        ["/bin/sh", "-c", _JOIN.format(otherwise=otherwise), "sh", *(str(path) for path in directories), "--", *argv]
        if directories
        else [*argv]
    )


def _make(directory: Path) -> None:
    """Create a directory and its parent, which another group that is being removed may delete in between."""
    while not directory.exists():
        directory.parent.mkdir(exist_ok=True)
        with suppress(FileNotFoundError):
            for parent in (directory.parent.parent, directory.parent):
                _delegate(parent)
            _inherit(directory.parent)
            directory.mkdir(exist_ok=True)
    _inherit(directory)


def _remove(directory: Path) -> None:
    with suppress(OSError):  # others are in it, or it is gone
        directory.rmdir()


def _delegate(parent: Path) -> None:
    """Version 2: enable all controllers for the children of a cgroup. A cgroup that contains processes refuses that."""
    with suppress(OSError):
        given = (parent / "cgroup.controllers").read_text(encoding="ascii").split()
        (parent / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in given), encoding="ascii")


def _inherit(path: Path) -> None:
    """Version 1: a cpuset without processors accepts no process."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if (path / name).exists() and not (path / name).read_text(encoding="ascii").strip() and (path / "tasks").exists():
            (path / name).write_text((path.parent / name).read_text(encoding="ascii"), encoding="ascii")
    if (path / "cgroup.clone_children").exists():
        (path / "cgroup.clone_children").write_text("1", encoding="ascii")


def _processes(directory: Path) -> Iterator[int]:
    for found, _, _ in os.walk(directory):
        with suppress(OSError):
            yield from (int(line) for line in (Path(found) / "cgroup.procs").read_text(encoding="ascii").split())
