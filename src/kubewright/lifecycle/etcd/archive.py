"""The archive of a backup: a tar stream with a description, the machine's files, and the snapshot of etcd in parts.

`backup.json` comes first, `etcd.json` last; an archive without the latter was cut off. Between them are `files/PATH`,
and `etcd.db.NNNNN`, the parts of the snapshot in order, because its size is unknown until it has arrived. Names, kinds
and sizes are checked when an archive is read, because an archive that is not sealed may contain anything.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Final, cast

from kubewright.base.errors import DocumentError
from kubewright.base.records import dataclass
from kubewright.etcd.snapshots import Checker, Snapshot
from kubewright.host.filesystem import archives
from kubewright.host.filesystem.archives import UNREADABLE, Forward
from kubewright.lifecycle.etcd import descriptions

FORMAT: Final = 1
PART: Final = 4 << 20
"""Bytes of one part of the snapshot."""
LARGEST: Final = 16 << 20
"""Bytes of the largest file, and of the largest part of a snapshot that is read."""
TOTAL: Final = 256 << 20
"""Bytes of all files of the machine together."""
_MOST: Final = 10_000
"""The limit for the number of members of an archive."""
_DESCRIPTION: Final = "backup.json"
_END: Final = "etcd.json"
_DATABASE: Final = "etcd.db."
_FILES: Final = "files/"
_REMEDY: Final = "use another backup"


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """A file of the machine in a backup."""

    path: PurePosixPath
    content: bytes
    mode: int


@dataclass(frozen=True, kw_only=True)
class Archive:
    """The content of an archive except for the snapshot.

    `description` is that of the machine, `etcd` that of the snapshot, as in FILE.json.
    """

    description: Mapping[str, Any]
    files: tuple[StoredFile, ...]
    snapshot: Snapshot
    etcd: Mapping[str, Any]


class ArchiveWriter:
    """Writes an archive to a stream: `begin`, `database` for each piece, `finish`."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        stream = cast("BinaryIO", _Sink(write))
        # not `w|`, whose buffer would be written when an archive that was given up is deleted
        self._tar = tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115 - `finish` closes it
        self._rest = bytearray()
        self._parts = 0

    def begin(self, description: Mapping[str, Any], files: Iterable[StoredFile]) -> None:
        """Write the description and the files."""
        stored = list(files)
        digests = {str(one.path): hashlib.sha256(one.content).hexdigest() for one in stored}
        self._add(_DESCRIPTION, _encoded({"format": FORMAT, **description, "files": digests}))
        for one in stored:
            self._add(f"{_FILES}{str(one.path).removeprefix('/')}", one.content, mode=one.mode)

    def database(self, content: bytes, /) -> None:
        """Write the next piece of the snapshot."""
        self._rest += content
        while len(self._rest) >= PART:
            self._part(bytes(self._rest[:PART]))
            del self._rest[:PART]

    def finish(self, described: Mapping[str, Any]) -> None:
        """Write the rest of the snapshot, and its description."""
        if self._rest:
            self._part(bytes(self._rest))
        self._add(_END, _encoded(described))
        self._tar.close()

    def _part(self, content: bytes) -> None:
        self._add(f"{_DATABASE}{self._parts:05}", content)
        self._parts += 1

    def _add(self, name: str, content: bytes, *, mode: int = 0o600) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(content), mode
        self._tar.addfile(member, io.BytesIO(content))


def _encoded(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()


class _Sink:
    """A write-only file."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._written = 0

    def write(self, content: bytes, /) -> int:
        self._write(content)
        self._written += len(content)
        return len(content)

    def tell(self) -> int:
        return self._written


class _Source(io.RawIOBase):
    """A read-only file over chunks."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._rest:
            try:
                self._rest = next(self._chunks)
            except StopIteration:
                return 0
        taken, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)


