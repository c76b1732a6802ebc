"""The cache of component binaries: ROOT/VERSION/ARCHITECTURE/NAME, where VERSION is that of Kubernetes, also for etcd and others.

A directory therefore contains everything that belongs together, and may be passed to another machine as its
`--binaries-dir`. The results of checking its programs are in its `stamps.json`, so that a warm start reads it and needs
one stat per program. That file is JSON: `{"schema": 1, "programs": {KEY: {size, mtime, sha256, version, source}}}`. An
unreadable one counts as empty: at worst, programs are checked or fetched again. Only the holder of the cache's lock
writes.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kubewright.base.errors import BinariesError
from kubewright.base.records import asdict, dataclass, replace
from kubewright.base.versions import Version
from kubewright.binaries import files, inspection
from kubewright.binaries.table import Binary, Refusal, Wanted

SCHEMA: Final = 1

RECORDS: Final = "stamps.json"


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """A file as it was when it was checked. `mtime` is in nanoseconds."""

    size: int
    mtime: int
    sha256: str
    version: str
    source: str

    def differs(self, status: os.stat_result) -> str:
        """Return how a file differs from the one that was checked; '' if it does not."""
        if status.st_size != self.size:
            return f"its size is {status.st_size}, it was {self.size}"
        return "it was modified" if status.st_mtime_ns != self.mtime else ""


def load_records(path: Path) -> dict[str, FileRecord]:
    """Read a stamp file; empty if it does not exist or cannot be read."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(document, dict) or document.get("schema") != SCHEMA or not isinstance(document.get("programs"), dict):
        return {}
    return {key: stamp for key, value in document["programs"].items() if (stamp := _record(value)) is not None}


def save_records(path: Path, stamps: Mapping[str, FileRecord]) -> None:
    """Write a stamp file. Raises HostError or DiskFull."""
    programs = {key: asdict(stamp) for key, stamp in sorted(stamps.items())}
    files.write(path, json.dumps({"schema": SCHEMA, "programs": programs}, indent=1).encode() + b"\n")


def unsafe(status: os.stat_result) -> str:
    """Return why a file of the cache must not be run: not a file, not ours or root's, or writable by others. '' if it may."""
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    if status.st_uid not in {0, os.geteuid()}:
        return f"it belongs to user {status.st_uid}"
    return "others may write to it" if status.st_mode & 0o022 else ""


def _record(value: object) -> FileRecord | None:
    if not isinstance(value, dict):
        return None
    numbers = [value.get(key) for key in ("size", "mtime")]
    texts = [value.get(key) for key in ("sha256", "version", "source")]
    if not all(type(number) is int for number in numbers) or not all(isinstance(text, str) for text in texts):
        return None
    try:
        Version.parse(value["version"])
    except ValueError:
        return None
    return FileRecord(size=value["size"], mtime=value["mtime"], sha256=value["sha256"], version=value["version"], source=value["source"])


class Cache:
    """The programs that have been fetched or built."""

    name = "cache"

    def __init__(self, root: Path) -> None:
        self.root = root
        self._known: dict[Path, dict[str, FileRecord]] = {}
        self._faults: dict[Path, str] = {}

    def directory(self, wanted: Wanted) -> Path:
        """Return the directory of the program's version."""
        return self.root / str(wanted.kubernetes) / wanted.architecture

    def path(self, wanted: Wanted) -> Path:
        """Return the path of the program, whether it exists or not."""
        return self.directory(wanted) / wanted.name

    def find(self, wanted: Wanted) -> Binary | Refusal:
        """Look up a program with one stat. A file that has changed, or that others could replace, is refused."""
        directory = self.directory(wanted)
        stamp = self._stamps(directory).get(wanted.name)
        path = directory / wanted.name
        if stamp is None:
            return Refusal(source=self.name, reason=f"not in {directory}")
        if stamp.version != str(wanted.version):
            return Refusal(source=self.name, reason=f"{path} is {stamp.version}")
        try:
            status = path.stat(follow_symlinks=False)
        except OSError as error:
            return Refusal(source=self.name, reason=f"{path}: {error.strerror}")
        if fault := unsafe(status) or self._fault(directory) or stamp.differs(status):
            return Refusal(source=self.name, reason=f"{path} is not used: {fault}")
        return binary(wanted, path, stamp)

    def install(self, wanted: Wanted, finished: Path, *, source: str) -> Binary:
        """Check a finished program and move it to where `find` finds it. `finished` must be on the cache's file system.

        Raises BinariesError if the program is unusable, HostError if the cache cannot be written.
        """
        with files.writing(finished):
            finished.chmod(0o755)
        version = inspection.check_program(finished, wanted)
        directory = self.directory(wanted)
        files.make_directory(directory)
        files.require_own(directory)
        digest = files.sha256(finished)
        path = directory / wanted.name
        files.move_into_place(finished, path)
        status = path.stat()
        stamp = FileRecord(size=status.st_size, mtime=status.st_mtime_ns, sha256=digest, version=str(version), source=source)
        self._known[directory] = {**load_records(directory / RECORDS), wanted.name: stamp}
        save_records(directory / RECORDS, self._known[directory])
        return binary(wanted, path, stamp)

    def forget(self) -> None:
        """Read the stamps again at the next lookup, because another process may have written them."""
        self._known.clear()
        self._faults.clear()

    def _fault(self, directory: Path) -> str:
        """Return who else could put programs into a directory; checked once."""
        if directory not in self._faults:
            self._faults[directory] = files.weakness(directory)
        return self._faults[directory]

    def _stamps(self, directory: Path) -> dict[str, FileRecord]:
        if directory not in self._known:
            self._known[directory] = load_records(directory / RECORDS)
        return self._known[directory]


def binary(wanted: Wanted, path: Path, stamp: FileRecord) -> Binary:
    """Return the value for a file and its stamp."""
    return Binary(name=wanted.name, path=path, version=stamp.version, source=stamp.source, sha256=stamp.sha256, size=stamp.size)


def rehash(found: Binary) -> Binary:
    """Return a binary with the current SHA-256 and size of its file. Raises BinariesError if it cannot be read."""
    try:
        return replace(found, sha256=files.sha256(found.path), size=found.path.stat().st_size)
    except OSError as error:
        raise BinariesError(f"{found.path} cannot be read: {error.strerror}") from error
