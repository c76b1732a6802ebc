"""The desired state of a machine: complete values from pure functions, which `Host.ensure` applies."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.change import Lifetime
from kubewright.base.records import dataclass, field


class Show(enum.Enum):
    """How plans and reports show the change of a file."""

    DIFF = "diff"
    """As a unified diff with secrets masked; binary content by its size only."""
    SIZE = "size"
    """By the number of bytes only."""
    MADE = "made"
    """As `made on apply`: the content is different in every run, so that showing it is useless."""


@dataclass(frozen=True, kw_only=True)
class File:
    """A file with exactly this content and mode, compared by bytes, or by meaning if `same` is given.

    `same` takes the found and the desired content. If `owner` and `group` are None, the file belongs to the writing
    user; another owner is not a difference, and root keeps it. `directory_mode` applies to the parent directory if it
    has to be created; directories above it get 0755. `durable` means that the file survives a power cut after the
    write; it is replaced atomically in any case.
    """

    path: PurePosixPath
    content: bytes
    mode: int = 0o600
    owner: int | None = None
    group: int | None = None
    lifetime: Lifetime = Lifetime.DURABLE
    same: Callable[[bytes, bytes], bool] = operator.eq
    show: Show = Show.DIFF
    durable: bool = True
    directory_mode: int = 0o755

    @property
    def target(self) -> str:
        """The name of the target in changes."""
        return f"file {self.path}"


@dataclass(frozen=True, kw_only=True)
class Directory:
    """A directory. An existing one keeps its mode unless `enforce`, which is meant for directories with our secrets.

    Missing parents are created with the same mode, as Go's `os.MkdirAll` does.
    """

    path: PurePosixPath
    mode: int = 0o755
    owner: int | None = None
    group: int | None = None
    enforce: bool = False
    lifetime: Lifetime = Lifetime.DURABLE

    @property
    def target(self) -> str:
        """The name of the target in changes."""
        return f"directory {self.path}"


@dataclass(frozen=True, kw_only=True)
class Service:
    """A service of the machine, such as `kubelet`.

    `units` are its unit file and drop-ins if they do not come from a package. They are written first; if one of them
    changes, the service manager reloads its units and a running service is restarted.
    `restart` restarts a running service because files that it reads have changed. `enabled` None leaves that setting
    unchanged.
    `stand_ins` are files that the running service would write; only an overlay uses them, for the phases that read them
    later.
    """

    name: str
    running: bool = True
    enabled: bool | None = None
    restart: bool = False
    units: tuple[File, ...] = ()
    stand_ins: tuple[File, ...] = ()

    @property
    def target(self) -> str:
        """The name of the target in changes."""
        return f"service {self.name}"


@dataclass(frozen=True, kw_only=True)
class Accounts:
    """System users, each with a group of the same name, and groups with their members, in the files of `etc`.

    Existing accounts must have the same properties.
    """

    users: tuple[str, ...]
    groups: Mapping[str, tuple[str, ...]]
    etc: PurePosixPath = PurePosixPath("/etc")

    @property
    def target(self) -> str:
        """The name of the target in changes."""
        return f"users {', '.join(self.users)}"


@dataclass(frozen=True, kw_only=True)
class Ownership:
    """The owner of an existing path; `mode` None leaves the mode unchanged.

    With `recursive`, it applies to everything below.
    """

    path: PurePosixPath
    owner: int
    group: int
    mode: int | None = None
    recursive: bool = False

    @property
    def target(self) -> str:
        """The name of the target in changes."""
        return f"owner of {self.path}"


@dataclass(frozen=True, kw_only=True)
class TunnelPeer:
    """A remote peer of a tunnel, which connects to us. Traffic of `networks` is routed to it and accepted from it.

    `keepalive` is in seconds, 0 to disable it.
    """

    public_key: str
    networks: tuple[str, ...]
    keepalive: int = 0


@dataclass(frozen=True, kw_only=True)
class Tunnel:
    """A WireGuard interface that has exactly these addresses and peers, is up, and forwards between its peers.

    `addresses` include the prefix length. `outside` are further networks that peers may reach through this machine. The
    kernel creates the device if it is missing; if the kernel has no WireGuard, a service must have created it before
    (`manifests.tunnels`).
    """

    name: str
    private_key: str = field(repr=False)
    port: int
    addresses: tuple[str, ...]
    mtu: int
    peers: tuple[TunnelPeer, ...] = ()
    outside: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """The name of the target in changes."""
        return f"tunnel {self.name}"


@dataclass(frozen=True, kw_only=True)
class TunnelKey:
    """The private key of an existing WireGuard interface, which stays up together with everything bound to it."""

    name: str
    private_key: str = field(repr=False)

    @property
    def target(self) -> str:
        """The name of the target in changes."""
        return f"key of tunnel {self.name}"


PARTIAL: Final = ".partial-"
"""What follows the name of a generated directory that is not complete, before the ID of the process that generates it."""


@dataclass(frozen=True, kw_only=True)
class Generated:
    """A directory that a program writes.

    It gets its name when the program has succeeded; what a killed run left is removed first. `arguments` gives the
    program and its arguments for the path at which it has to write. `within` are the seconds that it may take.
    `stand_ins` are the names of directories that it makes there; plans have them.
    """

    path: PurePosixPath
    arguments: Callable[[PurePosixPath], Sequence[str]]
    within: float
    stand_ins: tuple[str, ...] = ()

    def partial(self, run: int) -> PurePosixPath:
        """Return the path at which the program of a run writes: that of a run which was killed may still be writing."""
        return self.path.with_name(f"{self.path.name}{PARTIAL}{run}")

    @property
    def target(self) -> str:
        """The name of the target in changes."""
        return f"directory {self.path}"


@dataclass(frozen=True, kw_only=True)
class Streamed:
    """A file whose content arrives piece by piece, because it may be large. It gets its name when it is complete.

    `size` is its approximate number of bytes, `spare` is how many must stay free in addition: otherwise nothing is
    written.
    """

    path: PurePosixPath
    pieces: Callable[[], Iterable[bytes]]
    size: int
    spare: int = 0
    mode: int = 0o600

    @property
    def target(self) -> str:
        """The name of the target in changes."""
        return f"file {self.path}"


Desired = File | Directory | Service | Accounts | Ownership | Tunnel | TunnelKey | Generated | Streamed
