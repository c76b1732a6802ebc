"""The observed state of a machine as plain values: files, services, and the contents and status of its container runtime."""

from __future__ import annotations

import enum
from typing import Final

from kubewright.base.records import dataclass, field

READY: Final = "RuntimeReady"
"""The condition that is required for starting containers."""
NETWORK_READY: Final = "NetworkReady"
"""False until there is a pod network."""


class Kind(enum.Enum):
    """The type of a file."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "symbolic link"
    SOCKET = "socket"
    OTHER = "special file"


@dataclass(frozen=True, kw_only=True)
class FileState:
    """The state of a path, links not followed.

    `mode` is the permission bits only, `modified` is in seconds since 1970, `target` is that of a link.
    """

    kind: Kind
    mode: int
    owner: int = 0
    group: int = 0
    size: int = 0
    modified: float = 0.0
    target: str = ""


@dataclass(frozen=True, kw_only=True)
class FileSystem:
    """The file system that contains a path.

    `device` shows whether two paths are on the same one; `available` excludes root's reserve.
    """

    device: int
    capacity: int
    available: int
    inodes: int
    inodes_free: int


@dataclass(frozen=True, kw_only=True)
class ServiceState:
    """The state of a service. `stale`: its unit files have changed since the service manager read them.

    `failed`: it ended with an error. `again`: the service manager restarts it after a pause, and has done so `restarts`
    times since it was last started explicitly. `since`: its last start in seconds since 1970; 0 if unknown.
    """

    running: bool
    enabled: bool = True
    stale: bool = False
    failed: bool = False
    again: bool = False
    restarts: int = 0
    since: float = 0.0


@dataclass(frozen=True, kw_only=True)
class TunnelPeerState:
    """The state of an interface's peer. `handshake` is the latest one in seconds since 1970, 0 for never."""

    public_key: str
    networks: frozenset[str]
    keepalive: int = 0
    handshake: float = 0.0


@dataclass(frozen=True, kw_only=True)
class TunnelState:
    """The state of a WireGuard interface.

    `forwards`: packets are forwarded between peers, in all families of its addresses. `guard` is the mark of the rules
    that limit which networks its peers may reach, '' without any. Rules may outlive the `device`.
    """

    private_key: str = field(repr=False)
    port: int
    addresses: frozenset[str]
    mtu: int
    up: bool
    forwards: bool
    guard: str = ""
    device: bool = True
    peers: tuple[TunnelPeerState, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A condition that a runtime reports."""

    type: str
    status: bool
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class RuntimeHandler:
    """A handler that a runtime offers for running containers, and its features; the default one has the name ''."""

    name: str
    recursive_read_only_mounts: bool = False
    user_namespaces: bool = False


@dataclass(frozen=True, kw_only=True)
class RuntimeStatus:
    """The status of a runtime.

    `supplemental_groups_policy` is None for a runtime that does not report its features (containerd before 2.0).
    """

    conditions: tuple[Condition, ...] = ()
    handlers: tuple[RuntimeHandler, ...] = ()
    supplemental_groups_policy: bool | None = None

    def unmet(self, kind: str) -> Condition | None:
        """Return the condition of a type if it does not hold; one that the runtime does not report counts as met."""
        return next((condition for condition in self.conditions if condition.type == kind and not condition.status), None)

    @property
    def unready(self) -> Condition | None:
        """The condition that prevents containers from being started."""
        return self.unmet(READY)


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image of a runtime. `size` is in bytes."""

    id: str
    tags: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    size: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Its tags and digests."""
        return (*self.tags, *self.digests)


@dataclass(frozen=True, kw_only=True)
class Sandbox:
    """The sandbox of a pod, shared by its containers.

    A pod may have several: old ones stay until the kubelet removes them.
    """

    id: str
    name: str
    namespace: str
    ready: bool = True

    @property
    def target(self) -> str:
        """The name of the target in changes."""
        return f"pod {self.namespace}/{self.name}"


class ContainerState(enum.Enum):
    """The state of a container."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Container:
    """A run of a container of a pod. `attempt` counts runs from 0; only ended ones have `code` and `reason`.

    `created` and `ended` are in seconds since 1970, `ended` is 0 for one that has not ended. A static pod gets another
    `pod_uid` when its manifest changes; '' if the runtime does not report it.
    """

    id: str
    name: str
    pod: str
    namespace: str
    state: ContainerState
    pod_uid: str = ""
    attempt: int = 0
    code: int = 0
    reason: str = ""
    created: float = 0.0
    ended: float = 0.0
