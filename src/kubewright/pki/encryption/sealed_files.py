"""Encryption of files of any size: AES-GCM in pieces, each of which is bound to its position and to whether it is the last.

A sealed file consists of a first line, which identifies the format, and pieces of `PIECE` bytes, of which the last may
be shorter; each is sealed like small values (`sealing`). A piece is bound to the first line, to its number and to
whether more follow, so a file whose pieces were exchanged, omitted or cut off is rejected (the construction STREAM of
Hoang, Reyhanitabar, Rogaway and Vizár).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kubewright.base.errors import TrustError
from kubewright.base.randomness import Random
from kubewright.pki.encryption import sealing

PIECE: Final = 1 << 20
"""Bytes of content in each piece."""


class SealedWriter:
    """A binary file that seals what is written to it.

    `finish` writes the last piece; without it the file cannot be opened.
    """

    def __init__(self, write: Callable[[bytes], object], key: bytes, *, first_line: bytes, random: Random) -> None:
        self._write = write
        self._key = key
        self._line = first_line
        self._random = random
        self._number = 0
        self._rest = bytearray()
        write(first_line)

    def write(self, content: bytes, /) -> int:
        """Add content."""
        self._rest += content
        while len(self._rest) > PIECE:  # the last piece is kept
            self._seal(bytes(self._rest[:PIECE]), last=False)
            del self._rest[:PIECE]
        return len(content)

    def finish(self) -> None:
        """Write the last piece."""
        self._seal(bytes(self._rest), last=True)
        self._rest.clear()

    def _seal(self, content: bytes, *, last: bool) -> None:
        about = _associated_data(self._line, self._number, last=last)
        self._write(sealing.seal(content, self._key, random=self._random, about=about))
        self._number += 1


def opened(chunks: Iterable[bytes], key: bytes, *, first_line: bytes, name: str, remedy: str = "") -> Iterator[bytes]:
    """Yield the content of a sealed file.

    Raises TrustError, naming the file, if the key is wrong, or the file was changed or truncated. Content that was
    yielded before an error is authentic, but incomplete.
    """
    number, size = 0, PIECE + sealing.OVERHEAD
    rest = bytearray()
    line: bytes | None = None
    for chunk in chunks:
        rest += chunk
        if line is None and len(rest) >= len(first_line):
            line = bytes(rest[: len(first_line)])
            del rest[: len(first_line)]
        while line is not None and len(rest) > size:
            yield _open(bytes(rest[:size]), key, _associated_data(line, number, last=False), name, remedy)
            del rest[:size]
            number += 1
    if line is None:
        raise TrustError(f"{name} cannot be decrypted", detail="it was cut off", remedy=remedy)
    yield _open(bytes(rest), key, _associated_data(line, number, last=True), name, remedy)


def _open(piece: bytes, key: bytes, about: bytes, name: str, remedy: str) -> bytes:
    try:
        return sealing.opened(piece, key, what=name, about=about)
    except TrustError as error:
        raise TrustError(
            f"{name} cannot be decrypted", detail="the key is another one, or the file was changed or cut off", remedy=remedy
        ) from error


def _associated_data(line: bytes, number: int, *, last: bool) -> bytes:
    return line + number.to_bytes(8, "big") + (b"\1" if last else b"\0")
