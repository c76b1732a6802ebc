"""A lock that ensures that one kubewright runs at a time, names its holder, and is released when its process ends in any way."""

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
"""Seconds to wait for the lock of a dead holder: a child that it was just starting holds it until it executes another program."""
_LOOK: Final = 0.02
_UNNAMED: Final = "held by another program that does not write its name into the file, such as kubectl"


class Lock:
    """A lock on a file, held between `acquire` and `release` or in a `with` block.

    `doing` describes the holder to others: its command line, without secrets. The file remains when the lock is
    released; to remove its directory, call `release(remove=True)`.
    A file without any permission is a lock of another kind, client-go's for kubeconfigs: it counts as held as long as
    it exists. A process that is forked (not executed) while the lock is held shares it.
    """

    def __init__(self, path: PurePosixPath, *, doing: str, clock: Clock | None = None) -> None:
        self._path = path
        self._doing = doing
        self._clock = clock or SystemClock()
        self._opened: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._opened is not None

    def acquire(self) -> None:
        """Take the lock.

        Raises Locked, naming the holder, if another process holds it, and HostError if the file cannot be written.
        """
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
        """Take the lock and return None, or return who holds it. Usable as the condition of a `Waiter`."""
        if self.held:
            return f"held by this process (pid {os.getpid()})"
        with explaining("lock", self._path):
            try:
                while self._opened is None:  # again if the file was removed between open and flock: such a lock excludes nothing
                    if (holder := self._attempt()) is not None:
                        return holder
            except PermissionError:
                if _excludes_by_being_there(os.lstat(self._path)):
                    return _UNNAMED
                raise
        return None

    def _attempt(self) -> str | None:
        """Lock the file, unless it is removed meanwhile. Returns who holds the lock if another process does."""
        opened = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if _excludes_by_being_there(os.fstat(opened)):
                return _UNNAMED
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._still_there(opened):
                self._sign(opened)
                self._opened = opened
        except BlockingIOError:
            return _holder(opened)
        finally:
            if self._opened != opened:
                os.close(opened)
        return None

    def release(self, *, remove: bool = False) -> None:
        """Release the lock; does nothing if it is not held. With `remove`, the file is removed too."""
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
    """Return whether a lock file is client-go's: no permissions, and locked until it is removed (tools/clientcmd: lockFile)."""
    return stat.S_IMODE(found.st_mode) == 0


def _holder(opened: int) -> str:
    """Read who holds the lock. The holder may not have written its name yet."""
    text = os.pread(opened, _HOLDER_LIMIT, 0).decode("utf-8", errors="replace").strip()
    return text or "held by another process"


def _is_dead(holder: str) -> bool:
    """Return whether the process named in the lock has ended."""
    found = _HOLDER.fullmatch(holder)
    return found is not None and Identity.of(int(found["pid"])) is None
