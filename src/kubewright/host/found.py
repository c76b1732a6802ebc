"""What a machine has: the states that a `Host` reads and that decisions compare with what is desired."""

from __future__ import annotations

import enum

from kubewright.base.records import dataclass


class Kind(enum.Enum):
    """What stands at a path."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "symbolic link"
    SOCKET = "socket"
    OTHER = "special file"


@dataclass(frozen=True, kw_only=True)
class FileState:
    """What stands at a path, links not followed. `mode` is the permission bits only, `modified` seconds since 1970."""

    kind: Kind
    mode: int
    owner: int = 0
    group: int = 0
    size: int = 0
    modified: float = 0.0


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
