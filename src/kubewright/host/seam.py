"""The Host seam: everything that is read from or done to one machine goes through these protocols.

Verbs come in two groups. Reading verbs change nothing and may be called in a plan. Writing verbs return what they changed; an overlay
keeps what they would write. There is no verb that runs a command line.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePosixPath
from signal import Signals
from typing import TYPE_CHECKING, Protocol

from kubewright.apis.machine import Layout
from kubewright.base.change import Change
from kubewright.base.records import dataclass
from kubewright.host.desired import Accounts, Desired, Tunnel, TunnelKey, TunnelPeer
from kubewright.host.readers import FileReader, Network, Programs
from kubewright.host.states import Container, RuntimeStatus, Sandbox, ServiceState, TunnelState

if TYPE_CHECKING:
    from kubewright.host.facts import Facts
    from kubewright.host.packet_filter import Rules
    from kubewright.host.processes import Identity, Usage


class Host(FileReader, Protocol):
    """One machine."""

    @property
    def layout(self) -> Layout:
        """Where everything of this machine lies."""
        ...

    @property
    def facts(self) -> Facts:
        """What the machine tells about itself, gathered at first use."""
        ...

    @property
    def network(self) -> Network:
        """Its addresses and ports."""
        ...

    @property
    def processes(self) -> Processes:
        """Its processes."""
        ...

    @property
    def runtime(self) -> ContainerRuntime:
        """Its container runtime."""
        ...

    @property
    def programs(self) -> Programs:
        """The programs on it that others have installed."""
        ...

    def service(self, name: str, /) -> ServiceState | None:
        """Read: return the state of a service, None if nothing is known about it."""
        ...

    def is_shutting_down(self) -> bool:
        """Read: whether its service manager is about to end everything. Never an error."""
        ...

    def service_lines(self, name: str, /, *, count: int) -> list[str]:
        """Read: return the last lines that a service wrote, its latest life only; none where that cannot be told. Never an error."""
        ...

    def ensure(self, desired: Desired, /) -> Change:
        """Write: make a file, directory or service as desired, if it differs. Raises HostError, DiskFull where there is no space."""
        ...

    def remove(self, path: PurePosixPath, /, *, own: Collection[PurePosixPath] = ()) -> Change:
        """Write: remove a file, a link, or a directory with all that is in it. Raises HostError for a path outside of the layout, and of `own`."""
        ...

    def empty(self, path: PurePosixPath, /, *, own: Collection[PurePosixPath] = ()) -> Change:
        """Write: remove everything in a directory, which stays; none where there is no directory.

        It is a directory of the layout, or one of `own`: what a cluster's configuration has put elsewhere.
        All of it is tried; then HostError is raised, naming what could not be removed. What is mounted in it is not removed.
        """
        ...

    def move(self, path: PurePosixPath, target: PurePosixPath, /) -> Change:
        """Write: rename a file or directory of the layout within its file system; none if that was done before.

        Raises HostError if both exist, or neither does. In a plan, the renamed directory is empty.
        """
        ...

    def mounts(self, directory: PurePosixPath, /) -> list[PurePosixPath]:
        """Read: return what is mounted below a directory, links in its path followed; what was mounted later comes later.

        Raises HostError where something is in the directory and the machine has no table of mounts.
        """
        ...

    def unmount(self, path: PurePosixPath, /, *, flags: Collection[str] = ()) -> Change:
        """Write: unmount what was mounted last at a path below the kubelet's directory; none if nothing is. Raises HostError.

        `flags` are names of `mounts.FLAGS`.
        """
        ...

    def remove_units(self, service: str, /, *, units: Sequence[PurePosixPath]) -> Change:
        """Write: disable a service and remove unit files of it, with a directory that is empty then. Raises HostError for other places."""
        ...

    def remove_accounts(self, unwanted: Accounts, /) -> Change:
        """Write: remove users and groups, whoever made them; those that are not there are no error."""
        ...

    def tunnel(self, name: str, /) -> TunnelState | None:
        """Read: return what a WireGuard interface has, None if there is no such interface. Raises HostError where it cannot be told."""
        ...

    def set_peers(self, name: str, /, *, peers: Sequence[TunnelPeer], without: Sequence[str]) -> Change:
        """Write: have these peers on a WireGuard interface, and none with the keys `without`, without looking at what it has. Raises HostError."""
        ...

    def remove_tunnel(self, name: str, /) -> Change:
        """Write: remove a WireGuard interface; none if there is none of that name. Raises HostError."""
        ...

    @property
    def packet_filter(self) -> PacketFilter:
        """What others have put into its packet filter for a cluster."""
        ...


class PacketFilter(Protocol):
    """The rules that kube-proxy and CNI plugins leave in the packet filter of a machine."""

    def found(self) -> list[Rules]:
        """Read: return what is there of them, each piece that can be removed alone. Raises HostError for a tool that fails."""
        ...

    def remove(self, rules: Rules, /) -> Change:
        """Write: remove one piece. Raises HostError."""
        ...


class Tunnels(Protocol):
    """The WireGuard interfaces of a machine. The writing verbs do as they are told: whether something is needed was decided before."""

    def state(self, name: str, /) -> TunnelState | None:
        """Read: return what an interface has, None if there is none of that name."""
        ...

    def apply(self, desired: Tunnel, found: TunnelState | None, /) -> None:
        """Write: make an interface what it should be, given what it is."""
        ...

    def set_peers(self, name: str, peers: Sequence[TunnelPeer], without: Sequence[str], /) -> None:
        """Write: put some peers on an interface, and take some off."""
        ...

    def set_key(self, desired: TunnelKey, /) -> None:
        """Write: give an interface another private key."""
        ...

    def remove(self, name: str, found: TunnelState, /) -> None:
        """Write: remove an interface, given what it is."""
        ...


class Services(Protocol):
    """The service manager of a machine: systemd, or what stands for it on a local machine."""

    def state(self, name: str, /) -> ServiceState | None:
        """Read: return the state of a service, None if there is no such service."""
        ...

    def is_stopping(self) -> bool:
        """Read: whether the machine shuts down. Never an error."""
        ...

    def last_lines(self, name: str, /, *, count: int) -> list[str]:
        """Read: return the last lines that a service wrote, its latest life only; none where that cannot be told. Never an error."""
        ...

    def start(self, name: str, /) -> None:
        """Write: start a service that does not run."""
        ...

    def stop(self, name: str, /) -> None:
        """Write: stop a service."""
        ...

    def restart(self, name: str, /) -> None:
        """Write: stop and start a service, or start it."""
        ...

    def enable(self, name: str, /) -> None:
        """Write: have a service started with the machine."""
        ...

    def disable(self, name: str, /) -> None:
        """Write: have a service not started with the machine."""
        ...

    def reload(self) -> None:
        """Write: have the service manager read its unit files again."""
        ...


@dataclass(frozen=True, kw_only=True)
class RuntimeVersion:
    """What a container runtime calls itself: `containerd`, `2.1.4`."""

    name: str
    version: str


class ContainerRuntime(Protocol):
    """The container runtime of a machine. On a local machine images are component binaries and containers are processes.

    Every verb raises RuntimeUnavailable if the runtime does not answer (RuntimeSilent where one is there), HostError if it refuses.
    """

    def version(self) -> RuntimeVersion:
        """Read: return name and version."""
        ...

    def status(self) -> RuntimeStatus:
        """Read: return whether it can start containers, and what it says of itself."""
        ...

    def cgroup_driver(self) -> str | None:
        """Read: return `systemd` or `cgroupfs`, None if it does not tell: the kubelet then needs the right one in its configuration."""
        ...

    def has_image(self, image: str, /) -> bool:
        """Read: tell whether an image is there."""
        ...

    def sandboxes(self) -> list[Sandbox]:
        """Read: return what the pods of this machine run in, by namespace and name."""
        ...

    def containers(self, *, namespace: str) -> list[Container]:
        """Read: return the containers of the pods of a namespace, running or not, the latest first."""
        ...

    def last_lines(self, pod: str, /, *, count: int) -> list[str]:
        """Read: return the last lines that the containers of a static pod wrote, its latest life only; none if it never ran."""
        ...

    def pull(self, image: str, /) -> Change:
        """Write: get an image from its registry, whether it is there or not; none if it is the one that was there."""
        ...

    def remove_sandbox(self, sandbox: Sandbox, /) -> Change:
        """Write: stop and remove a sandbox with all that is in it; one that is gone is no error."""
        ...


class Processes(Protocol):
    """The processes of a machine."""

    def of(self, pid: int, /) -> Identity | None:
        """Read: return the identity of a running process, None if there is none or it is a zombie."""
        ...

    def alive(self, identity: Identity, /) -> bool:
        """Read: tell whether exactly this process still runs."""
        ...

    def usage(self, identity: Identity, /) -> Usage | None:
        """Read: return what it has used, or None if it is gone."""
        ...

    def group(self, leader: int, /) -> list[Identity]:
        """Read: return the running members of a process group, which may outlive the process that it is named after."""
        ...

    def marked(self, marks: Mapping[str, str], /, *, shared: str = ...) -> list[Identity]:
        """Read: return the running processes that carry some marks, as `carries` decides. Raises HostError where /proc is not of our PID namespace.

        Only processes of our own user, or all of them for root. One that made itself undumpable hides its environment:
        a daemon that holds keys is found by the identity that it wrote down, its children by the marks.
        """
        ...

    def carries(self, identity: Identity, marks: Mapping[str, str], /, *, shared: str = ...) -> bool:
        """Read: whether a process runs, had all of these variables in its environment at its start, and sees the files that we see.

        /proc shows the processes of containers too, and paths in their environment mean other files: a process counts only if its mount
        namespace and root are ours, or, where `shared` names a directory, if that path leads it to the very directory to which it leads us.
        """
        ...

    def handle(self, identity: Identity, /) -> int | None:
        """Read: return a pidfd, which becomes readable when the process ends, or None if it is gone. The caller closes it."""
        ...

    def signal(self, identity: Identity, number: Signals, /) -> bool:
        """Write: send a signal to exactly this process; False if it is gone. Raises HostError if it is not ours."""
        ...

    def signal_group(self, leader: Identity, number: Signals, /) -> bool:
        """Write: send a signal to the group that this process leads; False if the leader is gone and reaped, or leads none."""
        ...
