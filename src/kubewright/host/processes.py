"""Processes of this machine, identified by more than their pid, which may denote another process later.

Uses only /proc and pidfds. Starting processes is left to their supervisors.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from signal import Signals, pidfd_send_signal
from typing import Final

from kubewright.base.clock import Clock, SystemClock
from kubewright.base.errors import HostError
from kubewright.base.records import dataclass

_DEAD: Final = frozenset("ZXx")
_KIB: Final = 1024
_PROC: Final = Path("/proc")
_READS: Final = 50
_EMPTY_READS: Final = 10
_LONGER: Final = 0.001
"""By how many seconds each pause between two reads of environments is longer than the one before."""
_MOUNT_PROC: Final = "mount the one of this namespace, as `unshare --mount-proc` does"


@dataclass(frozen=True, kw_only=True)
class Identity:
    """A unique identity of a process: its pid, its start time (clock ticks since the boot), and the boot id."""

    pid: int
    start_time: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> Identity | None:
        """Return the identity of a running process of this machine, or None."""
        return RealProcesses().of(pid)

    @classmethod
    def parse(cls, text: str) -> Identity:
        """Parse the output of `str`. Raises ValueError for anything else."""
        pid, start_time, boot_id = text.strip().split(":")
        return cls(pid=int(pid), start_time=int(start_time), boot_id=boot_id)

    def __str__(self) -> str:
        return f"{self.pid}:{self.start_time}:{self.boot_id}"


@dataclass(frozen=True, kw_only=True)
class Usage:
    """The resources used by a process: seconds of CPU since its start, and bytes of memory."""

    cpu_seconds: float
    rss_bytes: int


@dataclass(frozen=True, kw_only=True)
class _Stat:
    state: str
    group: int
    ticks: int
    start_time: int


class RealProcesses:
    """The `Processes` of this machine. `proc` is where procfs is mounted."""

    def __init__(self, *, proc: Path = _PROC, clock: Clock | None = None) -> None:
        self._proc = proc
        self._clock = clock or SystemClock()
        self._boot_id = ""

    def of(self, pid: int, /) -> Identity | None:
        found = self._stat(pid)
        return None if found is None or found.state in _DEAD else self._identity(pid, found)

    def alive(self, identity: Identity, /) -> bool:
        return self.of(identity.pid) == identity

    def usage(self, identity: Identity, /) -> Usage | None:
        found = self._stat(identity.pid)
        if found is None or self._identity(identity.pid, found) != identity:
            return None
        status = dict(line.split(":", 1) for line in self._text(f"{identity.pid}/status").splitlines() if ":" in line)
        return Usage(
            cpu_seconds=found.ticks / os.sysconf("SC_CLK_TCK"),
            rss_bytes=_kilobytes(status.get("VmRSS", "")),
        )

    def group(self, leader: int, /) -> list[Identity]:
        members = ((pid, self._stat(pid)) for pid in self._pids())
        return [self._identity(pid, found) for pid, found in members if found and found.group == leader and found.state not in _DEAD]

    def marked(self, marks: Mapping[str, str], /, *, shared: str = "") -> list[Identity]:
        self._require_own_numbers()
        return self._carrying([one for pid in self._pids() if (one := self.of(pid)) is not None], marks, shared=shared)

    def carries(self, identity: Identity, marks: Mapping[str, str], /, *, shared: str = "") -> bool:
        return bool(self._carrying([identity], marks, shared=shared))

    def _carrying(self, identities: Iterable[Identity], marks: Mapping[str, str], *, shared: str) -> list[Identity]:
        wanted = {os.fsencode(f"{name}={value}") for name, value in marks.items()}
        candidates = {one.pid: one for one in identities}
        found = environments(candidates, proc=self._proc, clock=self._clock)
        return [
            one
            for pid, one in candidates.items()
            if wanted <= set(found[pid].split(b"\0")) and (self._sees_our_files(pid) or self._reaches(pid, shared)) and self.alive(one)
        ]

    def handle(self, identity: Identity, /) -> int | None:
        try:
            opened = os.pidfd_open(identity.pid)
        except (ProcessLookupError, ValueError, OSError):
            return None
        if self.alive(identity):  # checked after opening: the handle cannot denote another process later
            return opened
        os.close(opened)
        return None

    def signal(self, identity: Identity, number: Signals, /) -> bool:
        opened = self.handle(identity)
        if opened is None:
            return False
        try:
            pidfd_send_signal(opened, number)
        except ProcessLookupError:
            return False
        except PermissionError as error:
            raise _not_ours(identity, number) from error
        finally:
            os.close(opened)
        return True

    def _require_own_numbers(self) -> None:
        """Require that pids in /proc are those of our PID namespace: a signal would reach the wrong process otherwise.

        Raises HostError.
        """
        try:
            mine = os.readlink(self._proc / "self")  # noqa: PTH115 - it is a number, not a path
        except OSError as error:
            raise HostError(f"cannot read {self._proc}", detail=error.strerror or "", remedy=_MOUNT_PROC) from error
        if mine != str(os.getpid()):
            raise HostError(
                f"{self._proc} shows the processes of another PID namespace",
                detail=f"the pid of this process is {os.getpid()} here and {mine} there",
                remedy=_MOUNT_PROC,
            )

    def _sees_our_files(self, pid: int) -> bool:
        """Whether a path means the same file to a process as to us: its mount namespace and root are ours.

        False if we may not look.
        """
        theirs, ours = (self._link(f"{one}/ns/mnt") for one in (str(pid), "self"))
        return theirs == ours and self._same(self._proc / str(pid) / "root", self._proc / "self/root")

    def _reaches(self, pid: int, path: str) -> bool:
        """Whether a path leads a process with another mount namespace or root to the same directory as it leads us."""
        return bool(path) and self._same(self._proc / str(pid) / "root" / path.lstrip("/"), Path(path))

    def _same(self, first: Path, second: Path) -> bool:
        try:
            return os.path.samestat(first.stat(), second.stat())
        except OSError:  # already gone, missing, or not readable
            return False

    def _link(self, name: str) -> str:
        try:
            return os.readlink(self._proc / name)  # noqa: PTH115 - `mnt:[4026531841]` is no path
        except OSError:
            return ""

    def _identity(self, pid: int, found: _Stat) -> Identity:
        self._boot_id = self._boot_id or self._text("sys/kernel/random/boot_id").strip()
        return Identity(pid=pid, start_time=found.start_time, boot_id=self._boot_id)

    def _stat(self, pid: int) -> _Stat | None:
        """Parse /proc/PID/stat (proc_pid_stat(5)).

        The program's name may contain spaces and brackets: fields count from the last `)`.
        """
        fields = self._text(f"{pid}/stat").rpartition(")")[2].split()
        if len(fields) < 20:
            return None
        return _Stat(state=fields[0], group=int(fields[2]), ticks=int(fields[11]) + int(fields[12]), start_time=int(fields[19]))

    def _pids(self) -> Iterator[int]:
        return (int(entry.name) for entry in self._proc.iterdir() if entry.name.isdigit())

    def _text(self, name: str) -> str:
        return _content(self._proc / name).decode("utf-8", errors="replace")


def environment(pid: int) -> bytes:
    """Return the environment of a process, as `environments` does."""
    return environments([pid])[pid]


def environments(pids: Iterable[int], *, proc: Path = _PROC, clock: Clock | None = None) -> dict[int, bytes]:
    """Return the environments of processes, their variables separated by zero bytes; empty if one has ended, or is another user's.

    While a process executes another program, both its environment and its command line read as empty (Linux:
    fs/binfmt_elf.c sets them last), so it is read again until that is over. A kernel thread, which has no executable,
    is not. A process with a command line may just have finished: several empty reads show that it has no environment.
    Processes can also unmap both forever, as those of user-mode Linux do, sometimes hundreds. So all processes are read
    again together, for little more than a second.
    """
    found: dict[int, bytes] = {}
    empty, waiting, clock = Counter[int](), list(pids), clock or SystemClock()
    for number in range(_READS):
        if number:
            clock.sleep(number * _LONGER)
        for pid in waiting:
            place = proc / str(pid)
            found[pid] = _content(place / "environ")
            if found[pid] or not _has_executable(place):
                empty[pid] = _EMPTY_READS
            else:
                empty[pid] += bool(_content(place / "cmdline"))
        waiting = [pid for pid in waiting if empty[pid] < _EMPTY_READS]
        if not waiting:
            break
    return found


def _has_executable(place: Path) -> bool:
    try:
        return bool((place / "exe").readlink())
    except OSError:  # a thread of the kernel, a process that has ended, or not ours
        return False


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # already gone, or not ours
        return b""


def _kilobytes(text: str) -> int:
    return int(text.split(maxsplit=1)[0]) * _KIB if text.strip() else 0


def _not_ours(identity: Identity, number: Signals) -> HostError:
    return HostError(
        f"not allowed to send {number.name} to process {identity.pid}",
        detail=f"it does not belong to user {os.geteuid()}",
        remedy="run the command as the user who started it, or as root",
    )
