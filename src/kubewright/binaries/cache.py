"""The cache of component binaries: ROOT/VERSION/ARCHITECTURE/NAME, where VERSION is that of Kubernetes, also for etcd and others.

One directory so holds all that belongs together, and may be handed to another machine as its `--binaries-dir`. What is known about its
programs is in its `stamps.json`: a warm start reads it and costs one stat per program. Only the holder of the cache's lock writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kubewright.base.errors import BinariesError
from kubewright.base.records import replace
from kubewright.binaries import files, running, stamps
from kubewright.binaries.stamps import Stamp
from kubewright.binaries.wanted import Binary, Refusal, Wanted

STAMPS: Final = "stamps.json"


class Cache:
    """What has been fetched or built before."""

    name = "cache"

    def __init__(self, root: Path) -> None:
        self.root = root
        self._known: dict[Path, dict[str, Stamp]] = {}
        self._faults: dict[Path, str] = {}

    def directory(self, wanted: Wanted) -> Path:
        """Return where the program's version is kept."""
        return self.root / str(wanted.kubernetes) / wanted.architecture

    def path(self, wanted: Wanted) -> Path:
        """Return where the program is, or will be."""
        return self.directory(wanted) / wanted.name

    def find(self, wanted: Wanted) -> Binary | Refusal:
        """Look a program up: one stat. A file that is not what was put there, or that others could replace, is not used."""
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
        if fault := stamps.unsafe(status) or self._fault(directory) or stamp.differs(status):
            return Refusal(source=self.name, reason=f"{path} is not used: {fault}")
        return binary(wanted, path, stamp)

    def install(self, wanted: Wanted, finished: Path, *, source: str) -> Binary:
        """Check a finished program and put it where `find` finds it. `finished` is moved; it is on the cache's file system.

        Raises BinariesError where the program is unfit, HostError where the cache cannot be written.
        """
        with files.writing(finished):
            finished.chmod(0o755)
        version = running.check(finished, wanted)
        directory = self.directory(wanted)
        files.make_directory(directory)
        files.require_own(directory)
        digest = files.sha256(finished)
        path = directory / wanted.name
        files.move_into_place(finished, path)
        status = path.stat()
        stamp = Stamp(size=status.st_size, mtime=status.st_mtime_ns, sha256=digest, version=str(version), source=source)
        self._known[directory] = {**stamps.load(directory / STAMPS), wanted.name: stamp}
        stamps.save(directory / STAMPS, self._known[directory])
        return binary(wanted, path, stamp)

    def forget(self) -> None:
        """Read the stamps again on the next look: another process may have written them."""
        self._known.clear()
        self._faults.clear()

    def _fault(self, directory: Path) -> str:
        """Say who else could put programs into a directory: looked at once."""
        if directory not in self._faults:
            self._faults[directory] = files.weakness(directory)
        return self._faults[directory]

    def _stamps(self, directory: Path) -> dict[str, Stamp]:
        if directory not in self._known:
            self._known[directory] = stamps.load(directory / STAMPS)
        return self._known[directory]


def binary(wanted: Wanted, path: Path, stamp: Stamp) -> Binary:
    """Make the value that is handed out for a file and its stamp."""
    return Binary(name=wanted.name, path=path, version=stamp.version, source=stamp.source, sha256=stamp.sha256, size=stamp.size)


def rehash(found: Binary) -> Binary:
    """Return a binary with the SHA-256 and size that its file has now. Raises BinariesError where it cannot be read."""
    try:
        return replace(found, sha256=files.sha256(found.path), size=found.path.stat().st_size)
    except OSError as error:
        raise BinariesError(f"{found.path} cannot be read: {error.strerror}") from error
