"""The log file of one component: rotated by copy and truncate, because the component holds it open and a pipe would tie it to the daemon.

Lines written between the last copied byte and the truncation are lost; the copy is repeated until nothing new came, so that is microseconds.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 10 * 1024 * 1024
KEEP: Final = 2
"""Rotated files beside the current one: `etcd.log.1` (the newer) and `etcd.log.2`."""
_CHUNK: Final = 1 << 20
_TAIL_WINDOW: Final = 64 * 1024
_LINE_LIMIT: Final = 2000


def rotated(log: Path, number: int) -> Path:
    """Return the name of a rotated part; 0 is the current file."""
    return log if number == 0 else log.with_name(f"{log.name}.{number}")


def parts(log: Path) -> list[Path]:
    """Return the existing files of a log, oldest first."""
    return [path for number in range(KEEP, -1, -1) if (path := rotated(log, number)).exists()]


def rotate(log: Path, *, limit: int = MAX_BYTES) -> bool:
    """Rotate a log that has reached `limit` bytes; returns whether it did. Raises OSError (full disk), the log then stays as it is."""
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
        # Renamed last: a reader that sees another `.1` may rely on the current file having been cut.
        for number in range(KEEP, 1, -1):
            with contextlib.suppress(FileNotFoundError):
                rotated(log, number - 1).replace(rotated(log, number))
        copy.replace(rotated(log, 1))
    except OSError:
        copy.unlink(missing_ok=True)
        raise
    return True


def _copy(source: int, copy: Path) -> None:
    """Copy until nothing new comes."""
    target = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        while chunk := os.read(source, _CHUNK):
            view = memoryview(chunk)
            while view:
                view = view[os.write(target, view) :]
    finally:
        os.close(target)


def tail(log: Path, *, lines: int, start: int = 0) -> list[str]:
    """Return the last lines of the current file, written after offset `start`, without line ends; looks at 64 KiB at most."""
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
        found = found[1:]  # cut in the middle
    return [_shortened(line) for line in found[-lines:]] if lines > 0 else []


def size(log: Path) -> int:
    """Return how many bytes the current file has; 0 if it is not there."""
    try:
        return log.stat().st_size
    except OSError:
        return 0


def _shortened(line: str) -> str:
    text = "".join(char if char.isprintable() or char == "\t" else "�" for char in line)
    return text if len(text) <= _LINE_LIMIT else f"{text[:_LINE_LIMIT]}…"
