"""What a machine has, as plain values: files, services, and what its container runtime holds and says of itself."""

from __future__ import annotations

import enum
from typing import Final

from kubewright.base.records import dataclass, field

READY: Final = "RuntimeReady"
"""The condition without which no container starts."""
NETWORK_READY: Final = "NetworkReady"
"""False until there is a pod network."""


class Kind(enum.Enum):
    """What stands at a path."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "symbolic link"
    SOCKET = "socket"
    OTHER = "special file"


@dataclass(frozen=True, kw_only=True)
class FileState:
    """What stands at a path, links not followed. `mode` is the permission bits only, `modified` seconds since 1970, `target` where a link leads."""

    kind: Kind
    mode: int
    owner: int = 0
    group: int = 0
    size: int = 0
    modified: float = 0.0
    target: str = ""


@dataclass(frozen=True, kw_only=True)
class FileSystem:
    """The file system that holds a path. `device` tells whether two paths are in one; `available` is what is left for those who are not root."""

    device: int
    capacity: int
    available: int
    inodes: int
    inodes_free: int


@dataclass(frozen=True, kw_only=True)
class ServiceState:
    """What is known of a service of the machine. `stale`: its unit files have changed since the service manager read them.

    `failed`: it ended with an error; `again`: the service manager starts it again after a pause, and has done so `restarts` times since
    somebody last started it. `since`: when its latest life began, seconds since 1970; 0 where that is not known.
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
    """What an interface knows of a peer. `handshake` is when it was last heard of, seconds since 1970, 0 for never."""

    public_key: str
    networks: frozenset[str]
    keepalive: int = 0
    handshake: float = 0.0


@dataclass(frozen=True, kw_only=True)
class TunnelState:
    """What a WireGuard interface has. `forwards`: packets go from one peer to another, in both families of its addresses.

    `guard` is the mark of the rules that say where its peers may send, '' without any. Rules may outlive the `device`.
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
    """One thing that a runtime says of itself."""

    type: str
    status: bool
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class RuntimeHandler:
    """One way in which a runtime runs containers, and what it can do; the default one has the name ''."""

    name: str
    recursive_read_only_mounts: bool = False
    user_namespaces: bool = False


@dataclass(frozen=True, kw_only=True)
class RuntimeStatus:
    """How a runtime is. `sandbox_image` is the image of its pods' first container, empty where it does not tell.

    `supplemental_groups_policy` is None for a runtime that says nothing of its features (containerd before 2.0).
    """

    conditions: tuple[Condition, ...] = ()
    sandbox_image: str = ""
    handlers: tuple[RuntimeHandler, ...] = ()
    supplemental_groups_policy: bool | None = None

    def unmet(self, kind: str) -> Condition | None:
        """Return the condition of a type if it does not hold; one that the runtime does not have counts as held."""
        return next((condition for condition in self.conditions if condition.type == kind and not condition.status), None)

    @property
    def unready(self) -> Condition | None:
        """The condition that says why containers cannot be started."""
        return self.unmet(READY)


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image that a runtime has. `size` is bytes."""

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
    """What all containers of a pod run in. A pod may have several: old ones stay until the kubelet removes them."""

    id: str
    name: str
    namespace: str
    ready: bool = True

    @property
    def target(self) -> str:
        """Its name in changes."""
        return f"pod {self.namespace}/{self.name}"


class ContainerState(enum.Enum):
    """What a container is doing."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Container:
    """One life of a container of a pod. `attempt` counts lives from 0; `code` and `reason` are told of one that has ended.

    `created` and `ended` are seconds since 1970, `ended` 0 for one that has not. A static pod has another `pod_uid` once its manifest says something
    else; '' where the runtime does not tell.
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
