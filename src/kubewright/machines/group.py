"""A group of machines on one network. Everything that belongs to it on the host carries its name, or is below its directory.

Any process that knows a group's name and directory may start, stop and remove its machines, also those that a killed
process has left. The directory contains one directory per machine, and `range`, the ranges of the group's addresses.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

from kubewright.base.errors import HostError
from kubewright.base.randomness import SystemRandom
from kubewright.base.records import dataclass, field, replace
from kubewright.machines import cgroups, firewall, host
from kubewright.machines import network as networks
from kubewright.machines.kit import cni
from kubewright.machines.machine import Bind, Machine, clear_host
from kubewright.machines.network import POD_SUBNET, Network
from kubewright.machines.parts import Parts
from kubewright.machines.places import RUN, MachinePlaces, locked, usual_modes
from kubewright.machines.running import run
from kubewright.machines.store import copy_store

_RANGE: Final = "range"
_MADE: Final = "made"
"""Written when a disk is complete."""


@dataclass(frozen=True, kw_only=True)
class Names:
    """The names that machines resolve besides their own: further names with the members that each denotes, and those of name servers."""

    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)
    gateway: Sequence[str] = ()
    """Names of the host."""
    resolv_conf: str = ""
    """The file of this name, which machines get whenever they start, because the host may have other name servers then; '' if there are none."""


class Group:
    """Machines by name, with their index, counted from 1, which determines the address.

    `shared` are paths in the machines, and the host's directories that they see there, `mounts` those of their user. With `outside`, machines and
    pods reach what the host reaches. The constructor does nothing.
    """

    def __init__(
        self,
        name: str,
        *,
        directory: Path,
        network: Network,
        members: Mapping[str, int],
        parts: Parts,
        names: Names | None = None,
        shared: Mapping[str, Path] = MappingProxyType({}),
        mounts: Sequence[Bind] = (),
        outside: bool = False,
    ) -> None:
        self.name = name
        self.network = network
        self._directory = directory
        self._members = members
        self._parts = parts
        self._names = names or Names()
        self._shared = shared
        self._mounts = mounts
        self._outside = outside
        self.machines: dict[str, Machine] = {}

    def up(self, only: Collection[str] | None = None) -> list[str]:
        """Start or resume all machines that do not run, or only these, and wait for them; returns their names."""
        started = self.start(only)
        self.ready(started)
        for machine in (one for name, one in self.machines.items() if name not in started and one.runs):
            self._write_names(machine)
        return started

    @usual_modes()
    def start(self, only: Collection[str] | None = None) -> list[str]:
        """Start or resume all machines that do not run, or only these; returns their names. `ready` waits for them.

        Machines without a disk get one; existing parts stay as they are.
        """
        self.machines = {name: self.machines.get(name) or self.handle(name) for name in self._members}
        wanted = self._members if only is None else only
        machines = [machine for name, machine in self.machines.items() if name in wanted]
        paused = [machine for machine in machines if machine.leader and machine.is_paused]
        stopped = [machine for machine in machines if not machine.leader]
        for machine in paused:
            machine.resume()
        for machine in stopped:
            machine.cut_power()  # clean up its remains
        host.prepare([machine.cgroups for machine in stopped], forwarding=self._outside, ipv6=self.network.has_ipv6)
        for machine in stopped:  # nothing of a machine's network survives a power cut
            self.network.detach(self._members[machine.name])
        for index in self._members.values():
            self.network.attach(index)
        self.network.connect([*self._members.values()])
        if self._outside:
            networks.translate(self.network, [*self._members.values()])
            firewall.ensure(self.network.bridge)
        for machine in stopped:
            self._make_disk(machine)
        for machine in stopped:
            machine.boot()
        return [machine.name for machine in (*paused, *stopped)]

    def ready(self, names: Collection[str]) -> None:
        """Wait for machines that were started, also by a process that was killed, and give them the names of all machines."""
        for machine in (self.machines[name] for name in names):
            machine.ready()
            self._write_names(machine)

    def _write_names(self, machine: Machine) -> None:
        for path, text in {"/etc/hosts": self._hosts(), "/etc/resolv.conf": self._names.resolv_conf}.items():
            if text:
                machine.run("sh", "-c", f"cat > {path}", data=text)

    def is_running(self, name: str) -> bool:
        """Return whether a machine runs, and is not paused."""
        return self.handle(name).runs

    def remove(self, name: str) -> None:
        """Remove a machine with its disk and everything in its network; `up` makes a new one with the same address."""
        self.machines.pop(name).remove()
        self.network.detach(self._members[name])

    def handle(self, name: str) -> Machine:
        """Return a machine of the group, which need not run or have a disk."""
        return Machine(
            name,
            group=self.name,
            places=MachinePlaces(self._directory / name),
            lower=(self._parts.kit, self._parts.base),
            namespace=self.network.namespace(self._members[name]),
            address=self.network.address(self._members[name]),
            shared=self._shared,
            mounts=self._mounts,
        )

    def _make_disk(self, machine: Machine) -> None:
        """Write the initial contents of a machine's disk, unless it exists."""
        places, marker = machine.places, machine.places.root_directory / _MADE
        if marker.exists():
            return
        run("rm", "-rf", "--one-file-system", str(places.root_directory))
        etc = places.upper / "etc"
        (etc / "cni" / "net.d").mkdir(parents=True)
        if shares := self.network.shares(self._members[machine.name]):
            (etc / "cni" / "net.d" / "10-pods.conflist").write_text(cni(pods=shares), encoding="ascii")
        (etc / "hosts").write_text(self._hosts(), encoding="ascii")
        # the kubelet needs the file, and CoreDNS needs a server in it, even if nothing answers there
        (etc / "resolv.conf").write_text(self._names.resolv_conf or f"nameserver {self.network.gateway}\n", encoding="utf-8")
        (etc / "hostname").write_text(f"{machine.name}\n", encoding="ascii")
        (etc / "machine-id").write_text(f"{SystemRandom().token_bytes(16).hex()}\n", encoding="ascii")
        copy_store(self._parts.store, places.containerd)
        marker.touch()

    def _hosts(self) -> str:
        aliases = [(alias, self._members[name]) for alias, names in self._names.aliases.items() for name in names]
        known = [f"{address} {name}" for name, index in self._members.items() for address in self.network.addresses(index)]
        known += [f"{self.network.address(index)} {alias}" for alias, index in aliases]
        own = [f"{self.network.gateway} {name}" for name in self._names.gateway]
        return "\n".join(["127.0.0.1 localhost", "::1 localhost", *known, *own]) + "\n"


