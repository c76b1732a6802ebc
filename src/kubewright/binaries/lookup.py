"""Lookup of binaries without fetching: the user's own directory (`--binaries-dir`), then the cache.

The user chose the contents of that directory: an unusable program in it is an error, never skipped. A program is
checked when it is first used; the result is stored in the cache, so that later runs need one stat per program.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from kubewright.base.errors import BinariesError, HostError
from kubewright.base.records import dataclass, field
from kubewright.base.versions import Version
from kubewright.binaries import cache, files, inspection
from kubewright.binaries.cache import Cache, FileRecord, binary
from kubewright.binaries.settings import VERSION_FLAG, BinarySources
from kubewright.binaries.table import Binary, Refusal, Tolerance, Wanted

DIRECTORY_RECORDS: Final = "directories.json"
"""In the cache's root: the stamps of all directories that were ever used, by the programs' paths."""


class Directory:
    """Programs that the user provides, under the names of the table."""

    name = "directory"

    def __init__(self, path: Path, *, sources: BinarySources) -> None:
        self._path = path
        self._sources = sources
        self._stamps_path = sources.cache / DIRECTORY_RECORDS
        self._known: dict[str, FileRecord] | None = None

    def find(self, wanted: Wanted) -> Binary | Refusal:
        """Look up a program; a missing one is refused.

        Raises BinariesError if the directory does not exist, or the program in it cannot be used.
        """
        if not self._path.is_dir():
            raise BinariesError(
                f"the directory of binaries {self._path} does not exist" if not self._path.exists() else f"{self._path} is not a directory",
                remedy=f"correct {self._sources.directory_setting}",
            )
        path = self._path / wanted.name
        try:
            status = path.stat()
        except FileNotFoundError:
            return Refusal(
                source=self.name, reason=f"{path} does not exist", remedy=f"put {wanted.name} {wanted.version} into {self._path}"
            )
        except OSError as error:
            raise BinariesError(f"{path} cannot be read: {error.strerror}") from error
        if os.geteuid() == 0 and (fault := files.weakness(path)):
            raise BinariesError(
                f"{path} is not run: {fault}",
                detail="anyone who can change a program decides what runs as root",
                remedy=f"see `namei -l {path}`, and allow only root to write there",
            )
        known = self._stamps().get(_key(path, wanted))
        if known is None or known.differs(status):
            known = self._check(path, wanted)
        inspection.check_version(
            Version.parse(known.version), wanted, path=path, tolerance=_tolerance(wanted), flag=VERSION_FLAG in self._sources.flags
        )
        return binary(wanted, path, known)

    def _check(self, path: Path, wanted: Wanted) -> FileRecord:
        status = path.stat()
        version = inspection.check_program(
            path, wanted, scripts=True, tolerance=_tolerance(wanted), flag=VERSION_FLAG in self._sources.flags
        )
        stamp = FileRecord(
            size=status.st_size,
            mtime=status.st_mtime_ns,
            sha256=files.sha256(path),
            version=str(version),
            source=f"directory {self._path}",
        )
        self._remember(path, wanted, stamp)
        return stamp

    def _remember(self, path: Path, wanted: Wanted, stamp: FileRecord) -> None:
        """Store the stamp if the cache is writable; without it, the next run checks the program again."""
        known = {key: old for key, old in cache.load_records(self._stamps_path).items() if Path(key.partition(" ")[2]).exists()}
        self._known = {**known, _key(path, wanted): stamp}
        with suppress(HostError):
            files.make_directory(self._stamps_path.parent)
            cache.save_records(self._stamps_path, self._known)

    def _stamps(self) -> dict[str, FileRecord]:
        if self._known is None:
            self._known = cache.load_records(self._stamps_path)
        return self._known


def _key(path: Path, wanted: Wanted) -> str:
    return f"{wanted.architecture} {path}"


def _tolerance(wanted: Wanted) -> Tolerance:
    return wanted.program.family.tolerance


@dataclass(frozen=True, kw_only=True)
class Located:
    """The programs that were found, by name, and the missing ones with the reason of each place that was searched."""

    found: Mapping[str, Binary] = field(default_factory=dict)
    missing: Mapping[str, tuple[Refusal, ...]] = field(default_factory=dict)


class Lookup:
    """The two places that contain finished binaries."""

    def __init__(self, sources: BinarySources) -> None:
        self.cache = Cache(sources.cache)
        self._directory = Directory(sources.directory, sources=sources) if sources.directory is not None else None

    def find(self, wanted: Wanted) -> Binary | tuple[Refusal, ...]:
        """Look up one program. Raises BinariesError if the one in the user's directory is unusable."""
        refusals: list[Refusal] = []
        for place in (self._directory, self.cache):
            if place is None:
                continue
            found = place.find(wanted)
            if isinstance(found, Binary):
                return found
            refusals.append(found)
        return tuple(refusals)

    def locate(self, wanted: tuple[Wanted, ...]) -> Located:
        """Look up several programs. Raises as `find` does."""
        found: dict[str, Binary] = {}
        missing: dict[str, tuple[Refusal, ...]] = {}
        for one in wanted:
            answer = self.find(one)
            if isinstance(answer, Binary):
                found[one.name] = answer
            else:
                missing[one.name] = answer
        return Located(found=found, missing=missing)
