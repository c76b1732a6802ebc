"""What a machine should have: complete values from pure functions. `Host.ensure` makes them true."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from kubewright.base.change import Lifetime
from kubewright.base.records import dataclass, field


class Show(enum.Enum):
    """How a change of a file is told in plans and reports."""

    DIFF = "diff"
    """As a unified diff with secrets masked; bytes that are not text by their number only."""
    SIZE = "size"
    """By the number of its bytes only."""
    MADE = "made"
    """As `made on apply`: the content is new in every run, so that showing it says nothing."""


@dataclass(frozen=True, kw_only=True)
class File:
    """A file with exactly this content and mode, compared by bytes, or by meaning where `same` is given.

    `same` takes what was found and what is desired. `owner` and `group` None: whoever writes it; another owner is no difference, and root keeps it.
    `directory_mode` is for the parent directory if it has to be made; directories above that get 0755.
    `durable` means that the file survives a power cut from then on; it is replaced in one step either way.
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
        """Its name in changes."""
        return f"file {self.path}"


@dataclass(frozen=True, kw_only=True)
class Directory:
    """A directory. One that exists keeps its mode unless `enforce`, which is for those that guard secrets of ours.

    Missing directories above it are made with the same mode, as Go's `os.MkdirAll` makes them.
    """

    path: PurePosixPath
    mode: int = 0o755
    owner: int | None = None
    group: int | None = None
    enforce: bool = False
    lifetime: Lifetime = Lifetime.DURABLE

    @property
    def target(self) -> str:
        """Its name in changes."""
        return f"directory {self.path}"


@dataclass(frozen=True, kw_only=True)
class Service:
    """A service of the machine, such as `kubelet`.

    `units` are its unit file and drop-ins, where no package brings them. They are written first; when one of them changes, the service
    manager reads its units again, and a service that runs is restarted.
    `restart` restarts one that runs already, because files that it reads have changed. `enabled` None leaves that as it is.
    `stand_ins` are files that the running service would write; only an overlay uses them, for the phases that read them later.
    """

    name: str
    running: bool = True
    enabled: bool | None = None
    restart: bool = False
    units: tuple[File, ...] = ()
    stand_ins: tuple[File, ...] = ()

    @property
    def target(self) -> str:
        """Its name in changes."""
        return f"service {self.name}"


@dataclass(frozen=True, kw_only=True)
class Accounts:
    """System users, each with a group of its name, and groups with their members, in the files of `etc`. Existing ones must fit."""

    users: tuple[str, ...]
    groups: Mapping[str, tuple[str, ...]]
    etc: PurePosixPath = PurePosixPath("/etc")

    @property
    def target(self) -> str:
        """Its name in changes."""
        return f"users {', '.join(self.users)}"


@dataclass(frozen=True, kw_only=True)
class Ownership:
    """Who owns something that is there already; `mode` None leaves that as it is. With `recursive`, everything below it as well."""

    path: PurePosixPath
    owner: int
    group: int
    mode: int | None = None
    recursive: bool = False

    @property
    def target(self) -> str:
        """Its name in changes."""
        return f"owner of {self.path}"


@dataclass(frozen=True, kw_only=True)
class TunnelPeer:
    """Another end of a tunnel, which calls us. `networks` are what is sent to it, and taken from it; `keepalive` are seconds, 0 for none."""

    public_key: str
    networks: tuple[str, ...]
    keepalive: int = 0


@dataclass(frozen=True, kw_only=True)
class Tunnel:
    """A WireGuard interface that has exactly these addresses and peers, is up, and lets its peers reach each other.

    `addresses` have the length of the mask. `outside` are the networks beside theirs that peers may send to through this machine. The device is the kernel's, and made where it is missing; where the kernel has no WireGuard,
    a service has to have made it before (`manifests.tunnels`).
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
        """Its name in changes."""
        return f"tunnel {self.name}"


@dataclass(frozen=True, kw_only=True)
class TunnelKey:
    """The private key of a WireGuard interface that somebody else has made: it stays up, with everything that is bound to it."""

    name: str
    private_key: str = field(repr=False)

    @property
    def target(self) -> str:
        """Its name in changes."""
        return f"key of tunnel {self.name}"


@dataclass(frozen=True, kw_only=True)
class Generated:
    """A directory that a program writes. It gets its name when the program has succeeded; what a killed run left is removed first.

    `arguments` gives the program and its arguments for the path at which it has to write. `within` are the seconds that it may take.
    """

    path: PurePosixPath
    arguments: Callable[[PurePosixPath], Sequence[str]]
    within: float

    @property
    def partial(self) -> PurePosixPath:
        """Where the program writes."""
        return self.path.with_name(f"{self.path.name}.partial")

    @property
    def target(self) -> str:
        """Its name in changes."""
        return f"directory {self.path}"


@dataclass(frozen=True, kw_only=True)
class Streamed:
    """A file whose content arrives piece by piece, because it may be large. It gets its name when it is complete.

    `size` is about the number of its bytes, `spare` how many have to be free beside it: where they are not, nothing is written.
    """

    path: PurePosixPath
    pieces: Callable[[], Iterable[bytes]]
    size: int
    spare: int = 0
    mode: int = 0o600

    @property
    def target(self) -> str:
        """Its name in changes."""
        return f"file {self.path}"


Desired = File | Directory | Service | Accounts | Ownership | Tunnel | TunnelKey | Generated | Streamed