def bridge_of(group: str) -> str:
    """Return the name of a group's bridge."""
    return f"kw{hashlib.sha256(group.encode()).hexdigest()[:8]}"


def network_of(group: str, directory: Path) -> Network:
    """Return the network of a group that has one."""
    return Network(bridge=bridge_of(group), ranges=_ranges(directory / _RANGE))


def claim_network(
    group: str,
    directory: Path,
    *,
    pods: Sequence[str] = (POD_SUBNET,),
    services: Sequence[str] = (),
    ipv6_first: bool = False,
    reserved: Sequence[str] = (),
) -> Network:
    """Return the network of a group, creating or completing the bridge if necessary; a new one gets ranges that no other has.

    It has IPv6 if its pods have; `ipv6_first` says which family the machines' first addresses then have. `reserved` are
    addresses that the host reaches by its default route. One group does so at a time. Raises HostError if a range of an existing network is in use by now.
    """
    record = directory / _RANGE
    while not directory.is_dir():
        with suppress(FileNotFoundError):  # the end of another group may remove empty directories in the meantime
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(RUN / "networks.lock"):
        found = Network(bridge=bridge_of(group), ranges=_ranges(record), pods=tuple(pods), services=tuple(services))
        if found.is_complete():
            return found
        taken = networks.routed()
        if not found.ranges:
            others = {text for path in directory.parent.glob(f"*/{_RANGE}") for text in _ranges(path)}
            used = taken | others | {*pods, *services, *reserved}
            ranges = [networks.free_range(used)]
            if any(map(networks.is_ipv6, pods)):
                ranges.insert(0 if ipv6_first else 1, networks.free_local_range(found.bridge, used))
            found = replace(found, ranges=tuple(ranges))
            record.write_text(" ".join(ranges), encoding="ascii")
        elif lost := [text for text in found.ranges if networks.overlapping(text, taken)]:
            raise HostError(
                f"the addresses {', '.join(lost)} of the machines are in use by another network of this host",
                remedy="see `ip route`; remove that network, or the cluster",
            )
        found.make()
        return found


def _ranges(path: Path) -> tuple[str, ...]:
    return tuple(path.read_text(encoding="ascii").split()) if path.exists() else ()


def sweep(name: str, directory: Path, *, keep: bool = False) -> None:
    """Stop all machines of a group and remove its mounts, its network, its cgroups and, unless `keep`, its directory.

    Remains of a killed process are removed as well; missing parts are ignored.
    """
    found = cgroups.named(name)
    for one in found:
        one.remove()  # first, so that no process can enter them any more
    places = [MachinePlaces(path) for path in sorted(directory.glob("*/")) if path.is_dir() and not path.is_symlink()]
    for place in places:
        clear_host(name, place)
    network = Network(bridge=bridge_of(name))
    networks.end_translation(network.bridge)
    firewall.remove(network.bridge)
    network.remove()
    if not keep:
        for place in places:
            run("rm", "-rf", "--one-file-system", str(place.root_directory))
        shutil.rmtree(directory, ignore_errors=True)
        with suppress(OSError):  # other groups are there
            directory.parent.rmdir()
    host.release()
