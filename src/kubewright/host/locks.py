"""One kubewright at a time: a lock that ends with its process, however that ends, and that names its holder."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Final, Self

from kubewright.base.clock import Clock, SystemClock, rfc3339
from kubewright.base.errors import Locked
from kubewright.base.patterns import Pattern
from kubewright.host.failures import explaining
from kubewright.host.processes import Identity

_HOLDER_LIMIT: Final = 4096
_HOLDER: Final = Pattern(r"held by pid (?P<pid>[0-9]+) .*")
_LINGERS: Final = 2.0
"""Seconds for which a dead holder's lock is waited for: a child that it was just starting has it until that is another program."""
_LOOK: Final = 0.02
_NO_HOLDER: Final = "held by a program that says so by the file alone, as kubectl does"


class Lock:
    """A lock on a file, held between `acquire` and `release` or in a `with` block.

    `doing` tells others what the holder does: its command line, without secrets. The file stays when the lock is released; whoever
    removes the directory that it is in calls `release(remove=True)`.
    A file without any permission is a lock of another kind, client-go's for kubeconfigs: it counts as held for as long as it is there.
    A process that is forked (not: executed) while the lock is held shares it.
    """

    def __init__(self, path: PurePosixPath, *, doing: str, clock: Clock | None = None) -> None:
        self._path = path
        self._doing = doing
        self._clock = clock or SystemClock()
        self._opened: int | None = None

    @property
    def held(self) -> bool:
        """Whether it is ours at the moment."""
        return self._opened is not None

    def acquire(self) -> None:
        """Take the lock. Raises Locked, naming the holder, if somebody else has it, and HostError if the file cannot be written."""
        end = self._clock.monotonic() + _LINGERS
        while (holder := self.try_acquire()) is not None:
            if not _is_dead(holder) or self._clock.monotonic() >= end:
                raise Locked(
                    f"another kubewright is running: {self._path} is locked",
                    detail=holder,
                    remedy="wait until it has ended, then run the same command again",
                )
            self._clock.sleep(_LOOK)

    def try_acquire(self) -> str | None:
        """Take the lock and return None, or say who holds it. Fit as the condition of a `Waiter`."""
        if self.held:
            return f"held by this process (pid {os.getpid()})"
        with explaining("lock", self._path):
            while True:
                try:
                    opened = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                except PermissionError:
                    if _excludes_by_being_there(os.lstat(self._path)):
                        return _NO_HOLDER
                    raise
                try:
                    if _excludes_by_being_there(os.fstat(opened)):
                        return _NO_HOLDER
                    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if self._still_there(opened):
                        self._sign(opened)
                        self._opened = opened
                        return None
                except BlockingIOError:
                    return _holder(opened)
                finally:
                    if self._opened != opened:  # also: removed between open and flock, when a lock on it excludes nobody
                        os.close(opened)

    def release(self, *, remove: bool = False) -> None:
        """Give the lock back; nothing happens if it is not held. With `remove` its file goes too."""
        opened, self._opened = self._opened, None
        if opened is None:
            return
        with explaining("unlock", self._path):
            try:
                if remove:
                    Path(self._path).unlink()
                else:
                    os.ftruncate(opened, 0)
            finally:
                os.close(opened)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()

    def _still_there(self, opened: int) -> bool:
        mine = os.fstat(opened)
        try:
            there = os.lstat(self._path)
        except FileNotFoundError:
            return False
        return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)

    def _sign(self, opened: int) -> None:
        text = f"held by pid {os.getpid()} since {rfc3339(self._clock.now())}: {self._doing}\n"
        os.ftruncate(opened, 0)
        os.pwrite(opened, text.encode(errors="surrogateescape"), 0)


def _excludes_by_being_there(found: os.stat_result) -> bool:
    """Tell whether a lock file is one of client-go's: without any permission, and locked until it is removed (tools/clientcmd: lockFile)."""
    return stat.S_IMODE(found.st_mode) == 0


def _holder(opened: int) -> str:
    """Read who holds the lock. The holder may not have signed yet."""
    text = os.pread(opened, _HOLDER_LIMIT, 0).decode("utf-8", errors="replace").strip()
    return text or "held by another process"


def _is_dead(holder: str) -> bool:
    """Tell whether the process that signed has ended."""
    found = _HOLDER.fullmatch(holder)
    return found is not None and Identity.of(int(found["pid"])) is None
