"""A bed: several machines on one network, created in seconds and removed together.

Everything that a bed creates on the host carries its name or number, so that the leftovers of a killed one can be
found and removed: `sweep`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType

from testbed import cgroups, host
from testbed.base import ensure_base
from testbed.images import of_release
from testbed.kit import cni, ensure_kit
from testbed.machine import Machine, unmount
from testbed.network import Network, bridges, namespaces
from testbed.places import MachinePlaces, beds, cache, locks
from testbed.running import BedError, run
from testbed.store import copy_store, ensure_store

ENDPOINT = "cluster.test"
"""The name of the control plane's endpoint, which all machines resolve to the first machine."""
_SYSCTLS = locks() / "sysctls.json"
"""The host's settings before the first kubelet, on a file system that is cleared at boot, as the settings are."""


@dataclass(frozen=True)
class Parts:
    """The parts of which every machine of every bed is made."""

    base: Path
    kit: Path
    store: Path


def ensure_parts() -> Parts:
    """Make what is made once; this takes some minutes the first time. One process makes it while others wait."""
    cache().mkdir(parents=True, exist_ok=True)
    with _locked(cache() / "parts.lock"):
        base, kit = ensure_base(), ensure_kit()
        return Parts(base=base, kit=kit, store=ensure_store(of_release(base), key=f"{base.name} {kit.name}"))


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
        self.network: Network | None = None
        self.machines: dict[str, Machine] = {}

    def __enter__(self) -> Bed:
        self.up()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.down()

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

    def up(self) -> None:
        """Boot all machines and wait for them. If this fails, everything is taken down again."""
        parts = self._parts or ensure_parts()
        self.name, self._lock = _claimed(self.name)
        try:
            _sweep(self.name)
            self._place.mkdir(parents=True, exist_ok=True)
            host.prepare()
            with _locked(_SYSCTLS.with_suffix(".lock")):
                host.remember(_SYSCTLS)
            self.network = network = self._make_network()
            for index, name in enumerate(self._names, start=1):
                network.attach(index, machines=len(self._names))
                self.machines[name] = self._make(index, name, parts, network)
            for machine in self.machines.values():
                machine.boot()
            for machine in self.machines.values():
                machine.ready()
        except BaseException:
            self.down()
            raise

    def renew(self, name: str) -> Machine:
        """Replace a machine by a new one with the same name and address, and with nothing on its disk or in its network. Boots it."""
        if self.network is None:
            raise BedError(f"bed {self.name} is not up")
        index = self._names.index(name) + 1
        self.machines[name].remove()
        self.network.detach(index)
        self.network.attach(index, machines=len(self._names))
        machine = self.machines[name] = self._make(index, name, self._parts or ensure_parts(), self.network)
        machine.boot()
        machine.ready()
        return machine

    def down(self) -> None:
        """Remove everything that the bed has on the host."""
        for machine in self.machines.values():
            machine.cut_power()
        _sweep(self.name)
        self.machines.clear()
        shutil.rmtree(self._place, ignore_errors=True)
        _restore()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def _place(self) -> Path:
        return beds() / self.name

    def _make_network(self) -> Network:
        """Take a number that no other bed has; one bed does so at a time."""
        with _locked(locks() / "networks"):
            network = _free_network()
            (self._place / "network").write_text(str(network.number), encoding="ascii")
            network.make()
            return network

    def _make(self, index: int, name: str, parts: Parts, network: Network) -> Machine:
        places = MachinePlaces(self._place / name)
        places.root_directory.mkdir(parents=True)
        etc = places.upper / "etc"
        (etc / "cni" / "net.d").mkdir(parents=True)
        (etc / "cni" / "net.d" / "10-pods.conflist").write_text(cni(pods=network.pods(index)), encoding="ascii")
        known = [f"{network.address(number)} {other}" for number, other in enumerate(self._names, start=1)]
        lines = ["127.0.0.1 localhost", "::1 localhost", *known, f"{network.address(1)} {ENDPOINT}"]
        (etc / "hosts").write_text("\n".join(lines) + "\n", encoding="ascii")
        # nothing answers there; the kubelet needs the file, and CoreDNS needs a server in it
        (etc / "resolv.conf").write_text(f"nameserver {network.gateway}\n", encoding="ascii")
        (etc / "hostname").write_text(f"{name}\n", encoding="ascii")
        machine_id = hashlib.sha256(f"{self.name} {name} {os.getpid()}".encode()).hexdigest()[:32]
        (etc / "machine-id").write_text(f"{machine_id}\n", encoding="ascii")
        copy_store(parts.store, places.containerd)
        return Machine(
            name,
            bed=self.name,
            places=places,
            lower=(parts.kit, parts.base),
            namespace=network.namespace(index),
            address=network.address(index),
            shared=self._shared,
        )


def sweep() -> list[str]:
    """Remove what beds whose processes were killed left; returns their names. Beds that are in use stay."""
    swept = []
    for place in sorted(beds().glob("*/")):
        lock = _lock(place.name)
        if lock is not None:
            _sweep(place.name)
            shutil.rmtree(place, ignore_errors=True)
            os.close(lock)
            swept.append(place.name)
    _restore()
    return swept


def _restore() -> None:
    """Restore the host's own settings when no bed is left. A bed creates its directory before it saves the settings."""
    if _SYSCTLS.exists():
        with _locked(_SYSCTLS.with_suffix(".lock")):
            if not any(beds().glob("*/")):
                host.restore(_SYSCTLS)


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
    raise BedError(f"a hundred beds {wanted} are in use")


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


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock on a file, waiting for it if necessary."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sweep(name: str) -> None:
    """Stop the machines of a bed and remove its mounts, network, cgroups and disks, in this order."""
    place = beds() / name
    found = list(cgroups.named(name))
    for one in found:
        one.kill()
    for machine in _machines(place):
        unmount(machine / "root")
    with suppress(OSError, ValueError):
        Network(int((place / "network").read_text(encoding="ascii"))).remove()
    for one in found:
        one.remove()
    for machine in _machines(place):
        run("rm", "-rf", "--one-file-system", str(machine))


def _machines(place: Path) -> Sequence[Path]:
    return [path for path in sorted(place.glob("*/")) if path.is_dir()]


def _free_network() -> Network:
    """Find a number of which nothing is left: a bed that is taken down removes its bridge before its namespaces."""
    taken = bridges() | {name.partition("-")[0] for name in namespaces()}
    return next(network for network in (Network(number) for number in range(256)) if network.bridge not in taken)
