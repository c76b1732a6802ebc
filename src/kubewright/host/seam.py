"""The Host seam: all reads from and changes to one machine go through these protocols.

There are two groups of verbs. Reading verbs change nothing and may be called in a plan. Writing verbs return what they
changed; an overlay stores what they would write. No verb runs a command line.
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
    from kubewright.host.processes import Identity, Usage
    from kubewright.host.programs.packet_filter import Rules


class Host(FileReader, Protocol):
    """One machine."""

    @property
    def layout(self) -> Layout:
        """The paths of this machine's files."""
        ...

    @property
    def facts(self) -> Facts:
        """The facts of the machine, gathered at first use."""
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
        """Read: whether the machine is shutting down, according to its service manager. Never raises."""
        ...

    def service_lines(self, name: str, /, *, count: int) -> list[str]:
        """Read: return the last lines that a service wrote since it was last started; none if they are unavailable.

        Never raises.
        """
        ...

    def ensure(self, desired: Desired, /) -> Change:
        """Write: create or change a file, directory or service as desired, if it differs.

        Raises HostError, DiskFull if there is no space.
        """
        ...

    def remove(self, path: PurePosixPath, /, *, own: Collection[PurePosixPath] = ()) -> Change:
        """Write: remove a file, a link, or a directory with all contents.

        Raises HostError for a path outside the layout and `own`.
        """
        ...

    def empty(self, path: PurePosixPath, /, *, own: Collection[PurePosixPath] = ()) -> Change:
        """Write: remove everything in a directory, but not the directory; no change if it does not exist.

        The directory must belong to the layout or to `own`: paths elsewhere that a cluster's configuration defines. All
        entries are tried; then HostError is raised, naming those that could not be removed. File systems mounted in it
        are not removed.
        """
        ...

    def move(self, path: PurePosixPath, target: PurePosixPath, /) -> Change:
        """Write: rename a file or directory of the layout within its file system; none if that was done before.

        Raises HostError if both exist, or neither does. In a plan, the renamed directory is empty.
        """
        ...

    def mounts(self, directory: PurePosixPath, /) -> list[PurePosixPath]:
        """Read: return the mount points below a directory, links in its path followed; later mounts come later.

        Raises HostError if the directory is not empty and the machine has no table of mounts.
        """
        ...

    def unmount(self, path: PurePosixPath, /, *, flags: Collection[str] = ()) -> Change:
        """Write: unmount the latest mount at a path below the kubelet's directory; no change if nothing is mounted.

        Raises HostError. `flags` are names of `mounts.FLAGS`.
        """
        ...

    def remove_units(self, service: str, /, *, units: Sequence[PurePosixPath]) -> Change:
        """Write: disable a service and remove unit files of it, and their directory if it is then empty.

        Raises HostError for other paths.
        """
        ...

    def remove_accounts(self, unwanted: Accounts, /) -> Change:
        """Write: remove users and groups, regardless of who created them; missing ones are not an error."""
        ...

    def tunnel(self, name: str, /) -> TunnelState | None:
        """Read: return the state of a WireGuard interface, None if it does not exist.

        Raises HostError if it cannot be determined.
        """
        ...

    def set_peers(self, name: str, /, *, peers: Sequence[TunnelPeer], without: Sequence[str]) -> Change:
        """Write: add or update these peers of a WireGuard interface, and remove those with the keys in `without`.

        The current state is not read. Raises HostError.
        """
        ...

    def remove_tunnel(self, name: str, /) -> Change:
        """Write: remove a WireGuard interface; no change if it does not exist. Raises HostError."""
        ...

    @property
    def packet_filter(self) -> PacketFilter:
        """The packet filter rules that other programs created for a cluster."""
        ...


class PacketFilter(Protocol):
    """The rules that kube-proxy and CNI plugins leave in the packet filter of a machine."""

    def found(self) -> list[Rules]:
        """Read: return the rules that exist, in parts that can be removed separately.

        Raises HostError for a tool that fails.
        """
        ...

    def remove(self, rules: Rules, /) -> Change:
        """Write: remove one part. Raises HostError."""
        ...


class Tunnels(Protocol):
    """The WireGuard interfaces of a machine.

    The writing verbs act unconditionally: the caller has decided that a change is needed.
    """

    def state(self, name: str, /) -> TunnelState | None:
        """Read: return the state of an interface, None if it does not exist."""
        ...

    def apply(self, desired: Tunnel, found: TunnelState | None, /) -> None:
        """Write: change an interface from its found to its desired state."""
        ...

    def set_peers(self, name: str, peers: Sequence[TunnelPeer], without: Sequence[str], /) -> None:
        """Write: add peers to an interface, and remove others."""
        ...

    def set_key(self, desired: TunnelKey, /) -> None:
        """Write: change the private key of an interface."""
        ...

    def remove(self, name: str, found: TunnelState, /) -> None:
        """Write: remove an interface, given its state."""
        ...


