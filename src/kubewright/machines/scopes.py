"""Machines as scopes of the host's systemd, which owns all cgroups where version 2 is the only one (docs/decisions/0036-delegated-scopes.md).

claimed ── `started_in` ──> running ── its last process ends ──> gone, with its cgroup ── `release` ──> forgotten

A scope exists only while its processes do, so a file says that there is a machine from before its first start until its removal.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from kubewright.base.clock import SystemClock
from kubewright.base.events import SilentReporter
from kubewright.base.wait import PollingWaiter
from kubewright.machines.places import RUN
from kubewright.machines.running import quietly

MOUNT: Final = Path("/sys/fs/cgroup")
SLICE: Final = "kubewright.slice"
"""The slice of all machines, which its administrator may give limits: `systemctl set-property kubewright.slice MemoryMax=8G`."""
_PREFIX, _SUFFIX = "kubewright-", ".scope"
_BOOTED: Final = Path("/run/systemd/system")
"""Exists if PID 1 is systemd (sd_booted(3))."""
_TRANSIENT: Final = Path("/run/systemd/transient")
"""The files of the units that systemd has in memory: only after it has removed one can its name be used again."""
_RUN: Final = ("systemd-run", "--scope", "--quiet", "--collect", "--no-ask-password")
_PROPERTIES: Final = ("Delegate=yes", "TasksMax=infinity", "KillSignal=SIGKILL")
"""A scope is limited to a part of the kernel's threads by default.

At the host's shutdown a machine loses power: as it manages the signals of its processes itself, systemd would wait
for 90 seconds after SIGTERM.
"""


def is_owner(*, mount: Path = MOUNT, booted: Path = _BOOTED) -> bool:
    """Return whether systemd owns the hierarchy at a mount point: it must not be changed without asking for a part of it."""
    return booted.is_dir() and (mount / "cgroup.controllers").exists()


def apart(description: str, *, booted: Path = _BOOTED) -> list[str]:
    """Return the words before a command that start it in a scope of its own, where PID 1 is systemd; none elsewhere.

    It then outlives the session of the user who started it, whose processes systemd may end with it (KillUserProcesses=yes,
    logind.conf(5)).
    """
    return [*_RUN, f"--description={description}", "--"] if booted.is_dir() else []


class Scope:
    """The scope of a machine with this name."""

    def __init__(self, name: str, *, mount: Path = MOUNT, transient: Path = _TRANSIENT, known: Path = RUN) -> None:
        self.name = name
        self.unit = f"{_PREFIX}{name}{_SUFFIX}"
        self.directory = mount / SLICE / self.unit
        """The cgroup while it runs. It is systemd's; those below it belong to the machine."""
        self._file = transient / self.unit
        self._known = known / f"{name}{_SUFFIX}"

    def claim(self) -> None:
        """Record that this machine exists."""
        self._known.parent.mkdir(mode=0o700, exist_ok=True)
        self._known.touch()

    def started_in(self, argv: Sequence[str]) -> list[str]:
        """Return the arguments that start a program in a new scope."""
        return [
            *(*_RUN, f"--unit={self.unit}", f"--slice={SLICE}"),
            *(f"--property={one}" for one in _PROPERTIES),
            *("--", *argv),
        ]

    def wait_until_gone(self, *, within: float = 120) -> None:
        """Wait until systemd has removed the scope, whose processes have ended. Raises WaitTimeout."""
        waiter = PollingWaiter(clock=SystemClock(), reporter=SilentReporter())

        def gone() -> str | None:
            return f"{self._file} still exists" if self._file.exists() else None

        waiter.until(
            gone,
            within=within,
            saying=f"systemd to remove {self.unit}",
            every=0.005,
            at_most=0.05,
            remedy=f"see `systemctl status {self.unit}`",
        )

    def release(self) -> None:
        """Forget the machine."""
        self._known.unlink(missing_ok=True)
        with suppress(OSError):  # others are in it, or it is gone
            self._known.parent.rmdir()


def names(*, mount: Path = MOUNT, known: Path = RUN) -> set[str]:
    """Return the names of all machines that run or were claimed. Users other than root see only running ones."""
    running = {path.name.removeprefix(_PREFIX) for path in (mount / SLICE).glob(f"{_PREFIX}*_*{_SUFFIX}")}
    return {name.removesuffix(_SUFFIX) for name in running | {path.name for path in known.glob(f"*_*{_SUFFIX}")}}


def end_slice() -> None:
    """End the slice of the machines, which systemd keeps otherwise. There must be no machines: systemd would stop them."""
    if (MOUNT / SLICE).exists():
        quietly(["systemctl", "stop", SLICE])