def database(chunks: Iterable[bytes], *, name: str) -> Iterator[bytes]:
    """Yield the snapshot of an archive that has been checked before, part by part. Raises as `read` does."""
    try:
        with archives.opened(_forward(chunks)) as tar:
            for member, content, _ in _members(tar, name):
                if member.startswith(_DATABASE):
                    yield content
    except UNREADABLE as error:
        raise _refused(name, f"it is not a tar archive, or was cut off: {error}") from error


def read(chunks: Iterable[bytes], *, name: str) -> Archive:
    """Read an archive to its end and check it. Raises DocumentError, and what the chunks raise."""
    source = _forward(chunks)
    try:
        with archives.opened(source) as tar:
            found = _read(_members(tar, name), name)
        while source.read():  # the seal is verified up to the end
            pass
    except UNREADABLE as error:
        raise _refused(name, f"it is not a tar archive, or was cut off: {error}") from error
    return found


def _forward(chunks: Iterable[bytes]) -> Forward:
    return Forward(io.BufferedReader(_Source(chunks), PART), most=_MOST * LARGEST)


def _read(members: Iterator[tuple[str, bytes, int]], name: str) -> Archive:
    first, content, _ = next(members, ("", b"", 0))
    if first != _DESCRIPTION:
        raise _refused(name, f"it does not begin with {_DESCRIPTION}")
    description = _described(content, name)
    listed = description.get("files")
    if not isinstance(listed, dict):
        raise _refused(name, f"{_DESCRIPTION} has no list of files")
    files: dict[str, StoredFile] = {}
    checker, parts, total, etcd = Checker(f"the snapshot in {name}"), 0, 0, None
    for member, content, mode in members:
        if etcd is not None:
            raise _refused(name, f"{member} comes after its end")
        if member.startswith(_FILES) and not parts:
            path, total = _path(member, name), total + len(content)
            if total > TOTAL:
                raise _refused(name, f"its files have more than {TOTAL} bytes")
            if str(path) in files or hashlib.sha256(content).hexdigest() != listed.get(str(path)):
                raise _refused(name, f"{path} is not what {_DESCRIPTION} says")
            files[str(path)] = StoredFile(path=path, content=content, mode=mode)
        elif member == f"{_DATABASE}{parts:05}":
            checker.take(content)
            parts += 1
        elif member == _END:
            etcd = _described(content, name)
        else:
            raise _refused(name, f"{member!r} does not belong there")
    if etcd is None:
        raise _refused(name, "it was cut off")
    if missing := sorted(set(listed) - set(files)):
        raise _refused(name, f"it lacks {', '.join(missing)}")
    return Archive(description=description, files=tuple(files.values()), snapshot=checker.finish(), etcd=etcd)


def _members(tar: tarfile.TarFile, name: str) -> Iterator[tuple[str, bytes, int]]:
    """Yield name, content and mode of each member.

    Raises DocumentError for one that is not a plain file or is too large.
    """
    for count, member in enumerate(tar):
        content = tar.extractfile(member) if member.isreg() and member.size <= LARGEST and count < _MOST else None
        if content is None or member.issparse():
            raise _refused(name, f"{member.name!r} is not a plain file, or is too large")
        yield member.name, archives.whole(content), member.mode & 0o777


def _path(member: str, name: str) -> PurePosixPath:
    """Return the path of a file on the machine. Raises DocumentError for a name that is not a normal path."""
    text = "/" + member.removeprefix(_FILES)
    path = PurePosixPath(text)
    if str(path) != text or ".." in path.parts or len(path.parts) < 2 or "\0" in text:
        raise _refused(name, f"{member!r} is not a path of a file")
    return path


def _described(content: bytes, name: str) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except ValueError:
        value = None
    if not isinstance(value, dict) or not descriptions.is_valid(value):
        raise _refused(name, "its description cannot be read")
    if value.get("format", FORMAT) != FORMAT:
        raise _refused(name, f"its format is {value['format']}, and this version of kubewright reads {FORMAT}")
    return value


def _refused(name: str, why: str) -> DocumentError:
    return DocumentError(f"{name} is not a backup that can be used", detail=why, remedy=_REMEDY)
