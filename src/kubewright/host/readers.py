"""The read-only parts of the Host seam: files, programs, and the network of one machine."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Protocol

from kubewright.host.states import FileState, FileSystem

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kubewright.host.network.interfaces import Family, InterfaceAddress, PortOwner
    from kubewright.host.network.listeners import Listener


class FileReader(Protocol):
    """The reading verbs for files."""

    def read(self, path: PurePosixPath, /) -> bytes | None:
        """Return the content of a file, links followed, or None if there is none.

        Raises HostError if it cannot be read.
        """
        ...

    def state(self, path: PurePosixPath, /) -> FileState | None:
        """Return the state of a path, the last link not followed, or None if nothing is there."""
        ...

    def entries(self, path: PurePosixPath, /) -> list[PurePosixPath]:
        """Return the entries of a directory, sorted; none if there is no directory."""
        ...

    def space(self, path: PurePosixPath, /) -> FileSystem:
        """Return the file system that contains a path. Raises HostError if the path does not exist."""
        ...

    def weakness(self, path: PurePosixPath, /) -> str:
        """Return what lets users other than root and us change or replace the object at a path; '' if nothing does."""
        ...


class Programs(Protocol):
    """The programs of a machine. Both verbs read."""

    def path(self, name: str, /) -> PurePosixPath | None:
        """Return the path of a program, or None.

        Raises HostError if root finds only programs that others can change.
        """
        ...

    def version(self, name: str, /, argument: str = "--version") -> str:
        """Return the version output of a program, for example `Kubernetes v1.36.3`. `argument` is that which asks for it.

        Raises HostError if it is missing or fails.
        """
        ...


class Network(Protocol):
    """The network of a machine. All verbs read; nothing is sent."""

    def interface_addresses(self) -> list[InterfaceAddress]:
        """Return the addresses of all interfaces."""
        ...

    def default_address(self, *, family: Family) -> str | None:
        """Return the address of the interface with the default route of a family, or None."""
        ...

    def loopback_global(self) -> str | None:
        """Return a global address that is configured on the loopback interface, or None."""
        ...

    def listeners(self) -> list[Listener]:
        """Return all listening TCP sockets."""
        ...

    def connected(self, port: int) -> list[str]:
        """Return the addresses that have a TCP connection to a port of this machine, each once."""
        ...

    def owner_of_port(self, address: str, port: int) -> PortOwner | None:
        """Return the process that prevents us from listening at an address and port, or None.

        A listener on all addresses counts.
        """
        ...

    def accepts(self, path: PurePosixPath, /) -> bool:
        """Return whether a program listens at a Unix socket; if this user may not connect to it, that is assumed."""
        ...

    def free_loopback(self, ports: Collection[int], *, avoid: Collection[str] = ()) -> str:
        """Return the first loopback address from 127.0.0.11 on where all the ports are free.

        Raises PortInUse if there is none. Nothing is reserved: hold a lock until the ports are in use, and pass the
        addresses of other clusters as `avoid`.
        """
        ...

    def free_ports(self, address: str, wanted: Sequence[int]) -> list[int]:
        """Return for each port the port itself or the next free one above it, all different.

        Raises PortInUse if none is left.
        """
        ...
