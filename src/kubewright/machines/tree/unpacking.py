"""Unpacking a machine tree. The file is treated as hostile input: its digest proves its origin, not that its contents are harmless.

Only directories, files and symbolic links are accepted, below the names that `contents` lists; each name once, its
directory before it. Links are made when all files are written, so that nothing is written through one, and none of them
may lead out of the Debian tree, because the host reads files there. How much is read and written is limited.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from kubewright.base.errors import BinariesError, HostError
from kubewright.base.messages import one_line, quoted
from kubewright.base.records import dataclass
from kubewright.binaries import files
from kubewright.host.filesystem import archives
from kubewright.host.filesystem.archives import PIECE, UNREADABLE, Forward
from kubewright.machines.running import PATH
from kubewright.machines.tree import contents
from kubewright.machines.tree.contents import Contents

MOST_BYTES: Final = 4 << 30
MOST_ENTRIES: Final = 200_000
LARGEST_FILE: Final = 1 << 30
_LARGEST_ID: Final = 0xFFFF
_LONGEST_NAME: Final = 1024


@dataclass(frozen=True, kw_only=True)
class Places:
    """The directories into which the parts of a machine tree are unpacked; they do not exist yet, and others cannot write to their parents."""

    base: Path
    programs: Path
    """Contains the programs, and the one of the pause image."""


class _Unpacking:
    """The unpacking of one machine tree."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._seen = set[str]()
        self._directories = set[str]()
        self._links: dict[str, str] = {}

    def run(self, stream: Forward, wanted: Contents) -> None:
        with archives.opened(stream) as tar:
            for number, entry in enumerate(tar):
                if not number:
                    contents.require_equal(self._first(tar, entry), wanted)
                    continue
                if number > MOST_ENTRIES:
                    raise _refusal(f"it has more than {MOST_ENTRIES} entries")
                self._unpack_entry(tar, entry)
        if missing := [name for name in (contents.BASE, contents.PAUSE, *_programs()) if name not in self._seen]:
            raise _refusal(f"it does not contain {', '.join(missing)}")
        self._make_links()

    def _first(self, tar: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
        if entry.name != contents.CONTENTS or entry.type != tarfile.REGTYPE or entry.size > PIECE:
            raise _refusal(f"its first entry is not {contents.CONTENTS}")
        return _content(tar, entry).read()

    def _unpack_entry(self, tar: tarfile.TarFile, entry: tarfile.TarInfo) -> None:
        name = entry.name
        parts = name.split("/")
        if len(name) > _LONGEST_NAME or "\0" in name or any(part in {"", ".", ".."} for part in parts):
            raise _refusal(f"the name {quoted(name[:_LONGEST_NAME])} is not allowed")
        if entry.pax_headers:  # they may describe contents that are not in the file
            raise _refusal(f"{quoted(name)} has extended headers")
        if name in self._seen:
            raise _refusal(f"{quoted(name)} is there twice")
        self._seen.add(name)
        if parts[0] == contents.LICENSES:
            return
        if parts[0] == contents.BASE:
            self._take_base(tar, entry)
        elif entry.type == tarfile.REGTYPE and name in {contents.PAUSE, *_programs()}:
            self._write(tar, entry, self._places.programs / parts[-1])
        elif entry.type != tarfile.DIRTYPE or name != contents.PROGRAMS:
            raise _refusal(f"{quoted(name)} is not a part of a machine tree")

    def _take_base(self, tar: tarfile.TarFile, entry: tarfile.TarInfo) -> None:
        name, path = entry.name, self._places.base / entry.name.removeprefix(contents.BASE).lstrip("/")
        parent = name.rpartition("/")[0]
        if parent and parent not in self._directories:
            raise _refusal(f"the directory of {quoted(name)} is not there")
        if not (0 <= entry.uid <= _LARGEST_ID and 0 <= entry.gid <= _LARGEST_ID):
            raise _refusal(f"the owner of {quoted(name)} is not allowed")
        if entry.type == tarfile.DIRTYPE:
            path.mkdir(mode=0o700)
            self._directories.add(name)
        elif entry.type == tarfile.SYMTYPE and parent:
            self._links[name] = entry.linkname
            return
        elif entry.type == tarfile.REGTYPE and parent:
            self._write(tar, entry, path)
        else:
            raise _refusal(f"{quoted(name)} is neither a directory, a file nor a symbolic link")
        os.chown(path, entry.uid, entry.gid)
        path.chmod(entry.mode & 0o7777)

    def _write(self, tar: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> None:
        if entry.size > LARGEST_FILE:
            raise _refusal(f"{quoted(entry.name)} is larger than {LARGEST_FILE} bytes")
        with path.open("xb") as target:
            shutil.copyfileobj(_content(tar, entry), target, PIECE)
        # byte code of Python is valid for the time of its source
        os.utime(path, (entry.mtime, entry.mtime))

    def _make_links(self) -> None:
        base = os.path.realpath(self._places.base)
        paths = {name: Path(base, name.removeprefix(f"{contents.BASE}/")) for name in self._links}
        for name, target in self._links.items():
            paths[name].symlink_to(target)
        for name, path in paths.items():
            if not f"{os.path.realpath(path)}/".startswith(f"{base}/"):
                raise _refusal(f"the link {quoted(name)} leads out of the tree")


def unpack(archive: IO[bytes], places: Places, *, wanted: Contents) -> None:
    """Unpack a file whose digest was verified. Raises BinariesError, HostError or DiskFull; the caller then removes the places."""
    places.programs.mkdir(mode=0o700)
    try:
        with _decompressed(archive) as pipe, files.writing(places.base):
            stream = Forward(pipe, most=MOST_BYTES)
            _Unpacking(places).run(stream, wanted)
            while stream.read():  # zstd verifies its checksum at the end
                pass
    except UNREADABLE as error:
        raise _refusal(str(error)) from error


@contextmanager
def _decompressed(archive: IO[bytes]) -> Iterator[IO[bytes]]:
    """Provide the output of zstd, which limits its memory to 128 MiB. Raises BinariesError if it does not succeed."""
    argv = ("zstd", "--decompress", "--stdout", "--quiet")
    try:
        process = subprocess.Popen(argv, stdin=archive, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={"PATH": PATH})
    except FileNotFoundError as error:
        raise HostError("zstd, which unpacks the machine tree, is not installed", remedy="apt-get install zstd") from error
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        yield process.stdout
        said = process.stderr.read(PIECE).decode(errors="replace").strip()
        if process.wait():
            raise _refusal(said)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def _content(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> IO[bytes]:
    content = tar.extractfile(entry)
    assert content is not None  # of a regular file
    return content


def _programs() -> Mapping[str, str]:
    return {f"{contents.PROGRAMS}/{name}": name for name in contents.NAMES}


def _refusal(what: str) -> BinariesError:
    return BinariesError(f"the machine tree cannot be unpacked: {one_line(what)}", remedy="`make machine-tree` makes another one")
