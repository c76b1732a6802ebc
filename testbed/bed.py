"""A bed: a group of machines for tests, created in seconds and removed together.

A bed belongs to the process that made it. The leftovers of a killed one can be found and removed: `sweep`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType, TracebackType

from kubewright.base.errors import HostError
from kubewright.cli.printers.reporters import PlainLines
from kubewright.local.whole import kernel
from kubewright.machines import group, kit, parts
from kubewright.machines.group import Group, Names
from kubewright.machines.machine import Machine
from kubewright.machines.network import Network
from kubewright.machines.parts import Parts
from testbed.places import beds, locks

ENDPOINT = "cluster.test"
"""The name of the control plane's endpoint, which all machines resolve to the first machine."""


def ensure_parts() -> Parts:
    """Make what is made once; this takes some minutes the first time. One process makes it while others wait."""
    reporter = PlainLines()
    kit.programs(kit.OPTIONAL, reporter=reporter)
    return parts.ensure_parts(reporter=reporter)


class Bed:
    """Machines by name, in the given order.

    If another process has a bed of this name, `.2` or the next number is appended to the name, so that test runs do
    not disturb each other.
    """

    def __init__(self, *names: str, bed: str, parts: Parts | None = None, shared: Mapping[str, Path] = MappingProxyType({})) -> None:
        self.name = bed
        self._names = names
        self._parts = parts
        self._shared = shared
        self._lock: int | None = None
        self._group: Group | None = None

    def __enter__(self) -> Bed:
        self.up()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.down()

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

    @property
    def machines(self) -> dict[str, Machine]:
        """The machines; none while the bed is not up."""
        return self._group.machines if self._group is not None else {}

    @property
    def network(self) -> Network | None:
        """The network of the bed while it is up."""
        return self._group.network if self._group is not None else None

    def up(self) -> None:
        """Boot all machines and wait for them. If this fails, everything is taken down again."""
        made = self._parts or ensure_parts()
        self.name, self._lock = _claimed(self.name)
        try:
            directory = beds() / self.name
            group.sweep(self.name, directory)
            self._group = Group(
                self.name,
                directory=directory,
                network=group.claim_network(self.name, directory),
                members={name: index for index, name in enumerate(self._names, start=1)},
                parts=made,
                names=Names(aliases={ENDPOINT: self._names[:1]}),
                shared={**kernel.shared(), **self._shared},
            )
            self._group.up()
        except BaseException:
            self.down()
            raise

    def renew(self, name: str) -> Machine:
        """Replace a machine by a new one with the same name and address, and with nothing on its disk or in its network. Boots it."""
        if self._group is None:
            raise HostError(f"bed {self.name} is not up")
        self._group.remove(name)
        self._group.up()
        return self.machines[name]

    def down(self) -> None:
        """Remove everything that the bed has on the host."""
        for machine in self.machines.values():
            machine.cut_power()
        group.sweep(self.name, beds() / self.name)
        self._group = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def sweep() -> list[str]:
    """Remove what beds whose processes were killed left; returns their names. Beds that are in use stay."""
    swept = []
    for place in sorted(beds().glob("*/")):
        lock = _lock(place.name)
        if lock is not None:
            group.sweep(place.name, place)
            os.close(lock)
            swept.append(place.name)
    return swept


@contextmanager
def bed(*names: str, name: str = "tests") -> Iterator[Bed]:
    """Provide a bed with machines of these names, and remove it at the end."""
    with Bed(*names, bed=name) as made:
        yield made


def _claimed(wanted: str) -> tuple[str, int]:
    """Take the first free bed of this name; returns its name and its lock."""
    for name in (wanted, *(f"{wanted}.{number}" for number in range(2, 100))):
        lock = _lock(name)
        if lock is not None:
            return name, lock
    raise HostError(f"a hundred beds {wanted} are in use")


def _lock(name: str) -> int | None:
    """Lock a bed for this process, on the whole host; returns None while another process has it.

    The file is never removed, because a waiting process has it open.
    """
    locks().mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(locks() / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
