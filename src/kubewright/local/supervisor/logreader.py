"""Reading a component's log: its tail, from a time on, and on and on, over rotations. Works without the supervisor that writes it."""

from __future__ import annotations

import asyncio
import collections
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from kubewright.base.clock import Clock
from kubewright.local.supervisor.logs import parts, rotated
from kubewright.local.supervisor.logtimes import time_of

FOLLOW_EVERY: Final = 0.1
"""Seconds between two looks at a followed log."""
_CHUNK: Final = 1 << 18
_PATIENCE: Final = 3
"""Looks at a file that became shorter without a rotation, before it is believed."""
_BREATHE: Final = 500
"""Lines between two turns of the event loop."""


async def read_log(
    log: Path,
    *,
    clock: Clock,
    tail: int | None = None,
    since: datetime | None = None,
    follow: bool = False,
    ended: Callable[[], bool] = lambda: False,
) -> AsyncIterator[bytes]:
    """Yield lines with their line ends, oldest first; a last line without one is given as it is when nothing more can come.

    Following ends once `ended` says so and everything that was written has been given.
    """
    follower = _Follower(log)
    try:
        lines: Iterable[bytes] = _since(follower.history(complete=follow), since, clock)
        if tail is not None:
            lines = collections.deque(lines, maxlen=max(tail, 0))
        for count, line in enumerate(lines):
            yield line
            if count % _BREATHE == _BREATHE - 1:
                await asyncio.sleep(0)
        while follow:
            last = ended()
            for line in follower.more():
                yield line
            if last:
                break
            await asyncio.sleep(FOLLOW_EVERY)
        if rest := follower.rest():
            yield rest
    finally:
        follower.close()


def _since(lines: Iterator[bytes], since: datetime | None, clock: Clock) -> Iterator[bytes]:
    """Drop lines from before a time. A line without a time belongs to the one before it; at the very beginning it is kept."""
    now, wanted = clock.now(), True
    for line in lines:
        if since is not None and (when := time_of(line, now=now)) is not None:
            wanted = when >= since
        if wanted:
            yield line


class _Follower:
    """Reads the parts of a log in order and then what is added; keeps a line back until it is complete.

    A rotation shows as another `.1` file: the rest of what was being read is its end, and the current file starts again at its beginning.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._first = rotated(log, 1)
        self._rotation = _inode(self._first)
        self._old = [_open(path) for path in parts(log) if path != log]  # opened at once: a rotation renames them
        self._position = 0
        self._partial = b""
        self._shrunk = 0

    def history(self, *, complete: bool) -> Iterator[bytes]:
        """Yield everything that is there now; with `complete` not the beginning of a line that is still being written."""
        for descriptor in self._old:
            yield from self._lines(descriptor, 0)
        yield from self.more()
        if not complete and (rest := self.rest()):
            yield rest

    def more(self) -> Iterator[bytes]:
        """Yield the complete lines that were added since the last look."""
        rotation = _inode(self._first)
        if rotation not in {0, self._rotation}:
            self._rotation = rotation
            yield from self._read(self._first, self._position)
            self._position = 0
        elif _size(self._log) < self._position:
            self._shrunk += 1
            if self._shrunk < _PATIENCE:  # in the middle of a rotation
                return
            self._position = 0  # cut by somebody else
        self._shrunk = 0
        yield from self._read(self._log, self._position, current=True)

    def rest(self) -> bytes:
        """Return the incomplete last line."""
        rest, self._partial = self._partial, b""
        return rest

    def close(self) -> None:
        """Close what is still open."""
        for descriptor in self._old:
            if descriptor >= 0:
                os.close(descriptor)
        self._old = []

    def _read(self, path: Path, start: int, *, current: bool = False) -> Iterator[bytes]:
        descriptor = _open(path)
        try:
            yield from self._lines(descriptor, start, current=current)
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _lines(self, descriptor: int, start: int, *, current: bool = False) -> Iterator[bytes]:
        if descriptor < 0:
            return
        os.lseek(descriptor, start, os.SEEK_SET)
        while chunk := os.read(descriptor, _CHUNK):
            if current:
                self._position += len(chunk)
            *complete, self._partial = (self._partial + chunk).split(b"\n")
            for line in complete:
                yield line + b"\n"


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