class Services(Protocol):
    """The service manager of a machine: systemd, or its replacement on a local machine."""

    def state(self, name: str, /) -> ServiceState | None:
        """Read: return the state of a service, None if there is no such service."""
        ...

    def is_stopping(self) -> bool:
        """Read: whether the machine is shutting down. Never raises."""
        ...

    def last_lines(self, name: str, /, *, count: int) -> list[str]:
        """Read: return the last lines that a service wrote since it was last started; none if they are unavailable.

        Never raises.
        """
        ...

    def start(self, name: str, /) -> None:
        """Write: start a service that is not running."""
        ...

    def stop(self, name: str, /) -> None:
        """Write: stop a service."""
        ...

    def restart(self, name: str, /) -> None:
        """Write: stop and start a service, or start it."""
        ...

    def enable(self, name: str, /) -> None:
        """Write: start a service at boot."""
        ...

    def disable(self, name: str, /) -> None:
        """Write: do not start a service at boot."""
        ...

    def reload(self) -> None:
        """Write: make the service manager read its unit files again."""
        ...


@dataclass(frozen=True, kw_only=True)
class RuntimeVersion:
    """The name and version that a container runtime reports: `containerd`, `2.1.4`."""

    name: str
    version: str


class ContainerRuntime(Protocol):
    """The container runtime of a machine.

    On a local machine, images are component binaries and containers are processes. Every verb raises RuntimeUnavailable
    if the runtime does not answer (RuntimeSilent if it accepts connections), HostError if it refuses.
    """

    def version(self) -> RuntimeVersion:
        """Read: return name and version."""
        ...

    def status(self) -> RuntimeStatus:
        """Read: return whether it can start containers, and its conditions."""
        ...

    def sandbox_image(self) -> str:
        """Read: return the image of the pods' sandbox containers, '' if the runtime does not report it (containerd from 2.0 on)."""
        ...

    def image_directories(self) -> Sequence[PurePosixPath]:
        """Read: return the directories that contain its images, with that of its snapshots first; none if it has no such directory."""
        ...

    def cgroup_driver(self) -> str | None:
        """Read: return `systemd` or `cgroupfs`, None if it does not report it; the kubelet's configuration must then set it."""
        ...

    def has_image(self, image: str, /) -> bool:
        """Read: return whether the runtime has an image."""
        ...

    def sandboxes(self) -> list[Sandbox]:
        """Read: return the sandboxes of all pods of this machine, by namespace and name."""
        ...

    def containers(self, *, namespace: str) -> list[Container]:
        """Read: return the containers of the pods of a namespace, running or not, the latest first."""
        ...

    def last_lines(self, pod: str, /, *, count: int, container: str = "") -> list[str]:
        """Read: return the last lines that the latest containers of a static pod wrote; none if it never ran.

        `container` is the ID of a single container of it.
        """
        ...

    def pull(self, image: str, /) -> Change:
        """Write: pull an image from its registry, even if the runtime has it; no change if it is the same one."""
        ...

    def stop_sandbox(self, sandbox: Sandbox, /) -> Change:
        """Write: stop a sandbox and kill everything in it; one that is gone is not an error."""
        ...

    def remove_sandbox(self, sandbox: Sandbox, /) -> Change:
        """Write: stop and remove a sandbox with everything in it; one that is gone is not an error."""
        ...


class Processes(Protocol):
    """The processes of a machine."""

    def of(self, pid: int, /) -> Identity | None:
        """Read: return the identity of a running process, None if it does not exist or is a zombie."""
        ...

    def alive(self, identity: Identity, /) -> bool:
        """Read: return whether exactly this process is still running."""
        ...

    def usage(self, identity: Identity, /) -> Usage | None:
        """Read: return its resource usage, or None if it is gone."""
        ...

    def group(self, leader: int, /) -> list[Identity]:
        """Read: return the running members of a process group, which may outlive its leader."""
        ...

    def marked(self, marks: Mapping[str, str], /, *, shared: str = ...) -> list[Identity]:
        """Read: return the running processes that carry some marks, as `carries` decides.

        Raises HostError if /proc is not of our PID namespace. Only processes of our own user, or all of them for root.
        A process that made itself undumpable hides its environment: a daemon that holds keys is found by the identity
        that it stored, its children by the marks.
        """
        ...

    def carries(self, identity: Identity, marks: Mapping[str, str], /, *, shared: str = ...) -> bool:
        """Read: whether a process runs, had all of these variables in its environment at its start, and sees the same files as we do.

        /proc also shows processes of containers, where paths in the environment denote other files: a process counts
        only if its mount namespace and root are ours or, if `shared` names a directory, that path leads both to the
        same directory.
        """
        ...

    def handle(self, identity: Identity, /) -> int | None:
        """Read: return a pidfd, which becomes readable when the process exits, or None if it is gone.

        The caller closes it.
        """
        ...

    def signal(self, identity: Identity, number: Signals, /) -> bool:
        """Write: send a signal to exactly this process; False if it is gone. Raises HostError if it is not ours."""
        ...
