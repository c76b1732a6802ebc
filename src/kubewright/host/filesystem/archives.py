"""Untrusted tar archives, read as a stream with limits.

tarfile reads headers with long names and extended attributes whole, however large they say that they are, and calls
itself for each of them. Here no read is larger than `PIECE`, and so contents have to be read in pieces.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final, Protocol

PIECE: Final = 1 << 20
"""How many bytes are read at once."""
UNREADABLE: Final = (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError)
"""The errors of tarfile for an archive that is invalid, cut off or hostile."""


class Pipe(Protocol):
    """Something that can be read once."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, none at the end."""
        ...


class Forward:
    """A pipe as tarfile needs it: read only forward, in pieces of limited size, up to `most` bytes."""

    def __init__(self, pipe: Pipe, *, most: int) -> None:
        self._pipe = pipe
        self._most = most
        self._position = 0

    def tell(self) -> int:
        """Return how many bytes have been read."""
        return self._position

    def seek(self, position: int) -> int:
        """Skip bytes. Raises ReadError for a position that has been passed."""
        if position < self._position:
            raise tarfile.ReadError("its entries overlap")
        while self._position < position and self.read(min(PIECE, position - self._position)):
            pass
        return self._position

    def read(self, size: int = PIECE) -> bytes:
        """Read. Raises ReadError for more than a piece, and beyond the limit."""
        if not 0 <= size <= PIECE:
            raise tarfile.ReadError("an entry has an oversized header")
        data = self._pipe.read(size)
        self._position += len(data)
        if self._position > self._most:
            raise tarfile.ReadError(f"it is larger than {self._most} bytes")
        return data


@contextmanager
def opened(stream: Forward) -> Iterator[tarfile.TarFile]:
    """Read an archive without compression, entry by entry. The block, too, may raise the errors of `UNREADABLE`."""
    with tarfile.open(fileobj=stream, mode="r:", encoding="utf-8", errors="surrogateescape") as tar:  # type: ignore[call-overload]
        yield tar


def whole(content: IO[bytes]) -> bytes:
    """Return the content of an entry, whose size the caller has checked."""
    return b"".join(iter(lambda: content.read(PIECE), b""))
