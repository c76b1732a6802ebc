"""The user's own directory of binaries (`--binaries-dir`). What is in it was chosen: something unfit in it is an error, never passed over.

A program is checked when it is first used; what was found is kept in the cache, so that later runs cost one stat per program.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from kubewright.base.errors import BinariesError, HostError
from kubewright.base.versions import Version
from kubewright.binaries import files, running, stamps
from kubewright.binaries.cache import binary
from kubewright.binaries.settings import DIRECTORY_VARIABLE
from kubewright.binaries.stamps import Stamp
from kubewright.binaries.table import Tolerance
from kubewright.binaries.wanted import Binary, Refusal, Wanted

STAMPS: Final = "directories.json"
"""In the cache's root: the stamps of all directories that were ever used, by the programs' paths."""


class Directory:
    """Programs that the user provides, under the names of the table."""

    name = "directory"

    def __init__(self, path: Path, *, cache_root: Path) -> None:
        self._path = path
        self._stamps_path = cache_root / STAMPS
        self._known: dict[str, Stamp] | None = None

    def find(self, wanted: Wanted) -> Binary | Refusal:
        """Look a program up; one that is not there is refused.

        Raises BinariesError where the directory does not exist, or the program in it cannot be used.
        """
        if not self._path.is_dir():
            raise BinariesError(
                f"the directory of binaries {self._path} does not exist" if not self._path.exists() else f"{self._path} is not a directory",
                remedy=f"correct --binaries-dir or {DIRECTORY_VARIABLE}",
            )
        path = self._path / wanted.name
        try:
            status = path.stat()
        except FileNotFoundError:
            return Refusal(source=self.name, reason=f"{path} is not there", remedy=f"put {wanted.name} {wanted.version} into {self._path}")
        except OSError as error:
            raise BinariesError(f"{path} cannot be read: {error.strerror}") from error
        if os.geteuid() == 0 and (fault := files.weakness(path)):
            raise BinariesError(
                f"{path} is not run: {fault}",
                detail="whoever can change a program decides what runs as root",
                remedy=f"see `namei -l {path}`, and let only root write there",
            )
        known = self._stamps().get(_key(path, wanted))
        if known is None or known.differs(status):
            known = self._check(path, wanted)
        running.check_version(Version.parse(known.version), wanted, path=path, tolerance=_tolerance(wanted))
        return binary(wanted, path, known)

    def _check(self, path: Path, wanted: Wanted) -> Stamp:
        status = path.stat()
        version = running.check(path, wanted, scripts=True, tolerance=_tolerance(wanted))
        stamp = Stamp(
            size=status.st_size,
            mtime=status.st_mtime_ns,
            sha256=files.sha256(path),
            version=str(version),
            source=f"directory {self._path}",
        )
        self._remember(path, wanted, stamp)
        return stamp

    def _remember(self, path: Path, wanted: Wanted, stamp: Stamp) -> None:
        """Keep the stamp where the cache can be written; without it the next run checks again."""
        known = {key: old for key, old in stamps.load(self._stamps_path).items() if Path(key.partition(" ")[2]).exists()}
        self._known = {**known, _key(path, wanted): stamp}
        with suppress(HostError):
            files.make_directory(self._stamps_path.parent)
            stamps.save(self._stamps_path, self._known)

    def _stamps(self) -> dict[str, Stamp]:
        if self._known is None:
            self._known = stamps.load(self._stamps_path)
        return self._known


def _key(path: Path, wanted: Wanted) -> str:
    return f"{wanted.architecture} {path}"


def _tolerance(wanted: Wanted) -> Tolerance:
    return wanted.program.family.tolerance
