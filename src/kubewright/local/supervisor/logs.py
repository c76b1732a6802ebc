"""The log of a component: rotated by copying and truncating, read from its end or from a time on, and followed across rotations.

The component keeps its file open, and a pipe would tie it to the daemon. Lines written between the last copied byte and
the truncation are lost; copying is repeated until there are no new lines, so that this takes microseconds. Reading
works without the supervisor that rotates.

The time of a line is taken from its text, because nothing else writes to the file. klog lines (`I0102 15:04:05.123456
...`) have neither year nor zone: components run with TZ=UTC, and the year is the latest one that is not in the future.
etcd's JSON lines have `"ts":"2026-01-02T15:04:05.123456Z"`; zap writes `+0000` there as well.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from kubewright.base.clock import Clock

MAX_BYTES: Final = 10 * 1024 * 1024
KEEP: Final = 2
"""Number of rotated files, besides the current one: `etcd.log.1` (the newer) and `etcd.log.2`."""
_CHUNK: Final = 1 << 20
_TAIL_WINDOW: Final = 64 * 1024
_LINE_LIMIT: Final = 2000

_KLOG: Final = re.compile(rb"[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6}) ")
_JSON: Final = re.compile(rb'\{"[^\n]{0,80}?"ts":"([0-9T:.+\-]{19,35}Z?)"')
_DAY: Final = timedelta(days=1)

FOLLOW_EVERY: Final = 0.1
"""Seconds between two reads of a followed log."""
_READ_CHUNK: Final = 1 << 18
_SHRUNK_READS: Final = 3
"""Number of consecutive reads in which the file is shorter without a rotation, before it counts as truncated."""
_YIELD_EVERY: Final = 500
"""Lines between two yields to the event loop."""


def rotated(log: Path, number: int) -> Path:
    """Return the name of a rotated part; 0 is the current file."""
    return log if number == 0 else log.with_name(f"{log.name}.{number}")


def parts(log: Path) -> list[Path]:
    """Return the existing files of a log, oldest first."""
    return [path for number in range(KEEP, -1, -1) if (path := rotated(log, number)).exists()]


def rotate(log: Path, *, limit: int = MAX_BYTES) -> bool:
    """Rotate a log that has reached `limit` bytes; returns whether it did.

    Raises OSError (full disk); the log is then unchanged.
    """
    try:
        if log.stat().st_size < limit:
            return False
    except FileNotFoundError:
        return False
    copy = log.with_name(f"{log.name}.tmp")
    try:
        with log.open("r+b", buffering=0) as source:
            _copy(source.fileno(), copy)
            source.truncate(0)
        # Renamed last: a reader that sees another `.1` may rely on the current file having been truncated.
        for number in range(KEEP, 1, -1):
            with contextlib.suppress(FileNotFoundError):
                rotated(log, number - 1).replace(rotated(log, number))
        copy.replace(rotated(log, 1))
    except OSError:
        copy.unlink(missing_ok=True)
        raise
    return True


def _copy(source: int, copy: Path) -> None:
    """Copy until there is nothing new."""
    target = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        while chunk := os.read(source, _CHUNK):
            view = memoryview(chunk)
            while view:
                view = view[os.write(target, view) :]
    finally:
        os.close(target)


def tail(log: Path, *, lines: int, start: int = 0) -> list[str]:
    """Return the last lines of the current file, written after offset `start`, without newlines; reads at most 64 KiB."""
    try:
        with log.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            begin = max(start if start <= size else 0, size - _TAIL_WINDOW)
            stream.seek(begin)
            content = stream.read(size - begin)
    except OSError:
        return []
    found = content.decode("utf-8", "replace").splitlines()
    if begin > start and found:
        found = found[1:]  # the first line is incomplete
    return [_shortened(line) for line in found[-lines:]] if lines > 0 else []


def size(log: Path) -> int:
    """Return the size of the current file in bytes; 0 if it is missing."""
    try:
        return log.stat().st_size
    except OSError:
        return 0


def _shortened(line: str) -> str:
    text = "".join(char if char.isprintable() or char == "\t" else "�" for char in line)
    return text if len(text) <= _LINE_LIMIT else f"{text[:_LINE_LIMIT]}…"


def time_of(line: bytes, *, now: datetime) -> datetime | None:
    """Return a line's time, aware; None if it has no readable one."""
    try:
        if match := _KLOG.match(line):
            month, day, hour, minute, second, micro = (int(part) for part in match.groups())
            return _latest(now, month, day, hour, minute, second, micro)
        if match := _JSON.match(line):
            found = datetime.fromisoformat(match[1].decode("ascii"))
            return found if found.tzinfo is not None else None
    except ValueError:
        return None
    return None


def _latest(now: datetime, month: int, day: int, hour: int, minute: int, second: int, micro: int) -> datetime:
    """Add the year to a date: the current year, or the previous one if it would be more than a day in the future."""
    for year in (now.year + 1, now.year, now.year - 1):
        try:
            found = datetime(year, month, day, hour, minute, second, micro, tzinfo=UTC)
        except ValueError:  # February 29
            continue
        if found <= now + _DAY:
            return found
    raise ValueError("no such day")


async def read_log(
    log: Path,
    *,
    clock: Clock,
    tail: int | None = None,
    since: datetime | None = None,
    follow: bool = False,
    ended: Callable[[], bool] = lambda: False,
) -> AsyncIterator[bytes]:
    """Yield lines with their newlines, oldest first; an incomplete last line is yielded when nothing more can follow.

    Following ends once `ended` returns True and everything that was written has been yielded.
    """
    follower = _Follower(log)
    try:
        lines: Iterable[bytes] = _since(follower.history(complete=follow), since, clock)
        if tail is not None:
            lines = collections.deque(lines, maxlen=max(tail, 0))
        for count, line in enumerate(lines):
            yield line
            if count % _YIELD_EVERY == _YIELD_EVERY - 1:
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
    """Drop lines from before a time.

    A line without a time belongs to the previous one; at the very beginning it is kept.
    """
    now, wanted = clock.now(), True
    for line in lines:
        if since is not None and (when := time_of(line, now=now)) is not None:
            wanted = when >= since
        if wanted:
            yield line


class _Follower:
    """Reads the parts of a log in order and then added lines; holds a line back until it is complete.

    A rotation is detected by another `.1` file: the rest of the old file is read from it, and the current file is read
    from its beginning.
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
        """Yield everything that is there now; with `complete`, without an incomplete last line."""
        for descriptor in self._old:
            yield from self._lines(descriptor, 0)
        yield from self.more()
        if not complete and (rest := self.rest()):
            yield rest

    def more(self) -> Iterator[bytes]:
        """Yield the complete lines that were added since the last call."""
        rotation = _inode(self._first)
        if rotation not in {0, self._rotation}:
            self._rotation = rotation
            yield from self._read(self._first, self._position)
            self._position = 0
        elif size(self._log) < self._position:
            self._shrunk += 1
            if self._shrunk < _SHRUNK_READS:  # in the middle of a rotation
                return
            self._position = 0  # truncated by another process
        self._shrunk = 0
        yield from self._read(self._log, self._position, current=True)

    def rest(self) -> bytes:
        """Return the incomplete last line."""
        rest, self._partial = self._partial, b""
        return rest

    def close(self) -> None:
        """Close all open files."""
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
        while chunk := os.read(descriptor, _READ_CHUNK):
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
