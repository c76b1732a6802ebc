"""The programs that the owner of a cluster of machines may have its daemon run as root: commands in machines, and readers of two logs.

What a command does in its machine is up to the owner, who is root there. On the host, the programs and their arguments
are those of this file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from kubewright.base.errors import HostError
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass, field
from kubewright.local.paths import ClusterPaths
from kubewright.machines.machine import Machine

STREAMS: Final = 3
"""Descriptors that come with a program: its standard input, output and error output."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A command in a machine. Without a command it shows the machine's console, without a machine the log of the cluster's daemon.

    `tail` and `follow` are for the daemon's log: the number of its last lines, by default all, and whether to wait for
    more. `terminal` says that the standard input is a terminal that becomes the one of the program's session.
    """

    machine: str = ""
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    terminal: bool = False
    tail: int | None = None
    follow: bool = False

    def argv(self, own: ClusterPaths, found: Callable[[str], Machine | None]) -> list[str]:
        """Return the arguments that root starts; `own` are the daemon's own files. Raises HostError for a machine that does not exist or run."""
        if not self.machine:
            return ["tail", *tail_options(self.tail, follow=self.follow), "--", str(own.daemon_log)]
        machine = found(self.machine)
        if machine is None:
            raise HostError(f"there is no machine {quoted(self.machine)}")
        if not self.command:
            return ["cat", "--", str(machine.places.console)]
        if not machine.runs:
            raise HostError(f"machine {machine.name} does not run", remedy=f"`kubewright local machine start {machine.name}` starts it")
        argv = machine.argv(*self.command, env=self.environment)
        return ["setsid", "--ctty", *argv] if self.terminal else argv

    def encoded(self) -> bytes:
        """Return the program as the packet that a client sends."""
        return json.dumps({name: getattr(self, name) for name in _KINDS}).encode()

    @classmethod
    def decoded(cls, packet: bytes) -> Program:
        """Return the program of a packet. Raises HostError for anything else."""
        try:
            found: dict[str, Any] = json.loads(packet)
            is_one = found.keys() == _KINDS.keys() and all(type(found[name]) in kinds for name, kinds in _KINDS.items())
            words = [found["machine"], *found["command"], *found["environment"], *found["environment"].values()] if is_one else [None]
        except (ValueError, AttributeError, RecursionError):
            words = [None]
        if not all(isinstance(word, str) and "\0" not in word for word in words):
            raise HostError("this is not a program of a cluster of machines")
        return cls(**{**found, "command": tuple(found["command"])})


_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "machine": (str,),
    "command": (list,),
    "environment": (dict,),
    "terminal": (bool,),
    "tail": (int, type(None)),
    "follow": (bool,),
}
"""The fields of a packet, and the types of their values (JSON)."""


def tail_options(lines: int | None, *, follow: bool) -> list[str]:
    """Return the options with which tail(1) shows the last lines of a log, or all of them (None)."""
    return [f"--lines={'+1' if lines is None else lines}", *(["--follow=name"] if follow else [])]


def socket_of(own: ClusterPaths) -> Path:
    """Return the socket to which programs are sent."""
    return own.root / "programs.sock"
