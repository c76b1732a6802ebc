"""The verification of snapshot files, and the progress of reading and writing them.

A snapshot file is the database of a member (bbolt pages) followed by its SHA-256, 32 bytes; the size of the database is
a multiple of 512 bytes (etcd v3.6, etcdutl/snapshot/v3_snapshot.go). Pages are not parsed here: etcdutl does that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kubewright.base.errors import DocumentError
from kubewright.base.events import Progress
from kubewright.base.records import dataclass

if TYPE_CHECKING:
    from kubewright.base.clock import Clock
    from kubewright.base.events import Reporter

TRAILER: Final = 32
"""Bytes of the SHA-256 at the end."""
SECTOR: Final = 512
"""The size of the database is a multiple of this."""
QUIET: Final = 2.0
"""Seconds without reports of progress at the beginning."""
_MAGIC: Final = 0xED0CDAED.to_bytes(4, "little")
_MAGIC_AT: Final = 16
"""The position of the magic number of a bbolt database: behind the header of its first page (bbolt v1.4, internal/common/meta.go)."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A complete snapshot: the size of its file in bytes, and the SHA-256 of its database in hexadecimal, which its last bytes repeat."""

    size: int
    sha256: str


def reported(pieces: Iterable[bytes], *, task: str, size: int, clock: Clock, reporter: Reporter) -> Iterator[bytes]:
    """Yield the pieces of a large file, and report the progress of a task from `QUIET` seconds on. `size` is the expected number of bytes."""
    begun, done = clock.monotonic(), 0
    for piece in pieces:
        done += len(piece)
        if clock.monotonic() - begun > QUIET:
            reporter.emit(Progress(task=task, done=done, total=max(size, done), unit="bytes"))
        yield piece


class Checker:
    """Reads a snapshot piece by piece and verifies it at the end. `name` is its name in errors."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._hash = hashlib.sha256()
        self._first = b""
        self._last = b""
        self.size = 0

    def take(self, content: bytes) -> bytes:
        """Process the next piece. Returns it."""
        self.size += len(content)
        if len(self._first) < _MAGIC_AT + len(_MAGIC):
            self._first += content[: _MAGIC_AT + len(_MAGIC)]
        kept = self._last + content
        self._hash.update(kept[:-TRAILER])
        self._last = kept[-TRAILER:]
        return content

    def finish(self) -> Snapshot:
        """Return the complete snapshot. Raises DocumentError for anything else."""
        if self._first[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] != _MAGIC:
            raise self._refused("it does not begin as a database of etcd does")
        if self.size % SECTOR == 0:
            raise self._refused("it does not end with a SHA-256: it is the copy of a data directory, or was cut off")
        if self.size % SECTOR != TRAILER:
            raise self._refused(f"it was cut off: it has {self.size} bytes, and no snapshot has that many")
        if self._hash.digest() != self._last:
            raise self._refused("its content does not have the SHA-256 at its end: it was cut off or changed")
        return Snapshot(size=self.size, sha256=self._hash.hexdigest())

    def _refused(self, why: str) -> DocumentError:
        return DocumentError(
            f"{self._name} is not a complete snapshot of etcd", detail=why, remedy="use another snapshot, or save a new one"
        )
